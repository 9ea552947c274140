"""Who runs where: jobs and services are placed, end by themselves, or are ended and start again.

A fleet in demand: whatever is free beyond a small reserve gets a new job at once; jobs that were
interrupted come first and may use the reserve.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rules.judge.workload import Workload as Program
from rules.simulate.cluster.sim_node import Fleet, SimNode
from rules.simulate.cluster.work import (
    CHECKPOINT_S,
    GPUS_PER_NODE,
    GRACE_S,
    RESTART_S,
    Guard,
    Pod,
    Workload,
)
from rules.simulate.node.signs import PROGRAM_LINES
from rules.simulate.score import Ended, Loss
from rules.simulate.truth.dice import weighted
from rules.simulate.truth.kinds import EFFECTS

RESERVE: Final = 0.03
"""Share of nodes that new jobs leave free."""
SERVED: Final = 0.15
"""Share of nodes with a replica of a service."""
SIZES: Final = (1, 2, 4, 8, 16, 32)
SHARES: Final = (0.50, 0.20, 0.12, 0.10, 0.05, 0.03)
"""Jobs by nodes (assumed): half on one node, a few on many, which hold most of the GPUs."""
LENGTH: Final = (2.48, 1.2)
"""Lognormal of hours: 12 at the median, 25 on average (assumed)."""
BLOCKED: Final = 0.05
"""Share of services and of large jobs whose budget never allows an eviction (assumed)."""
PROGRAM_ENDS: Final = 0.10
"""Share of jobs that end with an error of the program that shows in the kernel log."""
REPLICAS: Final = 4
STARTS_S: Final = 120.0
"""From placement to a replica's readiness."""


