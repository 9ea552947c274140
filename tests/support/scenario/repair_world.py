"""A cluster whose drained nodes are repaired: what the policy asks of whom, and who does it how.

A provider follows the Node conditions as a machine health check would, one minute after they
appear, and ends in one of the ways that providers end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.api.evidence import digest, session_of
from rules.api.nodes import QuarantineView
from rules.api.quarantine import RepairAttempt
from rules.api.repair_writes import SetRepairCondition
from rules.api.timestamps import format_time
from rules.api.writes import Write
from rules.session.repair.ladder import under_way
from tests.support.scenario.session_world import ROOMY, CrashError, World, policy_of

NODE = "n0"
RESTART, REPLACE = "GPUNeedsRestart", "GPUNeedsReplace"
STEPS = {
    step: {"adapter": "NodeConditions", "timeout": "30m"}
    for step in ("ResetGPU", "RestartNode", "ReplaceNode")
}


def repair_policy(**repair: Any) -> Any:
    """Enforce, with room in the budget, and repair by Node conditions."""
    return policy_of(budget=ROOMY, repair={"mode": "Auto", "steps": STEPS, **repair})


class RepairWorld(World):
    """A virtual cluster with a provider that does what a request asks."""

    def __init__(self, nodes: int = 5, does: str = "heals", **repair: Any) -> None:
        super().__init__(repair_policy(**repair))
        self.add_nodes(nodes)
        self.does = does
        """heals, reboots (without healing), hangs, lies (an old boot, everything else well)"""
        self.keeps_evidence = True
        """Whether agents write evidence when a mark appears."""
        self.done: list[tuple[str, str]] = []
        """Node and condition of everything the provider did."""
        self.seen_at: dict[tuple[str, str], float] = {}

    def _controllers(self) -> None:
        super()._controllers()
        if self.keeps_evidence:
            for name in self.nodes:
                self.keep_evidence(name)
        for name in list(self.nodes):
            for kind in ("GPUNeedsReset", RESTART, REPLACE):
                self._provide(name, kind)

    def _provide(self, name: str, kind: str) -> None:
        if not self.asks(name, kind):
            self.seen_at.pop((name, kind), None)
            return
        since = self.seen_at.setdefault((name, kind), self.now)
        if since == float("inf") or self.now - since < 60:
            return
        self.seen_at[name, kind] = float("inf")
        self.done.append((name, kind))
        if self.does in {"heals", "reboots"} and kind == RESTART:
            self.reboot(name)
        if self.does == "heals":
            self.close_all(name)

    def keep_evidence(self, node: str, **changes: Any) -> None:
        """The node's agent keeps evidence of the session whose mark it sees."""
        metadata = self.nodes[node]["metadata"]
        session = session_of(metadata["annotations"])
        if not session or session in self.evidences or self.healths[node].get("silent"):
            return
        spec = {"session": session, "nodeName": node, "nodeUID": metadata["uid"]}
        spec |= {"takenAt": format_time(self.now), "kernelLog": "NVRM: Xid 79", **changes}
        spec = {**spec, "sha256": digest(spec)}
        self.evidences[session] = {"metadata": self._meta(session), "spec": spec}

    def asks(self, node: str, kind: str) -> bool:
        """Whether the node carries the condition as True."""
        found = (c for c in self.nodes[node]["status"].get("conditions", ()) if c["type"] == kind)
        return any(c["status"] == "True" for c in found)

    def steps_of(self, node: str = NODE) -> list[tuple[str, str]]:
        """Step and state of every repair of the node's latest session."""
        return [(a.step, a.state) for a in self.session(node).status.repair]

    def running(self) -> dict[str, RepairAttempt]:
        """Steps under way, by node."""
        found = {n: self.session(n) for n in self.nodes if self.sessions(n)}
        return {n: a for n, s in found.items() if (a := _under_way(s)) is not None}

    def leader_dies_at(self, last: Callable[[Write], bool], within_s: float = 120.0) -> None:
        """The leader ends before that write is sent; nobody leads until somebody is started."""

        def dies(write: Write) -> None:
            if last(write):
                raise CrashError

        self.meddler = dies
        with pytest.raises(CrashError):
            self.run(within_s)
        self.meddler = None

    def asked(self) -> list[SetRepairCondition]:
        """Every request that was sent, in order."""
        return [w for w in self.writes(SetRepairCondition) if w.harmful]


def _under_way(session: QuarantineView) -> RepairAttempt | None:
    return under_way(session.status)
