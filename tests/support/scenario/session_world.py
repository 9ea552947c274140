"""A cluster in memory and virtual time, with one real replica of the remediator in it.

Objects are JSON as the API server would store them. The replica is the one that runs in a cluster
(`remediator.replica`): caches, fleet, looks at nodes, drains, gateway; time, network and lease are
those of `server/border.py`. The controllers that a drain depends on (kubelet, disruption
controller) run with the clock. Every request is kept, so that a test can state what must never be
sent.
"""

import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import msgspec
import pytest
import structlog

from remediator.kube.access import Access
from remediator.kube.resources import HEALTHS
from remediator.replica import Replica
from remediator.settings import RemediatorSettings
from rules.api.gpu_record import RecordView
from rules.api.nodes import HealthView, LeaseView, NodeView, PauseView, QuarantineView
from rules.api.repair_writes import ObjectAddress
from rules.api.timestamps import format_micro_time
from rules.api.writes import EmitEvent, Write
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.repair.objects import ObjectSeen
from rules.session.observation import FleetSnapshot
from tests.support.copying import copied
from tests.support.endings import at_the_end, has_ended
from tests.support.remediator.virtual_loop import LoopClock, VirtualLoop
from tests.support.scenario.server.apiserver import OWN, CrashError
from tests.support.scenario.server.border import Process
from tests.support.scenario.server.watches import Watches
from tests.support.scenario.session_cluster import START

__all__ = ["START", "CrashError"]

ROOMY = {
    "maxUnavailable": {"percent": 100, "atMost": 1000},
    "maxNew": {"count": 1000, "window": "10m"},
    "perReason": {"count": 1000, "window": "24h"},
}
"""A budget that is in nobody's way, for scenarios about something else."""

ANSWERED_S = 0.5
"""What others do at a step is answered by the replica within this time."""
LEAPT_FROM_S = 1.5
"""Of a longer step only the end is lived through: nothing is to happen before it, and what falls
due there is done at its beginning."""
_OF_ONE_LIFE = {"_loop", "_process", "_replica", "_collections", "meddler", "before_each"}
_ONLY_CRITICAL = structlog.make_filtering_bound_logger("critical")


def policy_of(**sections: Any) -> Policy:
    """An Enforce policy with the given sections, through the strict reader."""
    loaded = load_policy({"mode": "Enforce", **sections})
    assert isinstance(loaded, Policy), loaded
    return loaded


