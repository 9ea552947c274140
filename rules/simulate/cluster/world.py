"""The simulated cluster in virtual time: faults come, people repair, a controller does what it
does.

It knows the truth and keeps the score. A controller learns of a fault only what it shows; people
learn of what is said aloud after an hour, of what nobody says after the time a job's owner needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from rules.api.nodes import NodeView
from rules.judge.workload import Workload as Program
from rules.simulate.cluster.clockwork import Clockwork
from rules.simulate.cluster.objects import newer, node_view, ready
from rules.simulate.cluster.scheduler import Scheduler
from rules.simulate.cluster.sim_node import Controller, SimNode
from rules.simulate.cluster.work import GPUS_PER_NODE, Pod
from rules.simulate.node.machine import DRIVER, Machine
from rules.simulate.node.signs import SIGNS
from rules.simulate.score import Ended, Loss, Score
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.kinds import EFFECTS, Kind
from rules.simulate.truth.year import Fault, Year

BEGIN: Final = 1_790_000_000.0
HOUR_S: Final = 3600.0
UNSEEN_S: Final = 16 * HOUR_S
"""How long a bad node that nothing reports stays in service: 16 h 04 on GKE where nobody watched,
against 1 h 18 where somebody did."""
ALERTED_S: Final = HOUR_S
"""How long people take to act on what is reported (assumed)."""
DIAGNOSIS_S: Final = 2 * HOUR_S
"""How long people look at a node that has nothing, a reboot included (assumed)."""
NOT_READY_S: Final = 40.0
"""Kubernetes' grace for a kubelet's lease."""
CRASH_S: Final = 10.0
"""From the fault to the job's end. Source: 9.4 s after an Xid 79 on GKE."""
SOON_PER_S: Final = 1.0 / (0.1 * 86_400.0)
"""How soon a fault follows that could not come earlier because the node was out."""


