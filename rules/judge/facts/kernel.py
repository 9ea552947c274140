"""Turn lines of the kernel log into findings, and detect repeated Xid 13 and 31.

The meaning of an Xid is in `rules.catalog.xid`; `judge.recording` turns findings into incidents.
The text of a line is kept as evidence only.

Xid 13 and 31 are program errors until one GPU repeats them at the same place. Their lines are
counted in bursts. A burst is assessed shortly after it began, when the lines of other GPUs are
read, too. If another GPU of the node shows the same, the hardware is not at fault.
"""

from typing import Final

from msgspec.structs import replace

from rules.api.health import MigInstance, NvidiaAction
from rules.catalog import reasons
from rules.catalog.reason import BY_HUMAN, SILENCE_3M, Action, Level, Reason, Severity
from rules.catalog.signals import Signal
from rules.catalog.xid import (
    PLACED_XID,
    REASON_OF_KIND,
    RECOVERY_ACTION_XID,
    REPEATING_XIDS,
    nvidia_buckets,
    reason_for_line,
    reason_for_xid,
)
from rules.judge import closing, observation, recording
from rules.judge.burst import being_judged
from rules.judge.facts import readings, sources
from rules.judge.incident import NO_GPU_ID, PAST_CLOCK_S, Finding, GpuId, Scope, with_conclusion
from rules.judge.observation import KernelLineSeen, SourceName
from rules.judge.state import (
    MAX_ADDRESSES,
    MAX_REPEATS,
    Judging,
    NodeState,
    Repeat,
    find_gpu,
    functions_at,
    identify,
    with_gpu,
)
from rules.kernel_log.record import KernelLine, LineKind
from rules.text import pci_address

ROW_REMAP_XIDS: Final = frozenset({63, 177})
"""A row or bank will be remapped at the next reset."""

_REMAP_XIDS: Final = frozenset({63, 64})

_NO_PROOF: Final = frozenset(
    {
        LineKind.RM_INIT_FAILED,
        LineKind.PROBE_FAILED,
        LineKind.RESET_REQUIRED,
        LineKind.GSP_ERROR,
        LineKind.NVLINK_DETECT,
        LineKind.D3COLD,
    }
)
"""Lines that healthy GPUs also print: they count only if current data confirms them."""

_PCI_KINDS: Final = frozenset({LineKind.PCIE_BANDWIDTH, LineKind.D3COLD})
"""Lines about any PCI device: used only if the device is a GPU."""

_PORT_KINDS: Final = frozenset({LineKind.AER, LineKind.DPC})
"""Lines about a GPU or a bridge above one."""

_FATALITY: Final = {True: "Fatal", False: "Non-fatal", None: ""}


def judge_line(on: Judging, record: KernelLineSeen) -> Judging:
    """Take one recognized record; a record that was already taken changes nothing.

    Records from syslog(2) have no sequence number (-1) and never move the cursor. Old ones are
    recognized by their content (`judge.recording`).
    """
    if record.sequence >= 0:
        if record.boot_id == on.state.cursor_boot and record.sequence <= on.state.cursor_seq:
            return on
        on = on.replace(cursor_boot=record.boot_id, cursor_seq=record.sequence)
    line = record.line
    match line.kind:
        case LineKind.GPU_UUID:
            return on.then(_learn_address(on.state, line))
        case LineKind.DRIVER_LOAD:
            return _was_reset(on, record)
        case LineKind.XID:
            return _judge_xid(on, record)
        case LineKind.SXID:
            return _judge_sxid(on, record)
        case _:
            return _judge_other(on, record)


def _judge_xid(on: Judging, record: KernelLineSeen) -> Judging:
    line = record.line
    if line.xid is None:
        return on
    gpu_id = identify(on.state, line.gpu_uuid or "", line.pci or "")
    if line.xid == RECOVERY_ACTION_XID and line.recovery_to is not None:
        return _judge_action(on, record, line.recovery_to)
    if line.xid == RECOVERY_ACTION_XID and not record.lookback:
        on = sources.hint_to_poll(on, gpu_id)  # the line does not name the recovery action
    buckets = nvidia_buckets(line.xid, line.registers)
    row = reason_for_line(line, on.state.branch)
    view = find_gpu(on.state, *gpu_id)
    if line.xid in _REMAP_XIDS and view is not None and view.values.get(Signal.REMAP_FAILURE):
        row = reason_for_xid(line.xid, driver=on.state.branch, remap_failed=True)
    on, row = readings.count_link_fault(on, line, row, gpu_id, record.at)
    if not record.lookback:
        on = count_repeat(on, line, gpu_id, record.at)
    finding = _finding(on.state, record, row)
    finding = replace(
        finding,
        xid=line.xid,
        caused_by=line.caused_by,
        asks=line.asks,
        nvidia=NvidiaAction(immediate=buckets[0], investigatory=buckets[1]) if buckets else None,
    )
    if line.xid in ROW_REMAP_XIDS and not record.lookback:
        on = on.then(_note_pending(on.state, gpu_id))
    return recording.record(on, finding)


