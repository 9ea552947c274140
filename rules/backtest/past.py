"""What happened, read from the records: faults, what others said, what people did, how repairs
went.

What nobody wrote down is not made up: `Past.lacks` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rules.api.health import GpuStatus
from rules.api.names import LABEL_GPUS
from rules.api.nodes import QuarantineView
from rules.api.quarantine import RepairState
from rules.api.timestamps import parse_time
from rules.backtest.acts import NodeWent, PersonAct, acts_of, nodes_that_went
from rules.backtest.archive import Archive, ExportedNode, health_view, record_view, session_view
from rules.backtest.faults import PastFault, faults_of
from rules.backtest.real import RealSession, real_session
from rules.backtest.said import PastSaid, said_of
from rules.session.status import NEW_BOOT

_NO_PODS: Final = (
    "pods of the past are not recorded: a drain takes as long as the real one of that node then, "
    "else it is assumed instant, and gangs do not wait for each other"
)
_ONE_POLICY: Final = (
    "policies of the past are not recorded: where the policy was changed meanwhile, what really "
    "was and the exported policy part for that alone"
)
_REPAIRS: Final = (
    "a repair step or a test goes as the one on record for the same fault went; a harsher step is "
    "assumed to mend what a milder one did, any other to change nothing, a test that nobody made "
    "to pass; a fault that a step mended stays under a policy that asks for none"
)
GPUS: Final = 8
"""Of a node that does not say how many it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Everything that is known of the time before the export."""

    began: float
    ended: float
    nodes: tuple[ExportedNode, ...]
    faults: tuple[PastFault, ...]
    acts: tuple[PersonAct, ...]
    sessions: tuple[RealSession, ...]
    said: tuple[PastSaid, ...] = ()
    went: tuple[NodeWent, ...] = ()
    reboots: tuple[tuple[float, str], ...] = ()
    """New boots that no repair step brought."""
    versions: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Driver, agent and rules version by node."""
    seen_gpus: dict[str, tuple[GpuStatus, ...]] = field(default_factory=dict)
    """The GPUs of each node, as they were first."""
    builtin: bool = False
    """Component `validate` was installed: provider Auto of a policy means Builtin."""
    lacks: tuple[str, ...] = ()

    def gpus(self, node: str) -> int:
        """How many GPUs a node has."""
        return self._gpus().get(node, GPUS)

    def _gpus(self) -> dict[str, int]:
        found = {n.name: n.labels.get(LABEL_GPUS, "") for n in self.nodes}
        return {name: int(text) for name, text in found.items() if text.isdigit()}

    def gpus_of(self, node: str) -> tuple[GpuStatus, ...]:
        """Who they are; () where nobody knows."""
        return self.seen_gpus.get(node, ())

    def uid_of(self, node: str, life: int) -> str:
        """The UID of the Node's first, second... object; "" where it is the exported one's."""
        gone = [went.node_uid for went in self.went if went.node == node]
        return gone[life] if life < len(gone) else ""


def past_of(archive: Archive) -> Past:
    """Read the records."""
    sessions = [session_view(one) for one in archive.sessions]
    ended = parse_time(archive.meta.at)
    lacks = list(archive.meta.lacks)
    held = tuple(real_session(session) for session in sessions)
    faults, forgotten = faults_of(archive, sessions, held)
    real = (*held, *forgotten)
    acts = acts_of(sessions, ask=_asked_people(archive))
    said = said_of(sessions)
    times = [f.began for f in faults] + [a.at for a in acts] + [r.opened for r in real]
    times += [one.began for one in said]
    nodes = {node.name: node for node in archive.nodes}
    gone = sorted(({f.node for f in faults} | {r.node for r in real}) - nodes.keys())
    for name in gone:
        # It was a GPU node, or nobody would have written of it.
        labels = {LABEL_GPUS: str(GPUS)}
        nodes[name] = ExportedNode(name=name, labels=labels, conditions={"Ready": "True"})
    if gone:
        are = "1 node is gone: its" if len(gone) == 1 else f"{len(gone)} nodes are gone: their"
        lacks.append(f"{are} labels, racks and GPUs are not known")
    if any(one.steps or one.tests for one in real):
        lacks.append(_REPAIRS)
    if any(record_view(one).status.lemon for one in archive.records):
        lacks.append(
            "what records had taught by then (steps passed over, tests of lemons) is not replayed"
        )
    lacks += [
        _NO_PODS,
        _ONE_POLICY,
        "nodes are selected and grouped by their labels of the export",
        "cordons, outages and pauses of others are as they were at the export",
        "a fault that a drain would have spared or brought on is not guessed",
    ]
    if ended is None:
        ended = max(times, default=0.0)
        lacks.append("the export does not say when it was made")
    return Past(
        began=min(times, default=ended),
        ended=ended,
        nodes=tuple(nodes[name] for name in sorted(nodes)),
        faults=faults,
        acts=acts,
        sessions=real,
        said=said,
        went=nodes_that_went(sessions),
        reboots=_reboots(sessions, real),
        versions=_versions(archive),
        seen_gpus=_gpus_at_first(archive, real),
        builtin=any(t.attempt.provider == "Builtin" for one in real for t in one.tests),
        lacks=tuple(dict.fromkeys(lacks)),
    )


def _asked_people(archive: Archive) -> bool:
    """Whether each step waited for a person: the exported policy says so, or every session shows
    that a person let its last step go.
    """
    repair = archive.policy.get("repair")
    if isinstance(repair, dict) and "mode" in repair:
        return bool(repair["mode"] == "Ask")
    repaired = [session_view(one) for one in archive.sessions]
    stepped = [s for s in repaired if any(a.asked_at for a in s.status.repair)]
    return bool(stepped) and all(s.spec.repair is not None for s in stepped)


def _versions(archive: Archive) -> dict[str, tuple[str, str, str]]:
    found = {}
    for one in archive.healths:
        status = health_view(one).status
        found[one.name] = (status.driver_version, status.agent_version, status.rules_version)
    return found


def _gpus_at_first(
    archive: Archive, real: Iterable[RealSession]
) -> dict[str, tuple[GpuStatus, ...]]:
    """By the oldest repair step, which wrote them down, else by the verdict."""
    found = {
        one.name: tuple(
            GpuStatus(uuid=gpu.uuid, serial=gpu.serial, index=gpu.index, product=gpu.product)
            for gpu in health_view(one).status.gpus
            if gpu.uuid
        )
        for one in archive.healths
    }
    for session in sorted(real, key=lambda one: one.opened, reverse=True):
        for step in reversed(session.steps):
            if step.before.gpus:
                found[session.node] = tuple(
                    GpuStatus(uuid=gpu.uuid, serial=gpu.serial, index=index)
                    for index, gpu in enumerate(step.before.gpus)
                )
    return found


def _reboots(
    sessions: Iterable[QuarantineView], real: Iterable[RealSession]
) -> tuple[tuple[float, str], ...]:
    """What came with a repair step comes with it again, and is no event of its own."""
    brought = {
        (at, one.node)
        for one in real
        for step in one.steps
        if step.state in {RepairState.PROVEN, RepairState.FAILED, RepairState.ASKED}
        for at in step.boots
    }
    return tuple(
        sorted(
            (at, session.spec.node_name)
            for session in sessions
            for entry in session.status.timeline
            if entry.step == NEW_BOOT
            and (at := parse_time(entry.at)) is not None
            and (at, session.spec.node_name) not in brought
        )
    )
