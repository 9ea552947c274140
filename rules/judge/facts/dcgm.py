"""Check pages of dcgm-exporter, the data source of GPU readings where NVML is off.

The last-Xid series is sticky: only a change is an event. Pages about another node's GPUs, without
any value, or with old values are rejected.
"""

from typing import Final

from msgspec import structs

from rules.api.health import MigInstance
from rules.catalog.signals import Signal
from rules.catalog.xid import reason_for_xid
from rules.judge import observation as facts
from rules.judge import recording
from rules.judge.facts import readings, sources
from rules.judge.incident import Finding
from rules.judge.state import GpuView, Judging, NodeState, find_gpu, identify, with_gpu
from rules.text import pci_address

FOREIGN: Final = "ForeignPage"
BLANK: Final = "BlankPage"
FROZEN: Final = "FrozenPage"
DIFFERS: Final = "DiffersFromNVML"
_NVML_TOO_OLD: Final = 6
"""DCGM's value for a fabric state that it cannot read. Source: DCGM header."""
_MAX_GPUS: Final = 64
_MAX_INSTANCES: Final = 7 * 64
"""A GPU has seven instances at most. Source: NVIDIA MIG guide."""


def judge_page(on: Judging, seen: facts.DcgmSeen) -> Judging:
    """Take one page that was read and parsed."""
    if _is_foreign(on.state, seen):
        return _set_state(on, seen, facts.SourceState.DOWN, FOREIGN)
    if _is_blank(seen):
        return _set_state(on, seen, facts.SourceState.DOWN, BLANK)
    changed_at = _changed_at(on.state, seen, on.now)
    on = on.replace(dcgm_page=seen, dcgm_changed_at=changed_at)
    if on.now - changed_at >= on.thresholds["FrozenPage"].value:
        return _set_state(on, seen, facts.SourceState.DOWN, FROZEN)
    nvml_sees = on.state.source(facts.SourceName.NVML) is facts.SourceState.UP
    enumerated = {view.seen.uuid for view in on.state.gpus.values() if view.enumerated}
    differs = nvml_sees and set(seen.gpus) != enumerated
    on = _set_state(on, seen, facts.SourceState.UP, DIFFERS if differs else "")
    on = _judge_xids(on, seen)
    if nvml_sees or on.state.source(facts.SourceName.NVML) is not facts.SourceState.ABSENT:
        return on
    on = on.replace(driver=seen.driver or on.state.driver, inventory_at=on.now)
    on = on.then(_enumerate(on.state, seen))
    for uuid, values in list(seen.gpus.items())[:64]:
        view = find_gpu(on.state, uuid)
        if changed_at < on.now and view is not None and view.values:
            # The exporter has not read again: a copy neither measures nor confirms anything.
            on = on.with_gpu(structs.replace(view, answered_at=on.now, read_at=on.now))
            continue
        unasked = values.get(Signal.FABRIC_STATE) == _NVML_TOO_OLD
        known = {**values, Signal.FABRIC_STATE: None} if unasked else values
        page = facts.Readings(at=seen.at, gpu=uuid, values=known, pci=seen.pci.get(uuid, ""))
        on = readings.judge_readings(on, page, facts.SourceName.DCGM)
    return on


def _enumerate(state: NodeState, seen: facts.DcgmSeen) -> NodeState:
    """Return the state with the GPUs that the page lists as enumerated, and only these."""
    gpus = {
        key: structs.replace(view, enumerated=key in seen.gpus) for key, view in state.gpus.items()
    }
    state = structs.replace(state, gpus=gpus)
    for index, uuid in enumerate(list(seen.gpus)[:64]):
        if uuid not in state.gpus:
            gpu = facts.GpuSeen(uuid=uuid, index=index, pci=seen.pci.get(uuid, ""))
            state = with_gpu(state, GpuView(seen=gpu, enumerated=True))
    return state


def _is_foreign(state: NodeState, seen: facts.DcgmSeen) -> bool:
    """Return whether no GPU of the page is known here, by UUID or by address.

    The page's host name is not used: it may be that of the exporter's pod or container.
    """
    uuids = {view.seen.uuid for view in state.gpus.values() if view.seen.uuid}
    if uuids and seen.gpus:
        return uuids.isdisjoint(seen.gpus)
    here = {pci_address.plain_address(function.address) for function in state.functions}
    here |= {view.pci for view in state.gpus.values() if view.pci}
    listed = {pci_address.plain_address(pci) for pci in seen.pci.values() if pci}
    return bool(here and listed) and here.isdisjoint(listed)


def _is_blank(seen: facts.DcgmSeen) -> bool:
    """Return whether the page has fields but no values: dcgm-exporter runs, its host engine not.

    A GPU without fields of its own does not count: with MIG only the instances have fields.
    """
    fields = [value for values in seen.gpus.values() for value in values.values()]
    blank = bool(fields) and all(value is None for value in fields)
    return blank and not (seen.xids or seen.instance_xids)


def _changed_at(state: NodeState, page: facts.DcgmSeen, now: float) -> float:
    """Return when the values of the page last changed.

    An idle GPU has the same readings for hours, except its energy. A page without energy counts as
    new. The first page after the agent's start is new, too, unless the earlier agent found it
    frozen: then it must change first.
    """
    before = state.dcgm_page
    new = before is not None and _values(page) != _values(before)
    if not page.energy or new or state.dcgm_changed_at is None:
        return now
    return min(state.dcgm_changed_at, now)


def _values(seen: facts.DcgmSeen) -> tuple[object, ...]:
    return seen.energy, seen.gpus, seen.xids, seen.instance_xids


def _judge_xids(on: Judging, seen: facts.DcgmSeen) -> Judging:
    """Record a changed last Xid, unless NVML or the kernel log would have reported that Xid.

    Healthy GPUs may export none, so a new series is a change, too. With MIG each instance has its
    own last Xid.
    """
    before = on.state.dcgm_xids
    last: dict[tuple[str, int | None], int] = {
        (uuid, None): seen.xids.get(uuid, 0) for uuid in list(seen.gpus)[:_MAX_GPUS]
    }
    last.update(list(seen.instance_xids.items())[:_MAX_INSTANCES])
    on = on.replace(dcgm_xids=last)
    if _nvml_reports(on) or sources.log_is_complete(on):
        return on
    for (uuid, instance), xid in last.items():
        was = before.get((uuid, instance), 0)
        known = (uuid, None) in before
        if not known or was == xid or not 0 < xid < 1 << 16:
            continue
        gpu_id = identify(on.state, uuid, seen.pci.get(uuid, ""))
        finding = Finding(
            at=seen.at,
            row=reason_for_xid(xid, driver=on.state.branch),
            gpu_id=gpu_id,
            xid=xid,
            source=facts.SourceName.DCGM,
            evidence=f"dcgm-exporter: last Xid changed from {was} to {xid}",
            mig=MigInstance(gi=instance) if instance is not None else None,
        )
        if not sources.is_reported(on.state, finding):
            on = recording.record(on, finding)
    return on


def _nvml_reports(on: Judging) -> bool:
    """Return whether NVML events would have reported an Xid of the last pages."""
    nvml = on.state.sources.get(facts.SourceName.NVML)
    up = nvml is not None and nvml.state is facts.SourceState.UP
    return up and nvml is not None and on.now - nvml.since > sources.RECORDS_LOST_S


def _set_state(
    on: Judging, seen: facts.DcgmSeen, state: facts.SourceState, reason: str
) -> Judging:
    change = facts.SourceChanged(
        at=seen.at, source=facts.SourceName.DCGM, state=state, reason=reason
    )
    return sources.change_source(on, change)
