"""What is wrong with a node, for `why`: requests of people, active incidents with their
evidence, causes that only the session knows, and what keeps a fault open after a repair. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from remediator.kubectl.command import quoted
from remediator.kubectl.node_state import NodeLook
from rules.api import compute_domains, messages, names, quarantine, timestamps
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause
from rules.api.timestamps import TimeFormat
from rules.catalog import explanations
from rules.catalog.reason import Action, Severity
from rules.catalog.why_not import WhyNot
from rules.drain.fate import LeftBy
from rules.session import external
from rules.session.causes import EVIDENCE_GANGS, EVIDENCE_GANGS_KEPT, open_causes
from rules.session.repair import ladder
from rules.session.repair.evidence import recorded as recorded_evidence
from rules.session.status import condition
from rules.session.validation import result as test_result
from rules.text import printable

SHOWN_INCIDENTS = 5
SHOWN_GPUS = 4
FABRIC_PENDING: Final = "FabricRegistrationPending"
_REACH: Final = (Action.RESTART_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE)
"""Repairs of the entire node, each of which does what a reset and the ones before it would."""


def cause_lines(look: NodeLook, session: QuarantineView | None, *, wide: bool) -> Iterator[str]:
    """Requests of people, then the active incidents; then causes that only the session knows."""
    status = look.health.status if look.health else HealthStatus()
    active = [incident for incident in (*status.incidents, *look.external) if incident.active]
    causes = session.spec.causes if session else ()
    for cause in causes:
        if cause.source == "Human":
            unit = f", with NVLink domain {cause.nvlink_domain}" if cause.nvlink_domain else ""
            by = cause.by or "an operator"
            yield f"asked for by {by} ({cause.severity}{unit}): {cause.message}"
    shown = active if wide else active[:SHOWN_INCIDENTS]
    at_first = {cause.incident: cause.reason for cause in causes if cause.incident}
    # A manual repair is not proposed while one is under way.
    by_hand = session is None or ladder.under_way(session.status) is None
    for incident in shown:
        further = goes_further(incident, active)
        yield from _incident(
            incident, status, look.times, wide=wide, by_hand=by_hand, further=further,
            at_first=at_first.get(incident.id, ""), node=look.name,
        )  # fmt: skip
        if incident.recommended_action == Action.RECOVER_IMEX_DOMAIN:
            yield from _imex(look)
    if session is not None and _to_be_returned(session, active):
        yield f"for the vendor: kubectl gpuward evidence {look.name}"
    if len(active) > len(shown):
        yield f"and {printable.count(len(active) - len(shown), 'more active incident')}: -o wide"
    ids = {incident.id for incident in active}
    holding = open_causes(session, look.sight) if session is not None else ()
    for cause in causes:
        if cause.source == external.SOURCE and cause in holding and cause.incident not in ids:
            by = "reported by an external detector and not withdrawn"
            yield f"{cause.reason} ({cause.severity}), {by}"
            yield f"  {quoted(cause.message)}"
        elif cause.source == test_result.SOURCE and cause in holding:
            yield f"{cause.reason} ({cause.severity}), holds until something is done about it"
            yield f"  {quoted(cause.message)}"
        elif cause.source != "Human" and cause.incident not in ids:
            yield from _closed(cause, status, look.times)


def _incident(
    incident: IncidentStatus, status: HealthStatus, times: TimeFormat, *, wide: bool,
    by_hand: bool, further: str, at_first: str, node: str,
) -> Iterator[str]:  # fmt: skip
    # A session, its alerts and tables keep the name by which it was opened; a fault of which more
    # is known has another.
    before = f"{at_first}, now " if at_first not in {"", incident.reason} else ""
    often = f", {incident.count} times" if incident.count > 1 else ""
    yield (
        f"{before}{incident.reason} ({incident.severity}), "
        f"first seen {times.ago(incident.first_seen)}{often}"
    )
    gpus = {gpu.uuid: gpu for gpu in status.gpus}
    uuids = incident.gpus if wide else incident.gpus[:SHOWN_GPUS]
    for uuid in uuids:
        yield f"  {_gpu(gpus.get(uuid), uuid, wide=wide)}"
    if not incident.gpus:
        yield from (
            f"  {explanations.device_at(incident.reason, each)}"
            for each in incident.pci[:SHOWN_GPUS]
        )
    if len(incident.gpus) > len(uuids):
        yield f"  and {printable.count(len(incident.gpus) - len(uuids), 'more GPU')}"
    for line in incident.evidence if wide else _in_short(incident.evidence):
        yield f"  {quoted(line)}"
    pci = next((gpus[one].pci for one in incident.gpus if one in gpus), "")
    pci = pci or next(iter(incident.pci), "")
    if external.is_external(incident.id):
        # Its reason is defined in the policy; the detector that reported it closes it.
        action = explanations.repair(incident.recommended_action)
        yield f"  repair: {action}; closes when it is taken back"
        return
    ends = explanations.closes(incident.closes_on)
    remedy = f"that of {further}" if further else explanations.repair(incident.recommended_action)
    yield f"  repair: {remedy}{f'; {ends}' if ends else ''}"
    if incident.reason == FABRIC_PENDING:
        shared = f"kubectl annotate node {node} {names.ANNOTATION_FABRIC_MODE}=shared"
        yield f"  where the fabric is partitioned by design: {shared}"
    if (
        by_hand
        and not further
        and (command := explanations.repair_command(incident.recommended_action, pci))
    ):
        yield "  to repair by hand, run on the node when its GPUs are idle:"
        yield f"  {command}"
    if printable.is_pasteable(incident.reason):
        yield f"  more: gpuward-agent explain {incident.reason}"


def _imex(look: NodeLook) -> Iterator[str]:
    """The command that restarts the IMEX daemons of each ComputeDomain of the node. gpuward does
    not run it: the jobs of the ComputeDomain lose their shared memory.
    """
    for one in look.compute_domains:
        if one.restart_command:
            yield f"  restart of all IMEX daemons of {one.clause(look.name)}; its jobs fail:"
            yield f"  {one.restart_command}"
    if not look.compute_domains:
        yield "  no ComputeDomain has the node; with IMEX on the host, on each node of the domain:"
        yield f"  {compute_domains.HOST_COMMAND}"


def _in_short(evidence: Sequence[str]) -> Sequence[str]:
    """What it began with, mostly the line of the kernel, and what was seen last."""
    return evidence if len(evidence) < 3 else (evidence[0], evidence[-1])


def _to_be_returned(session: QuarantineView, active: Iterable[IncidentStatus]) -> bool:
    """Whether hardware goes back, and there is evidence to go with it."""
    if not recorded_evidence(session.status):
        return False
    left = condition(session.status, "NeedsHuman")
    no_step = left is not None and left.status == "True" and left.reason == WhyNot.NO_STEP_LEFT
    return no_step or any(one.recommended_action == Action.REPLACE_NODE for one in active)


def _gpu(gpu: GpuStatus | None, uuid: str, *, wide: bool) -> str:
    if gpu is None:
        return f"GPU {uuid}"
    parts = [f"GPU {gpu.index}" if gpu.index >= 0 else "GPU", gpu.pci, gpu.product]
    parts += [f"serial {gpu.serial}"] if gpu.serial else []
    parts += [uuid] if wide else []
    return " ".join(part for part in parts if part)


def _closed(cause: Cause, status: HealthStatus, times: TimeFormat) -> Iterator[str]:
    """A cause of the session that is not active any more: kept by it, with its evidence."""
    closed = next((i for i in status.incidents if i.id == cause.incident), None)
    by = f" by {closed.closed_by}" if closed and closed.closed_by else ""
    at = closed.closed_at if closed else ""
    when = f", closed {times.ago(at)}{by}" if at else ""
    yield f"{cause.reason or cause.source} ({cause.severity}){when or ', not active any more'}"
    if cause.message:
        yield f"  {quoted(cause.message)}"


def goes_further(incident: IncidentStatus, active: Sequence[IncidentStatus]) -> str:
    """The reason of an active incident whose repair makes this one's superfluous; "" of none.

    A node that is to be replaced needs no reset of its GPUs.
    """
    mine = _reach(incident.recommended_action)
    if mine is None:
        return ""
    others = [(_reach(one.recommended_action) or 0, one.reason) for one in active]
    furthest, reason = max(others, default=(0, ""))
    return reason if furthest > mine else ""


def _reach(action: str) -> int | None:
    """How far a repair goes; None of what no other repair does."""
    if action in {Action.RESET_GPU, Action.DRAIN_P2P}:
        return 0
    return next((n for n, known in enumerate(_REACH, start=1) if known == action), None)


HEARD_WITHIN_S: Final = 60.0
"""A living agent has judged a new annotation long before: it watches its node, and judges at every
poll (`agent/daemon`), 15 s apart.
"""
_NAMED: Final = 6


def faults(look: NodeLook) -> tuple[IncidentStatus, ...]:
    """The active faults that the agent reported last, without incidents of severity Info."""
    incidents = look.health.status.incidents if look.health is not None else ()
    return tuple(one for one in incidents if one.active and one.severity != Severity.INFO)


def named_faults(look: NodeLook) -> str:
    """`Xid95UncontainedMemoryError (Fatal), ...` of the active faults; "" where there is none."""
    found = faults(look)
    named = ", ".join(f"{one.reason} ({one.severity})" for one in found[:_NAMED])
    return named + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def disagreement(look: NodeLook) -> list[str]:
    """Lines for `why`: a repair was claimed, there was time to see it, and the fault is there."""
    note = (
        look.node.annotations.get(names.ANNOTATION_REPAIRED, "") if look.node is not None else ""
    )
    reported_at = timestamps.parse_time(note.partition(" ")[0])
    if reported_at is None or look.now - reported_at < HEARD_WITHIN_S or look.stale:
        return []
    # What began after the repair is another fault.
    before = any(
        (timestamps.parse_time(one.first_seen) or 0.0) < reported_at for one in faults(look)
    )
    still = f"the agent disagrees with the repair: it still sees {named_faults(look)}"
    return [still] if before else []


def pod_lines(session: QuarantineView | None) -> Iterator[str]:
    """The pods that the drain evicted, their gangs, and the pods that the policy leaves on the
    node, except daemons.
    """
    drain = session.status.drain if session is not None else None
    if session is None or drain is None:
        return
    if left := [note for note in drain.left_by_policy.named if note.why != LeftBy.DAEMON_SET]:
        yield f"left on it by policy: {messages.pod_list(quarantine.pods_of(left))}"
    if drain.evicted and drain.recent:
        more = ", the last" if drain.evicted > len(drain.recent) else ""
        yield f"evicted{more}: {messages.name_list(drain.recent)}"
    for key, label in ((EVIDENCE_GANGS, "gang"), (EVIDENCE_GANGS_KEPT, "when the drain began")):
        found = session.status.evidence.get(key)
        if drain.evicted and isinstance(found, list) and found:
            yield f"{label}: {messages.name_list([str(each) for each in found])}"


def test_lines(session: QuarantineView | None, times: TimeFormat) -> Iterator[str]:
    """The last test under load, and its checks that did not pass."""
    for test in session.status.validation[-1:] if session is not None else ():
        message = f": {test.message}" if test.message else ""
        at = times.ago(test.ended_at or test.started_at)
        yield f"{at} {test.state} by {test.provider}, Job {test.object}{message}"
        for check in test.checks:
            if check.result != "pass":
                gpu = f" on {check.gpu}" if check.gpu else ""
                note = f"; {check.note}" if check.note else ""
                yield f"  {check.result}: {check.id}{gpu}{note}"