def _judge_action(on: Judging, record: KernelLineSeen, value: int) -> Judging:
    line = record.line
    gpu_id = identify(on.state, line.gpu_uuid or "", line.pci or "")
    finding = recording.finding_for_action(
        on.state, value, record.at, SourceName.KERNEL_LOG, line.text
    )
    finding = replace(
        finding,
        xid=line.xid,
        sequence=_sequence(record),
        lookback=record.lookback,
        gpu_id=gpu_id,
    )
    on = recording.take_answer(on, gpu_id, value, finding=finding)
    if value != reasons.NO_ACTION:
        return on
    return _was_reset(on, record, gpu_id)


def _was_reset(on: Judging, record: KernelLineSeen, gpu_id: GpuId = NO_GPU_ID) -> Judging:
    """Record the reset that a line reports.

    A numbered line from before the agent's start is newer than everything that an earlier agent
    published. Its time is from the kernel's clock, which may be behind.
    """
    if not record.lookback:
        return closing.note_reset(on, gpu_id)
    slack_s = PAST_CLOCK_S if record.sequence >= 0 else 0.0
    return closing.note_reset(on, gpu_id, since=record.at, slack_s=slack_s)


def _judge_sxid(on: Judging, record: KernelLineSeen) -> Judging:
    line = record.line
    row = reasons.reason_for_sxid(line.sxid_fatal)
    fatality = _FATALITY[line.sxid_fatal]
    evidence = line.text if fatality in line.text else f"{fatality}: {line.text}"
    finding = _finding(on.state, record, row)
    return recording.record(on, replace(finding, scope=Scope.NODE, evidence=evidence))


def _judge_other(on: Judging, record: KernelLineSeen) -> Judging:
    line = record.line
    if line.erring and line.erring != line.pci:
        # A port forwards the error of a device below it, which may be another one than the GPU.
        line = replace(line, pci=line.erring)
        record = replace(record, line=line)
    if line.kind in _PCI_KINDS and not _is_gpu(on.state, line.pci or ""):
        return on
    if line.kind is LineKind.AER:
        reason = "PcieAerCorrected" if line.detail == "corrected" else "PcieAerUncorrected"
    else:
        reason = REASON_OF_KIND.get(line.kind, "")
    if not reason:
        return on
    row = reasons.REASONS[reason]
    if line.kind is LineKind.GSP_ERROR and line.detail is not None:
        # The first lines of a hung GSP; laptops print them for hours without any problem.
        row = replace(being_judged(row), closes_on=SILENCE_3M)
    finding = replace(_finding(on.state, record, row), needs_present=line.kind in _NO_PROOF)
    if line.kind in _PORT_KINDS and not _is_gpu(on.state, line.pci or ""):
        return _judge_port(on, line, finding)
    return recording.record(on, finding)


def _judge_port(on: Judging, line: KernelLine, finding: Finding) -> Judging:
    """Record the line of a bridge, for the GPUs below it."""
    contained = line.kind is LineKind.DPC
    found = recording.about_gpus_below(on.state, finding, line.pci or "", each=contained)
    if contained and not found:
        # No known GPU is below the port; if one is cut off, it will be reported as missing.
        row = replace(being_judged(finding.row), closes_on=SILENCE_3M)
        found = (replace(finding, row=row),)
    for one in found:
        on = recording.record(on, one)
    return on


def _finding(state: NodeState, record: KernelLineSeen, row: Reason) -> Finding:
    line = record.line
    gpu_id = identify(state, line.gpu_uuid or "", line.pci or "")
    mig = None
    if line.mig_gi is not None or line.mig_ci is not None:
        mig = MigInstance(gi=line.mig_gi, ci=line.mig_ci)
    return Finding(
        at=record.at,
        row=row,
        gpu_id=gpu_id,
        source=SourceName.KERNEL_LOG,
        evidence=line.text,
        sequence=_sequence(record),
        lookback=record.lookback,
        mig=mig,
        links=(line.link,) if line.link is not None and line.link >= 0 else (),
        scope=Scope.GPU if any(gpu_id) else Scope.NODE,
    )


def _sequence(record: KernelLineSeen) -> int | None:
    return record.sequence if record.sequence >= 0 else None


def _learn_address(state: NodeState, line: KernelLine) -> NodeState:
    """Return the state with the driver's address of a UUID, which is needed when NVML fails."""
    if not line.pci or not line.gpu_uuid:
        return state
    address = pci_address.plain_address(line.pci)
    known = state.address_uuids
    if address not in known and len(known) >= MAX_ADDRESSES:
        return state
    return replace(state, address_uuids={**known, address: line.gpu_uuid})


def _note_pending(state: NodeState, gpu_id: GpuId) -> NodeState:
    view = find_gpu(state, *gpu_id)
    return with_gpu(state, replace(view, reset_pending=True)) if view else state


