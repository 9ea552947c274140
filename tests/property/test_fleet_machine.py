"""Whatever happens to a fleet, in whatever order: the promises hold.

A Hypothesis state machine plays faults, repairs, people, owners, outages and crashes against the
replica in the virtual cluster of the scenario tests, and checks after every step what must
be true always: never over budget, never a foreign cordon undone, never a pod evicted that is not
on the node, every quarantine owned, every wait explained, nothing touched in Shadow.
"""

import math
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rules.api import writes as d
from rules.api.quarantine_taint import own_taint, read_note
from rules.drain.node_room import being_built
from rules.fleet.memory import FleetMemory
from rules.fleet.turns import judge_fleet
from rules.session.history import counts_until
from rules.session.observation import is_open
from tests.support.scenario.examples import examples
from tests.support.scenario.session_world import CrashError, World, policy_of

NODES = [f"{rack}{index}" for rack in "ab" for index in range(6)]
PERCENT = 25
SHADOW_KINDS = (d.CreateSession, d.PatchSessionSpec, d.WriteSessionStatus, d.EmitEvent)

nodes = st.sampled_from(NODES)


def _kept(views: dict[str, Any], name: str, view: Any) -> Any:
    """The view from the cache if it is equal."""
    if views.get(name) != view:
        views[name] = view
    return views[name]


