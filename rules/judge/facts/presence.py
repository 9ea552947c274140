"""Detect lost and missing GPUs from inventory, PCI bus, lost polls and the expected count.

A GPU is lost only if the driver is loaded, other GPUs answer and the GPUs are not released on
request, so an absent driver does not count as lost GPUs. A lost GPU was seen in this boot, and its
configuration space reads all ones, or the driver or a kernel line reports the loss. Otherwise a
missing GPU is a count mismatch, or was removed on purpose.
"""

from typing import Final

from msgspec.structs import replace

from rules.api.health import ExpectedGpus
from rules.catalog import reasons
from rules.catalog.reason import ON_RESET, ClosesKind
from rules.catalog.signals import Signal
from rules.judge import expected_gpus, recording
from rules.judge.facts import standing
from rules.judge.incident import REASON_LOST, Finding, GpuId, Incident, Scope
from rules.judge.memory import Gauge
from rules.judge.observation import GpuSeen, Inventory, PciSeen, SourceName, SourceState
from rules.judge.state import (
    MAX_GPUS,
    GpuView,
    Judging,
    NodeState,
    find_gpu,
    functions_at,
    just_reported,
)
from rules.text import pci_address, printable

MISMATCH: Final = "GPUCountMismatch"
BY_REPLACEMENT: Final = "GPUReplaced"
_BUS_FAILED: Final = (recording.CONTAINMENT, "PcieAerUncorrected", "DeviceInaccessible")
_SAME_POLL_S: Final = 1.0
"""Readings closer than this are one poll. Source: gpuward, a confirming poll comes 2 s later."""
_ANSWER_AGE_S: Final = 60.0
"""A GPU that answered within four polls counts as answering. Source: gpuward."""


def take_inventory(on: Judging, seen: Inventory) -> Judging:
    """Take the GPUs that the driver enumerates; another driver version resets the counters."""
    if seen.driver != on.state.driver and on.state.driver:
        gpus = {key: replace(view, counters={}) for key, view in on.state.gpus.items()}
        on = on.replace(gpus=gpus)
    on = on.replace(
        driver=seen.driver or on.state.driver,
        virtualization=seen.virtualization,
        excluded=seen.excluded[:MAX_GPUS],
        inventory_at=on.now,
    )
    named = {gpu.uuid for gpu in seen.gpus if gpu.uuid}
    gpus = {
        key: replace(view, enumerated=view.seen.uuid in named)
        for key, view in on.state.gpus.items()
    }
    on = on.replace(gpus=gpus)
    listed = tuple(gpu for gpu in seen.gpus[:MAX_GPUS] if gpu.uuid)
    known = frozenset({*on.state.gpus, *on.state.address_uuids.values()})
    on = _forget_replaced(on, listed, known)
    for gpu in listed:
        on = _enumerate(on, gpu)
    return on.then(_name_incidents(on.state))


def take_functions(on: Judging, seen: PciSeen) -> Judging:
    """Take one scan of the PCI bus: learn the count and detect missing GPUs."""
    first = not on.state.pci_at
    on = on.replace(functions=seen.functions[: 4 * MAX_GPUS], pci_at=on.now)
    present = expected_gpus.gpu_addresses(on.state.functions, on.state.excluded)
    if first and on.state.bridges.keys().isdisjoint(present):
        # An earlier agent may have published addresses that only the driver reported.
        on = on.replace(bridges={})
    on = on.then(recording.learn_bridges(on.state, on.state.functions))
    key = expected_gpus.hardware_key(on.state.node.product_uuid, on.state.node.instance_type)
    on = on.replace(learned=expected_gpus.learn(on.state.learned, len(present), key))
    if not _may_judge(on.state):
        return on
    for address in sorted({*present, *(view.pci for view in on.state.gpus.values() if view.pci)}):
        on = _check_address(on, address)
    return count_gpus(on)