class Scheduler:
    """Places work on the nodes of one world."""

    def __init__(self, world: Fleet) -> None:
        self._world = world
        self._free: set[str] = set()
        self._waiting: list[Workload] = []
        self._jobs = 0
        self._pods: dict[str, Pod] = {}
        self.services: list[Workload] = []

    # ------------------------------------------------------------------ beginning

    def start(self) -> None:
        """Fill the fleet."""
        world, dice = self._world, self._world.dice
        self._free = {node.name for node in world.by_number if node.open}
        for number in range(round(len(world.by_number) * SERVED / REPLICAS)):
            guard = Guard.ALL if dice.random() < BLOCKED else Guard.ONE_AT_A_TIME
            self.services.append(
                Workload(name=f"serve-{number}", size=REPLICAS, service=True, guard=guard)
            )
        for service in self.services:
            self._replicas(service)
        self._fill()

    def _fill(self) -> None:
        world, dice = self._world, self._world.dice
        for work in list(self._waiting):
            if work.service:
                self._replicas(work)
            elif len(self._free) >= work.size:
                self._waiting.remove(work)
                self._place(work)
        reserve = round(len(world.by_number) * RESERVE)
        room = len(self._free) - reserve
        if self._waiting:
            room -= sum(work.size for work in self._waiting)
        most = max(1, len(world.by_number) // 8)
        while room > 0:
            size = min(SIZES[weighted(dice, SHARES)], most)
            while size > room:
                size //= 2
            self._jobs += 1
            hours = dice.lognormvariate(*LENGTH)
            guarded = size > 1 and dice.random() < BLOCKED
            job = Workload(
                name=f"train-{self._jobs}",
                size=size,
                service=False,
                guard=Guard.ALL if guarded else Guard.NONE,
                work_s=hours * 3600.0,
            )
            self._place(job)
            room -= size

    def _place(self, job: Workload) -> None:
        """Where it ran before, else on neighbours."""
        again = [name for name in job.before if name in self._free]
        others = sorted(self._free.difference(again))
        chosen = [*again, *others][: job.size]
        now = self._world.now
        job.attempt += 1
        job.nodes = chosen
        job.done_s, job.speed = 0.0, 1.0
        job.since = job.works_from = now + (RESTART_S if job.attempt > 1 else 0.0)
        for index, name in enumerate(chosen):
            self._bind(job, name, f"{job.name}-{job.attempt}-{index}")
        self._expect_end(job)
        for name in chosen:
            self._world.starts_on(self._world.nodes[name])

    def _replicas(self, service: Workload) -> None:
        while len(service.nodes) < service.size and self._free:
            name = min(self._free)
            service.attempt += 1
            service.nodes.append(name)
            self._bind(service, name, f"{service.name}-{service.attempt}")
            self._world.starts_on(self._world.nodes[name])
        waits = len(service.nodes) < service.size
        if waits and service not in self._waiting:
            self._waiting.insert(0, service)
        elif not waits and service in self._waiting:
            self._waiting.remove(service)

    def _bind(self, work: Workload, name: str, pod_name: str) -> None:
        node = self._world.nodes[name]
        self._free.discard(name)
        node.pod = Pod(
            name=pod_name,
            uid=f"pod-{pod_name}",
            node=name,
            owner=work,
            started_at=self._world.now,
        )

    # ------------------------------------------------------------------ ending

    def _expect_end(self, job: Workload) -> None:
        attempt, speed = job.attempt, job.speed
        left_s = (job.work_s - job.progress(self._world.now)) / speed
        begins = max(0.0, job.works_from - self._world.now)

        def over() -> None:
            if job.attempt == attempt and job.speed == speed and job.nodes:
                self._completed(job)

        self._world.clock.after(begins + left_s, over)

    def _completed(self, job: Workload) -> None:
        world, dice = self._world, self._world.dice
        self._settle_speed(job)
        if dice.random() < PROGRAM_ENDS:
            node = world.nodes[dice.choice(job.nodes)]
            number = 31 if dice.random() < 0.7 else 13
            program = Program(
                uid=f"uid-{job.name}", program=f"work/{job.name}", name=f"Job work/{job.name}"
            )
            gpu = dice.randrange(GPUS_PER_NODE)
            for xid in (number, 43):
                world.prints(node, PROGRAM_LINES[xid], gpu, program)
        self._vacate(job)
        self._fill()

    def ends_on(self, node: SimNode, how: Ended) -> None:
        """What runs on the node is ended: one replica, or the whole attempt of a job."""
        if node.pod is None:
            return
        if node.pod.owner.service:
            self._replica_ended(node, node.pod, how)
        else:
            self._ended(node.pod.owner, how)

    def _ended(self, work: Workload, how: Ended) -> None:
        world = self._world
        world.score.ended[how] += 1
        self._settle_speed(work)
        progress = work.progress(world.now)
        saved = progress // CHECKPOINT_S * CHECKPOINT_S
        work.work_s -= saved
        gpus = work.size * GPUS_PER_NODE
        faulty = how in {Ended.FAULT, Ended.FAULT_AGAIN, Ended.PEOPLE}
        loss = Loss.FAULT if faulty else Loss.DRAIN
        world.score.lost[loss] += (progress - saved) / 3600.0 * gpus
        # A start that did not come to an end costs what it took so far.
        begun = min(RESTART_S, max(0.0, RESTART_S - (work.works_from - world.now)))
        if work.attempt > 1:
            world.score.lost[Loss.RESTART] += begun / 3600.0 * gpus
        work.before = tuple(work.nodes)
        self._vacate(work)
        self._waiting.append(work)
        # Its controller makes its pods anew, with a back-off.
        world.clock.after(min(360.0, 10.0 * 2 ** min(work.attempt, 6)), self._fill)

    def _replica_ended(self, node: SimNode, pod: Pod, how: Ended) -> None:
        """The others serve on."""
        world = self._world
        world.score.ended[how] += 1
        world.score.lost[Loss.RESTART] += STARTS_S / 3600.0 * GPUS_PER_NODE
        service = pod.owner
        service.nodes.remove(node.name)
        self._leave(node)
        if service not in self._waiting:
            self._waiting.insert(0, service)
        world.clock.after(5.0, self._fill)

    def _vacate(self, work: Workload) -> None:
        nodes, work.nodes = work.nodes, []
        for name in nodes:
            self._leave(self._world.nodes[name])

    def _leave(self, node: SimNode) -> None:
        node.pod = None
        if node.open:
            self._free.add(node.name)
        self._world.emptied(node)

    # ------------------------------------------------------------------ evictions

    def allows(self, pod: Pod) -> bool:
        """Whether the pod's budget allows its eviction now."""
        work = pod.owner
        if pod.terminating or work.guard is Guard.NONE:
            return True
        desired = work.size - 1 if work.guard is Guard.ONE_AT_A_TIME else work.size
        return self.healthy(work) > desired

    def healthy(self, work: Workload) -> int:
        """How many of its pods are there and do not go."""
        pods = (self._world.nodes[name].pod for name in work.nodes)
        return sum(pod is not None and not pod.terminating for pod in pods)

    def evicted(self, pod: Pod) -> None:
        """The pod goes: a replica after its grace, a job with all its pods at once."""
        world = self._world
        if pod.terminating:
            return
        pod.deleted_at = world.now + GRACE_S
        node = world.nodes[pod.node]
        fault = node.fault
        bad = fault is not None and not EFFECTS[fault.kind].healthy
        how = Ended.DRAIN if bad else Ended.DRAIN_HEALTHY

        def gone() -> None:
            if node.pod is pod:
                self.ends_on(node, how)

        world.clock.after(GRACE_S, gone)

    def unguard(self, work: Workload) -> None:
        """Its owner lets it go, asked by people."""
        work.guard = Guard.NONE

    # ------------------------------------------------------------------ nodes and speed

    def changed(self, node: SimNode) -> None:
        """The node takes new work, or does not any more."""
        if node.open and node.pod is None:
            self._free.add(node.name)
            self._fill()
        else:
            self._free.discard(node.name)

    def slowed(self, work: Workload) -> None:
        """One of its nodes is slow by now, or sound again: all wait for the slowest."""
        if work.service or not work.nodes:
            return
        slows = 0.0
        for name in work.nodes:
            fault = self._world.nodes[name].fault
            if fault is not None:
                slows = max(slows, EFFECTS[fault.kind].slows)
        if 1.0 - slows != work.speed:
            self._settle_speed(work)
            work.change_speed(1.0 - slows, self._world.now)
            self._expect_end(work)

    def _settle_speed(self, work: Workload) -> None:
        if work.speed < 1.0:
            worked = max(0.0, self._world.now - max(work.since, work.works_from))
            lost = worked * (1.0 - work.speed) / 3600.0 * work.size * GPUS_PER_NODE
            self._world.score.lost[Loss.FAULT] += lost

    def close_books(self) -> None:
        """The time is over: what slow jobs lost until now."""
        seen: Counter[int] = Counter()
        for node in self._world.by_number:
            if node.pod is not None and not seen[id(node.pod.owner)]:
                seen[id(node.pod.owner)] += 1
                self._settle_speed(node.pod.owner)