class World(Watches):
    """The cluster, its clock and one replica."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._loop = VirtualLoop()
        super().__init__()
        at_the_end(self.end)
        # Jitter is the same in every run of a test.
        random.seed(1)
        self._policy = policy or policy_of(budget=ROOMY)
        self._own_node = ""
        self._nobody_took_over = False
        self._worked_at = START
        self._leapt = False
        self._observed = START
        """Since when the leader before ours observed."""
        self.doubt = ""
        """Why nothing may rest on what our controller knows."""
        self.hand_overs: list[float] = []
        self._process: Process | None = None
        self._replica: Replica | None = None

    # ------------------------------------------------------------------ the replica

    @property
    def replica(self) -> Replica:
        """The one that runs; it is started when it is first needed."""
        if self._replica is None:
            self._replica = self._started()
        return self._replica

    def _started(self) -> Replica:
        clock = LoopClock(self._loop, START)
        process = self._process = Process(self, clock, self._loop.stop)
        process.alone = lambda: self._nobody_took_over
        process.hand_over = lambda: self.hand_overs.append(self.now)
        with _quiet():
            replica = Replica(_settings(self._own_node), Access(None), process.border())
            replica.policy.use(self._policy)
        replica.world.doubts[:] = [
            lambda: self.doubt,
            *(self._but_for_a_leap(doubt) for doubt in replica.world.doubts),
        ]
        for part in self._parts(replica):
            self._loop.create_task(part).add_done_callback(process.ended)
        return replica

    def _but_for_a_leap(self, doubt: Callable[[], str]) -> Callable[[], str]:
        return lambda: "" if self._leapt else doubt()

    def _parts(self, replica: Replica) -> list[Coroutine[Any, Any, None]]:
        """What runs in the background: all that acts on nodes under session."""
        return [
            *(cache.run() for cache in replica.caches.followed),
            replica.elector.run(),
            replica.fleet.run(),
            replica.drains.run(),
            replica.drain_conditions.run(),
            replica.loop.run(),
            replica.scout.run(),
            replica.maintenance.run(),
            replica.device_taints.run(),
            self.say_now_and_then(),
        ]

    def end(self) -> None:
        """The process is gone, and so is its world."""
        if not self._loop.is_closed():
            self._stop()
            self._loop.close()
        has_ended(self.end)

    def _stop(self) -> None:
        if self._replica is None:
            return
        for lease in self.own_leases.values():
            lease["spec"]["renewTime"] = format_micro_time(self._worked_at)
        self._observed = self._observing_since()
        assert self._process is not None
        self._process.crashed = True
        with _quiet():
            self._loop.cancel_all()
        self.forget_watches()
        self._replica = self._process = None

    def restart(self, *, knows_before: bool = True) -> None:
        """A new process: nothing in memory survives but the lease, unless that is gone too."""
        self._stop()
        if not knows_before:
            self.own_leases.clear()

    def change_leader(self) -> None:
        """A replica that has watched all along takes over from one that died 15 s ago."""
        since = self._observing_since()
        self.sleep(15)
        self._stop()
        self.replica.world.observing_since = since

    def _observing_since(self) -> float:
        return self._observed if self._replica is None else self._replica.world.observing_since

    def fork(self) -> Self:
        """The same cluster at this moment, apart from this one; its leader has just died."""
        other = object.__new__(type(self))
        memo: dict[int, Any] = {id(self): other, id(self._policy): self._policy}
        # Recorded changes and requests never change.
        memo |= {id(log): log.copy() for log in (self.sent, self.status_changes, self.gets)}
        own = {name: value for name, value in vars(self).items() if name not in _OF_ONE_LIFE}
        vars(other).update(copied(own, memo))
        other._loop = VirtualLoop()
        other._loop.leap(self._loop.time())
        other._collections, other._process, other._replica = {}, None, None
        other._quiet_until = 0.0
        other.meddler = other.before_each = None
        other._observed, other._worked_at = self._observing_since(), self.now
        for lease in other.own_leases.values():
            lease["spec"]["renewTime"] = format_micro_time(self.now)
        at_the_end(other.end)
        return other

    @property
    def policy(self) -> Policy:
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        if self._replica is not None:
            self._replica.policy.use(policy)

    @property
    def own_node(self) -> str:
        return self._own_node

    @own_node.setter
    def own_node(self, name: str) -> None:
        """Our process runs there from now on."""
        self._own_node = name
        if self._replica is not None:
            self.restart()

    @property
    def no_other_replica(self) -> bool:
        return self._nobody_took_over

    @no_other_replica.setter
    def no_other_replica(self, alone: bool) -> None:
        self._nobody_took_over = alone
        if self._replica is not None:
            self._replica.world.no_other_replica = alone

    def phases(self, node: str) -> list[str]:
        """The phases the node's sessions went through, in order."""
        seen: list[str] = []
        for change in self.status_changes:
            if change.node == node and seen[-1:] != [change.phase]:
                seen.append(change.phase)
        return seen

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now, with what our replica remembers; nothing is run for it."""
        convert, known = msgspec.convert, self.replica.world
        healths = self.collection(HEALTHS)
        return replace(
            known.snapshot(),
            nodes={name: convert(n, NodeView) for name, n in self.nodes.items()},
            healths={name: convert(h, HealthView) for name, h in healths.items()},
            quarantines={n: convert(q, QuarantineView) for n, q in self.quarantines.items()},
            records={n: convert(r, RecordView) for n, r in self.records.items()},
            pauses={name: convert(p, PauseView) for name, p in self.pauses.items()},
            maintenance_leases={n: convert(le, LeaseView) for n, le in self.leases.items()},
        )

    def read_object(self, query: ObjectAddress) -> ObjectSeen:
        """What our replica reads of a repair provider's object, and nothing else happens."""
        reading = self.replica.objects.read("", query)
        with pytest.raises(StopIteration):
            reading.send(None)
        return self.replica.objects.known("")[query]

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Let our replica do this now, with all that changed before."""
        self._work(self.now)
        task = self._loop.create_task(work)
        self._work(self.now)
        task.result()

    # ------------------------------------------------------------------ time

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return START + self._loop.time()

    @now.setter
    def now(self, at: float) -> None:
        """Time passes in which nothing happens; our replica has seen that."""
        self._loop.leap(at - START)
        self._leapt = True

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Advance the clock; others act at every step, and our replica whenever it wants to."""
        end = self.now + seconds
        self._work(self.now)
        while self.now < end:
            self._advance(min(end, self.now + step))

    def run_until(self, node: str, phase: str, limit: float = 7200.0, step: float = 1.0) -> None:
        end = self.now + limit
        self._work(self.now)
        while self.now < end:
            if self.phase(node) == phase:
                return
            self._advance(self.now + step)
        raise AssertionError(f"{node} is {self.phase(node)}, not {phase}: {self.message(node)}")

    def fail_until(self, node: str, phase: str, limit: float = 60.0, **step: float) -> None:
        """A fault comes to the node, whose session arrives in the phase."""
        self.incident(node)
        self.run_until(node, phase, limit, **step)

    def heal_until_released(self, node: str, limit: float = 700.0, **step: float) -> None:
        """All faults of the node end, and it is released."""
        self.close_all(node)
        self.run_until(node, "Released", limit, **step)

    def sleep(self, seconds: float) -> None:
        """No controller of gpuward works, the rest of the cluster does."""
        for _ in range(int(seconds)):
            self.now += 1
            self.run_controllers()

    def cycle(self) -> None:
        """What our replica does as soon as it can."""
        self._work(self.now + ANSWERED_S)

    def _advance(self, to: float) -> None:
        """Others act shortly before the end of the step, so that it is answered at its end."""
        if to - self.now > LEAPT_FROM_S:
            self.now = to - LEAPT_FROM_S
        self._work(to - min(ANSWERED_S, (to - self.now) / 2), others_acted=False)
        self.run_controllers()
        self._work(to)

    def _work(self, until: float, *, others_acted: bool = True) -> None:
        with _quiet():
            _, process = self.replica, self._process
            if others_acted:
                self.show()
            if self._leapt:
                self.say_nothing_changed()
                self._loop.work_until(self._loop.time())
                self._leapt = False
            self._loop.work_until(until - START)
        self._worked_at = self.now
        assert process is not None
        if process.crashed:
            raise CrashError
        for error in (*process.surprises, *self._loop.surprises):
            raise error


W = TypeVar("W", bound=World)


def kill_points(world: W, live: Callable[[], object]) -> list[tuple[Write, W]]:
    """Each write of that life, with the cluster as a leader leaves it that dies before it.

    Events are left out: nothing rests on them, so that a process that dies before one leaves what
    one leaves that dies before the write after it.
    """
    found: list[tuple[Write, W]] = []

    def before(write: Write) -> None:
        if not isinstance(write, EmitEvent):
            found.append((write, world.fork()))

    world.before_each = before
    live()
    world.before_each = None
    return found


def _settings(own_node: str) -> RemediatorSettings:
    return RemediatorSettings(
        policy=None,
        kubeconfig=None,
        shadow=False,
        builtin_validation=False,
        listen="",
        namespace=OWN,
        identity="one",
        node_name=own_node,
        page_listen="off",
        page_pool_labels="",
        page_rack_labels="",
        grafana_url="",
        page_hosts="",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a log: it is written thousands of times, and read by nobody."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=_ONLY_CRITICAL)
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)