def lost_poll(on: Judging, gpu_id: GpuId, evidence: str, *, reported_lost: bool) -> Judging:
    """Take a poll that did not reach the GPU; `reported_lost`: the driver reported it lost."""
    view = find_gpu(on.state, *gpu_id)
    if view is None or not _may_judge(on.state):
        return on
    return _step_lost(on, view, evidence, gone=True, reported_lost=reported_lost)


def answered_poll(on: Judging, gpu_id: GpuId) -> Judging:
    """Take a poll that the GPU answered."""
    view = find_gpu(on.state, *gpu_id)
    if view is None or view.lost == Gauge():
        return on
    return _step_lost(on, view, "", gone=False)


def count_gpus(on: Judging) -> Judging:
    """Compare the number of enumerated GPUs with the expected number."""
    if not _may_judge(on.state) or not on.state.inventory_at:
        return on
    if abs(on.now - on.state.missing_at) < _SAME_POLL_S:
        return on
    expected = on.state.expected
    enumerated = sum(view.enumerated for view in on.state.gpus.values())
    missing = expected.count - enumerated - _explained(on.state)
    if expected.source not in (expected_gpus.CONFIG, expected_gpus.ANNOTATION):
        missing -= len(expected_gpus.given_away(on.state.functions, on.state.excluded))
    old, limit = on.state.missing, on.thresholds[MISMATCH]
    result = standing.above(limit, missing, "")
    new = old.step(bad=result.bad, good=result.good, threshold=limit)
    on = on.replace(missing=new, missing_at=on.now)
    if on.state.missing.raised and missing > 0:
        return _report_missing(on, expected, enumerated)
    if old.raised and not on.state.missing.raised:
        return recording.close_where(
            on, lambda i: i.scope is Scope.NODE and i.row.reason == MISMATCH, ClosesKind.STATE
        )
    return on


def _explained(state: NodeState) -> int:
    """Return how many GPUs that the driver does not enumerate have an incident of their own.

    This includes GPUs that are missing from both the driver and the bus since a reboot.
    """
    seen = [v for v in state.gpus.values() if not v.enumerated and _known_lost(state, v)]
    reported = {
        uuid
        for incident in state.incidents
        if incident.active and incident.lost
        for uuid in incident.gpus
    }
    unnamed = sum(not view.seen.uuid for view in seen)
    return len(seen) + max(0, len(reported - state.gpus.keys()) - unnamed)


def _report_missing(on: Judging, expected: ExpectedGpus, enumerated: int) -> Judging:
    """Report a count mismatch; the count alone does not show that a GPU is broken."""
    on_pci = len(expected_gpus.gpu_addresses(on.state.functions, on.state.excluded))
    page = on.state.view_source is SourceName.DCGM
    shown = "the dcgm-exporter page lists" if page else "the driver enumerates"
    evidence = (
        f"expected {printable.count(expected.count, 'GPU')} ({expected.source}), {shown} "
        f"{enumerated}, the PCI bus shows {on_pci}"
    )
    finding = Finding(
        at=on.now,
        row=reasons.REASONS[MISMATCH],
        source=SourceName.PCI,
        evidence=evidence,
        counts=False,
        scope=Scope.NODE,
    )
    return standing.record_standing(on, finding)


def _may_judge(state: NodeState) -> bool:
    source = state.view_source
    if source is None or state.standing_down:
        return False
    return state.source(source) is SourceState.UP


def _check_address(on: Judging, address: str) -> Judging:
    view = find_gpu(on.state, "", address)
    dead = _is_dead(on.state, address)
    if view is None:
        if not dead:
            return on
        view = GpuView(seen=_who_was_at(on.state, address))
        on = on.with_gpu(view)
    if not dead and not _is_missed(on.state, address):
        back = not view.enumerated and view.lost != Gauge() and not _is_out_of_reach(view, on.now)
        return _step_lost(on, view, "", gone=False) if back else on
    if view.enumerated and _answers(view, on.now):
        return on  # it still answers, so the bus alone is no proof
    if not dead and not _is_out_of_reach(view, on.now) and not _is_reported(on.state, view):
        return on  # the count mismatch covers it
    evidence = "PCI: the device is gone or its configuration space reads all ones"
    return _step_lost(on, view, evidence, gone=True, reported_lost=True)