class Fleet(RuleBasedStateMachine):
    @initialize(shadow=st.booleans(), parts=st.sampled_from(["CordonAndTaint", "Taint", "Cordon"]))
    def start(self, shadow: bool, parts: str) -> None:
        policy = policy_of(
            mode="Shadow" if shadow else "Enforce",
            mark=parts,
            budget={
                "maxUnavailable": {"percent": PERCENT, "atMost": 50},
                "per": ["rack"],
                "maxNew": {"count": 4, "window": "2m"},
                "perReason": {"count": 6, "window": "10m"},
                "cooldown": "1m",
            },
            release={"healthyFor": "30s", "cancelExpiry": "5m"},
            drain={"settle": "2s", "gangWindow": "5s"},
        )
        self.shadow = shadow
        self.world = World(policy)
        self.memory = FleetMemory()
        self.views: dict[str, Any] = {}
        """The last view of every object: the same one while nothing changes, as in a cache."""
        self.cordoned: set[str] = set()
        """Nodes an operator cordoned while they were not ours."""
        for name in NODES:
            self.world.add_node(name, labels={"rack": name[0]})
            self.world.add_pod(f"web-{name}", name, labels={"app": name[0]})
        self.world.add_pdb("some", app="a", minAvailable=3)
        self.world.meddler = self._before
        self.world.run(70, step=35)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()

    # ------------------------------------------------------------------ what is sent

    def _before(self, write: d.Write) -> None:
        """Called with every write just before it is applied."""
        if self.shadow:
            dry = isinstance(write, d.EvictPod) and write.dry_run
            assert dry or isinstance(write, SHADOW_KINDS), f"{write} in Shadow"
        if isinstance(write, d.TaintAndCordon):
            self._within_budget(write)
        if isinstance(write, d.RemoveTaint) and write.node in self.cordoned:
            assert "unschedulable" not in write.patch.get("spec", {}), "a foreign cordon undone"

    def _within_budget(self, write: d.TaintAndCordon) -> None:
        counted = {
            n for n in self.world.nodes if not being_built(self.world.node(n), self.world.now)
        }
        lost = {name for name in counted if self._lost(name)}
        note = read_note(self.world.node(write.node))
        if write.node in lost or (note is not None and note.session == write.session):
            return
        if any(c.source == "Human" for c in self.world.session(write.node).spec.causes):
            return
        for rack in ("", write.node[0]):
            total = [n for n in counted if n.startswith(rack)]
            gone = [n for n in lost if n.startswith(rack)]
            limit = max(1, math.floor(len(total) * PERCENT / 100))
            assert len(gone) + 1 <= limit, f"{write.node} over the budget of {rack or 'all'}"

    def _lost(self, name: str) -> bool:
        node = self.world.node(name)
        return node.ready != "True" or node.spec.unschedulable or own_taint(node) is not None

    # ------------------------------------------------------------------ what happens

    @rule(node=nodes, reason=st.sampled_from(["Xid79", "RowRemap", "Thermal"]), bad=st.booleans())
    def fault(self, node: str, reason: str, bad: bool) -> None:
        self.world.incident(
            node,
            reason,
            severity="Fatal" if bad else "Degraded",
            level="Drain" if bad else "Cordon",
        )
        self._go(1)

    @rule(node=nodes)
    def repair(self, node: str) -> None:
        self.world.close_all(node)
        self._go(1)

    @rule(seconds=st.sampled_from([1, 5, 40, 200]))
    def time_passes(self, seconds: int) -> None:
        self._go(seconds)

    @rule(node=nodes)
    def an_operator_cordons(self, node: str) -> None:
        if self.world.is_quarantined(node):
            return  # kubectl sends nothing for a cordoned node; a tainted one is covered below
        self.world.cordon(node)
        self.cordoned.add(node)
        self._go(1)

    @rule(node=nodes)
    def an_operator_uncordons(self, node: str) -> None:
        self.world.cordon(node, on=False)
        self.cordoned.discard(node)
        self._go(1)

    @rule(node=nodes)
    def an_operator_requests(self, node: str) -> None:
        name = f"by-hand-{node}"
        if name not in self.world.quarantines:
            self.world.open_by_operator(node, name)
        self._go(1)

    @rule(node=nodes)
    def an_operator_releases(self, node: str) -> None:
        for session in self.world.sessions(node):
            if is_open(session):
                item = self.world.quarantines[session.name]
                item["spec"]["release"] = {"by": "ada"}
                self.world.touch(item)
        self._go(1)

    @rule(node=nodes)
    def an_operator_deletes_the_sessions(self, node: str) -> None:
        for session in self.world.sessions(node):
            del self.world.quarantines[session.name]
        # After two seconds it is known that an operator asked for it.
        self._go(3)

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        if on:
            self.world.pause()
        else:
            self.world.pauses.clear()
        self._go(1)

    @rule(node=nodes)
    def reboot(self, node: str) -> None:
        self.world.reboot(node)
        self._go(1)

    @rule(node=nodes)
    def replaced(self, node: str) -> None:
        self.world.add_node(node, labels={"rack": node[0]})
        self.cordoned.discard(node)
        self._go(1)

    @rule(node=nodes, status=st.sampled_from(["True", "False", "Unknown"]))
    def readiness(self, node: str, status: str) -> None:
        self.world.set_ready(node, status)
        self._go(1)

    @rule(node=nodes, silent=st.booleans())
    def agent(self, node: str, silent: bool) -> None:
        if silent:
            self.world.silence(node)
        else:
            self.world.speak(node)
        self._go(1)

    @rule(node=nodes, state=st.sampled_from(["drain-required", "upgrade-done"]))
    def upgrade(self, node: str, state: str) -> None:
        self.world.label(node, **{"nvidia.com__gpu_driver_upgrade_state": state})
        self._go(1)

    @rule(node=nodes)
    def foreign_taint(self, node: str) -> None:
        self.world.taint(node, "someone/else")
        self._go(1)

    @rule(node=nodes, after=st.integers(0, 6))
    def crash(self, node: str, after: int) -> None:
        """The controller dies between two writes, right after something happened."""
        self.world.crash_after = after
        self.world.incident(node)
        try:
            self._go(20)
        except CrashError:
            self.world.restart()
        self.world.crash_after = None
        self._go(1)

    def _go(self, seconds: int) -> None:
        self.world.run(seconds, step=max(1, seconds // 20))

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def what_is_remembered_changes_no_health_status(self) -> None:
        """Judged by what changed since the last time, and by what still counts: the same."""
        snapshot = self.world.snapshot()
        fresh = judge_fleet(snapshot)
        nodes = {name: _kept(self.views, f"node {name}", v) for name, v in snapshot.nodes.items()}
        sessions = {n: _kept(self.views, n, v) for n, v in snapshot.quarantines.items()}
        healths = {n: _kept(self.views, f"health {n}", v) for n, v in snapshot.healths.items()}
        counting = {
            name: session
            for name, session in sessions.items()
            if counts_until(session, snapshot.policy) > snapshot.now
        }
        remembered = replace(
            snapshot, nodes=nodes, quarantines=sessions, healths=healths, counting=counting
        )
        assert judge_fleet(remembered, self.memory) == fresh

    @invariant()
    def every_taint_is_owned(self) -> None:
        for name in self.world.nodes if hasattr(self, "world") else ():
            note = read_note(self.world.node(name))
            if note is None:
                assert own_taint(self.world.node(name)) is None, f"{name}: a taint without a note"
                continue
            session = self.world.quarantines.get(note.session)
            assert session is not None, f"{name} carries the taint and cordon of no session"
            phase = session.get("status", {}).get("phase")
            assert phase not in {"Released", "Cancelled", "NodeGone"}, f"{name}: {phase}"

    @invariant()
    def one_open_session_per_node(self) -> None:
        for name in NODES:
            if hasattr(self, "world"):
                assert sum(map(is_open, self.world.sessions(name))) <= 1

    @invariant()
    def every_wait_is_explained(self) -> None:
        for name in NODES if hasattr(self, "world") else ():
            for session in self.world.sessions(name):
                status = session.status
                assert status.message, f"{name}: {status.phase} has no message"
                true = [c for c in status.conditions if c.status == "True"]
                assert all(c.reason and c.message for c in true), true
                if status.phase == "Pending":
                    kinds = {c.type for c in true}
                    assert kinds & {"Blocked", "Paused"}, f"{name} waits without a reason"

    @invariant()
    def foreign_taints_stay(self) -> None:
        if hasattr(self, "world"):
            for node in self.world.nodes.values():
                taints = [t["key"] for t in node["spec"].get("taints", [])]
                assert taints.count("gpuward.io/quarantine") <= 1

    @invariant()
    def it_comes_to_rest(self) -> None:
        if hasattr(self, "world"):
            for _ in range(
                4
            ):  # what one node returns to service, another may take, one cycle later
                before = len(self.world.sent)
                self.world.cycle()
            kinds = (d.TaintAndCordon, d.RemoveTaint, d.CreateSession, d.PatchSessionSpec)
            again = [w for _, w, _, _ in self.world.sent[before:] if isinstance(w, kinds)]
            assert again == [], (
                "a cycle at the same moment taints and cordons, unmarks and opens nothing"
            )


Fleet.TestCase.settings = settings(
    max_examples=examples(10),
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestFleet = Fleet.TestCase