class World:
    """One fleet with one controller."""

    def __init__(self, year: Year, controller: Controller[World], dice: Dice) -> None:
        self.clock = Clockwork(BEGIN)
        self.dice = dice
        self.year = year
        self.score = Score(nodes=len(year.nodes), days=year.days)
        self.controller = controller
        self.nodes: dict[str, SimNode] = {}
        for number, name in enumerate(year.nodes):
            machine = Machine(number=number, name=name, uid=f"uid-{name}", made_at=BEGIN)
            view = node_view(name, number, machine.boot_id, DRIVER, BEGIN)
            self.nodes[name] = SimNode(number=number, machine=machine, view=view)
        self.by_number = tuple(self.nodes.values())
        self.work = Scheduler(self)

    @property
    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self.clock.now

    def run(self) -> Score:
        """Play it all."""
        self.controller.start(self)
        self.work.start()
        for fault in self.year.faults:
            self.clock.at(BEGIN + fault.start, lambda fault=fault: self._begins(fault))  # type: ignore[misc]
        for one in self.year.blindness:
            node = self.by_number[one.node]

            def turn(node: SimNode, agent: bool, over: bool) -> None:
                self.controller.blind(node, agent=agent, over=over)

            at = BEGIN + one.start
            self.clock.at(at, lambda n=node, a=one.agent: turn(n, a, False))  # type: ignore[misc]
            self.clock.at(at + one.seconds, lambda n=node, a=one.agent: turn(n, a, True))  # type: ignore[misc]
        self.clock.run(BEGIN + self.year.days * 86_400.0)
        self._close_books()
        self.controller.finish()
        return self.score

    # ------------------------------------------------------------------ faults

    def _begins(self, fault: Fault) -> None:
        node = self.by_number[fault.node]
        if node.fault is not None or node.out or node.view.ready != "True":
            node.later.append(fault)
            return
        node.fault = fault = begun_at(fault, self.now - BEGIN)
        self.score.faults[fault.kind] += 1
        signs, effect = SIGNS[fault.kind], EFFECTS[fault.kind]
        node.machine.show(signs, fault.gpu)
        for after, text in signs.lines:
            self.clock.after(
                after,
                lambda text=text: self.controller.line(node, text, fault.gpu, None),  # type: ignore[misc]
            )
        if signs.values or signs.gone or signs.port_down:
            self.clock.after(1.0, lambda: self.controller.reads(node))
        if effect.kills:
            self.clock.after(CRASH_S, lambda: self._kills(node, fault, Ended.FAULT))
        if effect.slows and node.pod is not None:
            self.work.slowed(node.pod.owner)
        if signs.host_down:
            self.clock.after(NOT_READY_S, lambda: self._not_ready(node, fault))
        if fault.kind is Kind.BAD_DRIVER:
            self.clock.after(fault.hours * HOUR_S, lambda: self._rolled_back(node, fault))
        elif fault.kind is Kind.TESTED:
            self._noticed(node, fault, 0.0)
        elif not effect.healthy:
            self._noticed(node, fault, ALERTED_S if signs.host_down else UNSEEN_S)

    def _kills(self, node: SimNode, fault: Fault, how: Ended) -> None:
        if node.fault is fault and node.repair_from is None:
            self.work.ends_on(node, how)

    def starts_on(self, node: SimNode) -> None:
        """A pod began to run there: on a bad node it dies again."""
        fault = node.fault
        if fault is None:
            return
        effect = EFFECTS[fault.kind]
        if effect.keeps_killing:
            pod = node.pod

            def dies() -> None:
                if node.pod is pod:
                    self._kills(node, fault, Ended.FAULT_AGAIN)

            self.clock.after(CRASH_S + 300.0, dies)
        if effect.slows and node.pod is not None:
            self.work.slowed(node.pod.owner)

    def _not_ready(self, node: SimNode, fault: Fault) -> None:
        if node.fault is fault and node.repair_from is None:
            self.kubelet(node, "Unknown")

    def kubelet(self, node: SimNode, word: str) -> None:
        """The node's Ready condition changes."""
        others = tuple(c for c in node.view.status.conditions if c.type != "Ready")
        conditions = (ready(word, self.now), *others)
        status = msgspec.structs.replace(node.view.status, conditions=conditions)
        self.show(node, newer(node.view, status=status))
        self.controller.readiness(node)

    def show(self, node: SimNode, view: NodeView) -> None:
        """The Node object is another one now."""
        was = node.open
        node.view = view
        self.controller.shown(node)
        if node.open != was:
            self.work.changed(node)

    # ------------------------------------------------------------------ people

    def alert(self, node: SimNode) -> None:
        """Something tells people of the node: they act within the hour."""
        fault = node.fault
        if fault is None or EFFECTS[fault.kind].healthy or fault.kind is Kind.BAD_DRIVER:
            # Of a whole fleet at once nobody takes node by node: the driver is rolled back.
            return
        self._noticed(node, fault, ALERTED_S)

    def _rolled_back(self, node: SimNode, fault: Fault) -> None:
        """The driver of before is back on every node, in service or not."""
        if node.fault is fault:
            if node.repair_from is None:
                self._goes_out(fault)
                node.repair_from = self.now
            self._repaired(node)

    def _noticed(self, node: SimNode, fault: Fault, seconds: float) -> None:
        def take() -> None:
            if node.fault is fault and not node.out:
                self.score.by_people += 1
                self._goes_out(fault)
                self._mark_idle(node)
                self._by_hand(node, cordoned=True)
                self.work.ends_on(node, Ended.PEOPLE)
                self.hand_over(node)

        self.clock.after(seconds, take)

    def _by_hand(self, node: SimNode, *, cordoned: bool) -> None:
        """People cordon or uncordon the node."""
        node.by_people = cordoned
        spec = msgspec.structs.replace(node.view.spec, unschedulable=cordoned)
        self.show(node, newer(node.view, spec=spec))
        self.controller.by_hand(node)

    def hand_over(self, node: SimNode) -> None:
        """The node is empty: people repair it, or find that it has nothing."""
        if node.repair_from is not None:
            return
        self._settle_idle(node)
        node.repair_from = self.now
        fault = node.fault
        healthy = fault is None or EFFECTS[fault.kind].healthy
        self.clock.after(
            DIAGNOSIS_S if healthy or fault is None else fault.hours * HOUR_S,
            lambda: self._repaired(node),
        )

    def tries(
        self, node: SimNode, seconds: float | None, rebooted: Callable[[SimNode], None]
    ) -> None:
        """A step of a repair; without `seconds` the node is replaced. A short one helps where the
        whole repair is a matter of an hour; where it does not, the node has booted for nothing.
        """
        fault = node.fault
        helps = fault is None or EFFECTS[fault.kind].healthy or fault.hours < 1.0
        if seconds is None:
            self.hand_over(node)
            return
        self._settle_idle(node)
        node.repair_from = self.now

        def over() -> None:
            if node.repair_from is None:
                return
            if helps:
                self._repaired(node)
                return
            self.score.lost[Loss.REPAIR] += _gpu_hours(self.now - node.repair_from)
            node.repair_from = None
            self._mark_idle(node)
            node.machine.rebooted(self.now)
            self._boots(node)
            rebooted(node)

        self.clock.after(seconds, over)

    def _boots(self, node: SimNode) -> None:
        info = msgspec.structs.replace(node.view.status.node_info, boot_id=node.machine.boot_id)
        others = tuple(c for c in node.view.status.conditions if c.type != "Ready")
        status = msgspec.structs.replace(
            node.view.status, node_info=info, conditions=(ready("True", self.now), *others)
        )
        self.show(node, newer(node.view, status=status))

    def _repaired(self, node: SimNode) -> None:
        if node.repair_from is None:
            return
        self.score.lost[Loss.REPAIR] += _gpu_hours(self.now - node.repair_from)
        node.repair_from = None
        fault, node.fault = node.fault, None
        node.machine.repaired(self.now)
        if node.taken_at is not None:
            self._mark_idle(node)
        elif node.by_people:
            self._by_hand(node, cordoned=False)
        self._boots(node)
        if fault is not None and SIGNS[fault.kind].repaired_by_people:
            node.machine.people_say_repaired(self.now)
        self.controller.repaired(node)
        self._returned(node)

    def _returned(self, node: SimNode) -> None:
        """What could not hit it while it was out hits it soon."""
        if node.out:
            return
        late, node.later = node.later, []
        for fault in late:
            self.clock.after(self.dice.expovariate(SOON_PER_S), lambda f=fault: self._begins(f))  # type: ignore[misc]

    # ------------------------------------------------------------------ what a controller does

    def taken(self, node: SimNode) -> None:
        """The controller takes the node out of service."""
        if node.taken_at is not None:
            return
        by_people = node.out
        node.taken_at = self.now
        score, fault = self.score, node.fault
        score.taken += 1
        score.most_out = max(
            score.most_out, sum(one.taken_at is not None for one in self.by_number)
        )
        if node.pod is None:
            self._mark_idle(node)
        if fault is None or EFFECTS[fault.kind].healthy:
            score.wrong += 1
            return
        began = BEGIN + fault.start
        score.found[fault.kind] += 1
        score.delays.setdefault(fault.kind, []).append(self.now - began)
        if not by_people:
            self._goes_out(fault)
        if not EFFECTS[fault.kind].keeps_killing:
            score.needless += 1

    def drains(self, node: SimNode) -> None:
        """The controller tells pods of the node to go; however often, it is one drain."""
        if node.told:
            return
        node.told = True
        if node.fault is None or EFFECTS[node.fault.kind].healthy:
            self.score.wrong_drains += 1

    def given_back(self, node: SimNode) -> None:
        """The controller gives the node back."""
        if node.taken_at is None:
            return
        self._settle_idle(node)
        node.taken_at = None
        node.told = False
        if not node.by_people:
            node.repair_from = None
        elif node.repair_from is None:
            # Their own cordon they take off when the controller is done with the node.
            self._by_hand(node, cordoned=False)
        self._returned(node)

    def evict(self, pod: Pod, *, force: bool = False) -> bool:
        """The Eviction API, or a deletion; False where a budget refuses."""
        allowed = self.work.allows(pod)
        if not allowed and not force:
            self.score.refused += 1
            return False
        if not allowed:
            self.score.bypassed += 1
        self.score.evictions += 1
        self.work.evicted(pod)
        return True

    def prints(self, node: SimNode, text: str, gpu: int, program: Program) -> None:
        """The driver prints a line about a program on one GPU."""
        self.controller.line(node, text, gpu, program)

    def emptied(self, node: SimNode) -> None:
        """Its pod is gone."""
        if node.out:
            self._mark_idle(node)
        self.controller.emptied(node)

    # ------------------------------------------------------------------ the books

    def _goes_out(self, fault: Fault) -> None:
        """GPUs that did not work were no use until now."""
        if EFFECTS[fault.kind].keeps_killing:
            self.score.lost[Loss.FAULT] += _gpu_hours(self.now - BEGIN - fault.start)

    def _mark_idle(self, node: SimNode) -> None:
        """From now on, unless people have it in their hands already: an hour is lost once."""
        if node.idle_from is None and node.repair_from is None:
            node.idle_from = self.now

    def _settle_idle(self, node: SimNode) -> None:
        if node.idle_from is not None:
            self.score.lost[Loss.DRAIN] += _gpu_hours(self.now - node.idle_from)
            node.idle_from = None

    def _close_books(self) -> None:
        for node in self.by_number:
            self._settle_idle(node)
            if node.repair_from is not None:
                self.score.lost[Loss.REPAIR] += _gpu_hours(self.now - node.repair_from)
        self.work.close_books()


def begun_at(fault: Fault, start: float) -> Fault:
    """The fault as it began, which may be later than planned."""
    return Fault(
        number=fault.number,
        node=fault.node,
        klass=fault.klass,
        kind=fault.kind,
        gpu=fault.gpu,
        start=start,
        hours=fault.hours,
    )


def _gpu_hours(seconds: float) -> float:
    return seconds / HOUR_S * GPUS_PER_NODE