def _who_was_at(state: NodeState, address: str) -> GpuSeen:
    """Return the GPU that was at the address in the previous boot; unknown if it may have moved.

    While the power is off, cards may change slots and the bus may be renumbered.
    """
    known = state.before_boot.get(address)
    if known is None or not state.inventory_at or known.uuid in state.gpus:
        return GpuSeen(uuid="", index=-1, pci=address)
    return known


def _is_out_of_reach(view: GpuView, now: float) -> bool:
    """Return whether the driver recently reported that it cannot reach the GPU."""
    unreached = view.values.get(Signal.PRESENCE) in ("lost", "missing")
    return unreached and abs(now - view.read_at) < _ANSWER_AGE_S


def _is_dead(state: NodeState, address: str) -> bool:
    """Return whether its configuration space reads all ones."""
    return any(each.config_space_ok is False for each in functions_at(state, address))


def _is_missed(state: NodeState, address: str) -> bool:
    """Return whether the bus shows no device any more where it showed a GPU."""
    once_there = state.pci_at > 0 and address in state.bridges
    return once_there and not functions_at(state, address)


def _is_removed(on: Judging, view: GpuView) -> bool:
    """Return whether the GPU was probably removed from the bus on purpose.

    The driver does not reach it either, and the kernel log has no line about it, which it has when
    a GPU falls off the bus.
    """
    lost_at = on.state.records_lost_at
    complete = lost_at is None or abs(on.now - lost_at) > _ANSWER_AGE_S
    log_is_read = complete and on.state.source(SourceName.KERNEL_LOG) is SourceState.UP
    unavailable = just_reported(view.unavailable_at, on.now)
    if not log_is_read or unavailable or not _is_missed(on.state, view.pci):
        return False
    return not _answers(view, on.now) and not _is_reported(on.state, view)


def _is_reported(state: NodeState, view: GpuView) -> bool:
    """Return whether the kernel reported the GPU lost, or an error of its port on the bus."""
    return _known_lost(state, view) or any(
        incident.active and incident.concerns(view.gpu_id) and incident.has_reason(reason)
        for incident in state.incidents
        for reason in _BUS_FAILED
    )


def _step_lost(
    on: Judging, view: GpuView, evidence: str, *, gone: bool, reported_lost: bool = False
) -> Judging:
    if view.lost_at and abs(on.now - view.lost_at) < _SAME_POLL_S:
        return on
    if gone and _is_removed(on, view):
        return on.with_gpu(replace(view, enumerated=False))  # the count mismatch covers it
    lost = view.lost.step(bad=gone, good=not gone, threshold=on.thresholds["GPULost"])
    unavailable = gone and just_reported(view.unavailable_at, on.now)
    if unavailable:
        lost = Gauge(raised=True, bad=lost.bad)
    since = _lost_since(view, on.now) if reported_lost else 0.0
    on = on.with_gpu(replace(view, lost=lost, lost_at=on.now, lost_since=since))
    if not gone:
        found = view.lost.raised and not lost.raised
        return _found(on, view) if found else on
    if not lost.raised or not _others_answer(on, view):
        return on
    missed = _is_dead(on.state, view.pci) or _is_missed(on.state, view.pci)
    for_good = reported_lost and on.now - since >= on.thresholds["GPULostForGood"].value
    confirmed = missed or unavailable or for_good or _known_lost(on.state, view)
    if confirmed:
        on = _end_mismatch(on, view, recording.SUPERSEDED)
    row = reasons.REASONS["GPULost" if confirmed else MISMATCH]
    if confirmed and not missed:
        row = replace(row, closes_on=ON_RESET)  # still on the bus, so it may answer again
    finding = Finding(
        at=on.now,
        row=row,
        gpu_id=view.gpu_id,
        source=SourceName.PCI if missed else SourceName.NVML,
        evidence=evidence,
        counts=False,
        caused_by=79,
    )
    return standing.record_standing(on, finding)