def _is_gpu(state: NodeState, pci: str) -> bool:
    if not pci:
        return False
    address = pci_address.plain_address(pci)
    return find_gpu(state, "", address) is not None or any(
        function.vendor == observation.NVIDIA_VENDOR
        and function.device_class in observation.GPU_CLASSES
        for function in functions_at(state, address)
    )


_AT_A_PLACE: Final = f"Xid {PLACED_XID} at "
_MAX_PLACES: Final = 2
"""A burst at more than one place points at none of them."""
_HOUR_S: Final = 3600


def count_repeat(on: Judging, line: KernelLine, gpu_id: GpuId, at: float) -> Judging:
    """Start a burst if there was no line of this Xid for three minutes, else add to it.

    The place and the process may be in different lines.
    """
    xid = line.xid
    if xid not in REPEATING_XIDS or not any(gpu_id):
        return on
    place = () if line.gpc is None or line.tpc is None else ((line.gpc, line.tpc),)
    for known in on.state.repeats:
        if known.xid == xid and any(
            a and a == b for a, b in zip(known.gpu_id, gpu_id, strict=True)
        ):
            places = tuple(dict.fromkeys((*known.places, *place)))[:_MAX_PLACES]
            more = replace(known, places=places)
            return on.replace(repeats=tuple(more if r is known else r for r in on.state.repeats))
    goes_on = any(
        incident.active
        and incident.concerns(gpu_id)
        and xid in incident.xids
        and abs(at - incident.last_seen) < SILENCE_3M.silence_s
        for incident in on.state.incidents
    )
    if goes_on:
        return on
    on = on.note(gpu_id, f"Xid {xid}", at, "RepeatWindow", apart_s=SILENCE_3M.silence_s)
    due_at = on.now + on.thresholds["ContextDelay"].value
    begun = Repeat(xid=xid, gpu_id=gpu_id, at=at, due_at=due_at, places=place)
    return on.replace(repeats=(*on.state.repeats, begun)[-MAX_REPEATS:])


def judge_repeats(on: Judging) -> Judging:
    """Assess the bursts that are due; the ledger counts them, because it outlasts the agent."""
    delay_s = on.thresholds["ContextDelay"].value
    # No wait after the clock was set back.
    due = [each for each in on.state.repeats if not 0 < each.due_at - on.now <= delay_s]
    if not due:
        return on
    on = on.replace(repeats=tuple(each for each in on.state.repeats if each not in due))
    for each in due:
        if each.xid == PLACED_XID and (what := _place_of(each)):
            apart_s = SILENCE_3M.silence_s
            on = on.note(
                each.gpu_id, what, each.at, "RepeatWindow", apart_s=apart_s, family=_AT_A_PLACE
            )
    for each in due:
        if evidence := _repetition(on, each):
            on = _raise_repeated(on, each, evidence)
    return on


def _place_of(burst: Repeat) -> str:
    """Return the ledger key of a burst; empty if it has several places or none."""
    if burst.xid != PLACED_XID:
        return f"Xid {burst.xid}"
    if len(burst.places) != 1:
        return ""
    gpc, tpc = burst.places[0]
    return f"{_AT_A_PLACE}GPC {gpc}, TPC {tpc}"


def _repetition(on: Judging, burst: Repeat) -> str:
    """Return the evidence of enough bursts at one place that no other GPU shows; else empty."""
    what = _place_of(burst)
    hours = round(on.thresholds["RepeatWindow"].value / _HOUR_S)
    bursts = on.times(burst.gpu_id, what, "RepeatWindow")
    elsewhere = any(
        owner not in burst.gpu_id and on.times((owner,), name, "RepeatWindow")
        for owner, name in on.state.ledger
        if name.startswith(f"Xid {burst.xid}")
    )
    if not what or bursts < on.thresholds["RepeatBursts"].value or elsewhere:
        return ""
    return f"{what}: {bursts} bursts within {hours} h, on no other GPU of this node"


def _raise_repeated(on: Judging, burst: Repeat, evidence: str) -> Judging:
    """Raise a repeated Xid 13 or 31 to Degraded, Report; never to more."""
    row = replace(
        reason_for_xid(burst.xid, driver=on.state.branch),
        severity=Severity.DEGRADED,
        level=Level.REPORT,
        action=Action.RUN_DIAGNOSTICS,
        closes_on=BY_HUMAN,
    )
    finding = Finding(
        at=burst.at,
        row=row,
        gpu_id=burst.gpu_id,
        xid=burst.xid,
        source=SourceName.KERNEL_LOG,
        counts=False,
    )
    before = {incident.id: incident for incident in on.state.incidents}
    on = recording.record(on, finding)
    for incident in on.state.incidents:
        was = before.get(incident.id)
        if was is not incident and (was is None or was.row.severity is Severity.INFO):
            on = on.with_incident(with_conclusion(incident, evidence))
    return on