def _lost_since(view: GpuView, now: float) -> float:
    """Return since when every poll reported the GPU lost, without a gap."""
    unbroken = view.lost_since and 0 <= now - view.lost_at <= _ANSWER_AGE_S
    return view.lost_since if unbroken else now


def _found(on: Judging, view: GpuView) -> Judging:
    """Close the loss of a GPU that answers again, if only the driver reported it."""
    on = _end_mismatch(on, view, ClosesKind.STATE)
    return recording.close_for(
        on,
        view.gpu_id,
        lambda i: i.row.reason == REASON_LOST and i.row.closes_on == ON_RESET,
        ClosesKind.STATE,
    )


def _end_mismatch(on: Judging, view: GpuView, by: str) -> Judging:
    return recording.close_where(
        on, lambda i: i.row.reason == MISMATCH and i.concerns(view.gpu_id), by
    )


def _others_answer(on: Judging, view: GpuView) -> bool:
    """Return whether another GPU answers; True for a node's only GPU."""
    others = [v for v in on.state.gpus.values() if v.enumerated and v.seen.uuid != view.seen.uuid]
    return not others or any(_answers(other, on.now) for other in others)


def _answers(view: GpuView, now: float) -> bool:
    lately = abs(now - view.answered_at) < _ANSWER_AGE_S
    return lately and view.values.get(Signal.PRESENCE, "present") == "present"


def _known_lost(state: NodeState, view: GpuView) -> bool:
    return any(i.active and i.lost and i.concerns(view.gpu_id) for i in state.incidents)


def _enumerate(on: Judging, gpu: GpuSeen) -> Judging:
    """Take a GPU that the driver lists; its list may still have a GPU that was removed since."""
    old = on.state.gpus.get(gpu.uuid, GpuView(seen=gpu))
    removed = _is_out_of_reach(old, on.now) and _is_removed(on, old)
    return on.with_gpu(replace(old, seen=gpu, enumerated=not removed))


def _forget_replaced(on: Judging, gpus: tuple[GpuSeen, ...], known: frozenset[str]) -> Judging:
    """Remove GPUs that were replaced: a new UUID at their address.

    A GPU that only changed its address has a known UUID. After a reboot and an agent restart the
    earlier UUIDs may be unknown. Then, if the node is complete without the GPU of an older fault,
    that GPU was replaced.
    """
    named = {gpu.uuid for gpu in gpus}
    addresses = {pci_address.plain_address(gpu.pci) for gpu in gpus if gpu.pci}
    complete = len(named) >= max(on.state.learned.count, on.state.expected.count) > 0
    filled = {
        pci_address.plain_address(gpu.pci) for gpu in gpus if gpu.pci and gpu.uuid not in known
    }
    left = {
        key: view
        for key, view in on.state.gpus.items()
        if view.pci not in filled or view.seen.uuid in named
    }
    on = on.replace(gpus=left)

    def has_left(incident: Incident) -> bool:
        if not incident.gpus or not incident.pci or not named.isdisjoint(incident.gpus):
            return False
        if known and filled.issuperset(incident.pci):
            return True
        forgotten = incident.rebooted and known.isdisjoint(incident.gpus)
        return forgotten and complete and addresses.issuperset(incident.pci)

    return recording.close_where(on, has_left, BY_REPLACEMENT)


def _name_incidents(state: NodeState) -> NodeState:
    """Add the UUIDs that the driver now reports to incidents that have only an address."""
    uuids = {v.pci: v.seen.uuid for v in state.gpus.values() if v.pci and v.enumerated}
    changed = tuple(
        replace(incident, gpus=tuple(uuids[pci] for pci in incident.pci))
        if not incident.gpus and incident.pci and all(pci in uuids for pci in incident.pci)
        else incident
        for incident in state.incidents
    )
    return replace(state, incidents=changed)
