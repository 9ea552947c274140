"""Is every GPU there: inventory, PCI bus, lost polls and the expected count, put together.

Called by `judge` for inventories, PCI looks, presence readings and failed calls. An absent
driver is not eight lost GPUs: nothing is judged lost unless the driver is loaded, other GPUs
answer, nobody asked us to let go, and the PCI bus says the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.api.health import ExpectedGpus
from rules.catalog.reason import ON_RESET, ClosesKind
from rules.catalog.reasons import REASONS
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Rules
from rules.judge.bridges import learn_bridges
from rules.judge.burst import REASON_LOST, is_lost
from rules.judge.closing import close_where
from rules.judge.expected_gpus import (
    ANNOTATION,
    CONFIG,
    expected_gpus,
    gpu_addresses,
    hardware_key,
    learn,
    plain_address,
)
from rules.judge.gauge import Gauge
from rules.judge.incident import Finding, Scope
from rules.judge.ledger import noted, whose
from rules.judge.observation import GpuSeen, Inventory, PciSeen, SourceName, SourceState
from rules.judge.recording import SUPERSEDED, record
from rules.judge.state import (
    MAX_GPUS,
    GpuView,
    NodeState,
    close_for,
    find_gpu,
    just_told,
    with_gpu,
)

LOST_POLL: Final = "lost and back"
MISMATCH: Final = "GPUCountMismatch"
BY_REPLACEMENT: Final = "GPUReplaced"
_SAME_POLL_S: Final = 1.0
"""What is closer than this is one poll. Source: gpuward, a confirming poll comes 2 s later."""
_ANSWER_AGE_S: Final = 60.0
"""A GPU that answered within four polls counts as answering. Source: gpuward."""


def expected_of(state: NodeState) -> ExpectedGpus:
    """How many GPUs this node should have."""
    return expected_gpus(state.configured, state.node.expected_annotation, state.learned)


def take_inventory(state: NodeState, seen: Inventory, now: float) -> NodeState:
    """Take what the driver enumerates; another driver or UUID starts every baseline afresh."""
    if seen.driver != state.driver and state.driver:
        gpus = {key: replace(view, counters={}) for key, view in state.gpus.items()}
        state = replace(state, gpus=gpus)
    state = replace(
        state,
        driver=seen.driver or state.driver,
        virtualization=seen.virtualization,
        excluded=seen.excluded[:MAX_GPUS],
        inventory_at=now,
    )
    named = {gpu.uuid for gpu in seen.gpus if gpu.uuid}
    gpus = {
        key: replace(view, enumerated=view.seen.uuid in named) for key, view in state.gpus.items()
    }
    state = replace(state, gpus=gpus)
    listed = tuple(gpu for gpu in seen.gpus[:MAX_GPUS] if gpu.uuid)
    known = frozenset({*state.gpus, *state.address_uuids.values()})
    if known:
        state = _forget_replaced(state, listed, known, now)
    for gpu in listed:
        state = _enumerate(state, gpu)
    return _name_incidents(state)


def take_functions(state: NodeState, seen: PciSeen, now: float, rules: Rules) -> NodeState:
    """Take one look at the PCI bus: learn the count, and look for what is gone."""
    state = replace(state, functions=seen.functions[: 4 * MAX_GPUS], pci_at=now)
    state = learn_bridges(state, state.functions)
    present = gpu_addresses(state.functions, state.excluded)
    key = hardware_key(state.node.product_uuid, state.node.instance_type)
    state = replace(state, learned=learn(state.learned, len(present), key))
    if not _may_judge(state):
        return state
    for address in sorted({*present, *(view.pci for view in state.gpus.values() if view.pci)}):
        state = _look(state, address, now, rules)
    return count_gpus(state, now, rules)


def lost_poll(
    state: NodeState, gpu: str, pci: str, evidence: str, now: float, rules: Rules
) -> NodeState:
    """One poll said that the GPU is lost."""
    view = find_gpu(state, gpu, pci)
    if view is None or not _may_judge(state):
        return state
    return _step_lost(state, view, evidence, now, rules, gone=True)


def answered_poll(state: NodeState, gpu: str, pci: str, now: float, rules: Rules) -> NodeState:
    """One poll was answered."""
    view = find_gpu(state, gpu, pci)
    if view is None or view.lost == Gauge():
        return state
    return _step_lost(state, view, "", now, rules, gone=False)


def count_gpus(state: NodeState, now: float, rules: Rules) -> NodeState:
    """Compare what the driver enumerates with what should be there."""
    if not _may_judge(state) or not state.inventory_at:
        return state
    if abs(now - state.missing_at) < _SAME_POLL_S:
        return state
    expected = expected_of(state)
    enumerated = sum(view.enumerated for view in state.gpus.values())
    explained = sum(
        not view.enumerated and _known_lost(state, view) for view in state.gpus.values()
    )
    missing = expected.count - enumerated - explained
    if expected.source not in (CONFIG, ANNOTATION):
        missing -= _given_away(state)
    old = state.missing
    state = replace(state, missing=old.measure(missing, rules[MISMATCH]), missing_at=now)
    if state.missing.raised and missing > 0:
        return _report_missing(state, expected, enumerated, now, rules)
    if old.raised and not state.missing.raised:
        return close_where(
            state,
            lambda i: i.scope is Scope.NODE and i.row.reason == MISMATCH,
            now,
            ClosesKind.STATE,
        )
    return state


def _report_missing(
    state: NodeState, expected: ExpectedGpus, enumerated: int, now: float, rules: Rules
) -> NodeState:
    """Fatal only where people said the count and the PCI bus misses one too."""
    on_pci = len(gpu_addresses(state.functions, state.excluded))
    said = expected.source in (CONFIG, ANNOTATION)
    gone = said and state.pci_at > 0 and on_pci < expected.count and _any_answers(state, now)
    row = REASONS["GPULost" if gone else MISMATCH]
    known = any(i.active and i.scope is Scope.NODE and i.row == row for i in state.incidents)
    evidence = (
        f"expected {expected.count} GPUs ({expected.source}), the driver enumerates "
        f"{enumerated}, the PCI bus shows {on_pci}"
    )
    if state.minors is not None:
        evidence += f", /dev has {len(state.minors)}"
    finding = Finding(
        at=now,
        row=row,
        source=SourceName.PCI,
        evidence="" if known else evidence,
        counts=False,
        scope=Scope.NODE,
    )
    return record(state, finding, now, rules)


def _may_judge(state: NodeState) -> bool:
    source = state.view_source
    if source is None or state.standing_down:
        return False
    return state.source(source) is SourceState.UP


def _look(state: NodeState, address: str, now: float, rules: Rules) -> NodeState:
    view = find_gpu(state, "", address)
    gone = _gone(state, address)
    if view is None:
        if not gone:
            return state
        view = GpuView(seen=GpuSeen(uuid="", index=-1, pci=address))
        state = with_gpu(state, view)
    if gone:
        evidence = "PCI: the device is gone or its configuration space reads all ones"
        if view.enumerated and _answers(view, now):
            return state  # it still answers: the bus alone proves nothing
        return _step_lost(state, view, evidence, now, rules, gone=True)
    if not view.enumerated and view.lost != Gauge() and not _says_lost(view, now):
        return _step_lost(state, view, "", now, rules, gone=False)
    return state


def _says_lost(view: GpuView, now: float) -> bool:
    """Whether the driver, which does not list it any more, still says that it is lost."""
    return view.values.get(Signal.PRESENCE) == "lost" and abs(now - view.read_at) < _ANSWER_AGE_S


def _gone(state: NodeState, address: str) -> bool:
    for function in state.functions:
        if plain_address(function.address) == address:
            return function.config_space_ok is False
    return True


def _step_lost(
    state: NodeState, view: GpuView, evidence: str, now: float, rules: Rules, *, gone: bool
) -> NodeState:
    if view.lost_at and abs(now - view.lost_at) < _SAME_POLL_S:
        return state
    lost = view.lost.step(bad=gone, good=not gone, threshold=rules["GPULost"])
    if gone and view.lost.bad[-1:] != (True,):
        owner = whose(view.seen.uuid, view.pci)
        window_s = rules["BudgetWindow"].value
        state = replace(state, ledger=noted(state.ledger, owner, LOST_POLL, now, window_s))
    told = gone and bool(view.unavailable_at) and just_told(view.unavailable_at, now)
    if told:
        lost = Gauge(raised=True, bad=lost.bad)
    since = _lost_since(view, now) if gone else 0.0
    state = with_gpu(state, replace(view, lost=lost, lost_at=now, lost_since=since))
    if not gone:
        found = view.lost.raised and not lost.raised
        return _found(state, view, now) if found else state
    if not lost.raised or not _others_answer(state, view, now):
        return state
    missed = state.pci_at > 0 and _gone(state, view.pci)
    for_good = now - since >= rules["GPULostForGood"].value
    confirmed = missed or told or for_good or _known_lost(state, view)
    if confirmed:
        state = _end_mismatch(state, view, now, SUPERSEDED)
    row = REASONS["GPULost" if confirmed else MISMATCH]
    if confirmed and not missed:
        row = replace(row, closes_on=ON_RESET)  # it may answer again: the bus never missed it
    known = any(
        i.active and i.has_reason(row.reason) and i.concerns(view.seen.uuid, view.pci)
        for i in state.incidents
    )
    finding = Finding(
        at=now,
        row=row,
        gpu=view.seen.uuid,
        pci=view.pci,
        source=SourceName.PCI if missed else SourceName.NVML,
        evidence="" if known else evidence,
        counts=False,
        caused_by=79,
    )
    return record(state, finding, now, rules)


def _lost_since(view: GpuView, now: float) -> float:
    """The beginning of polls that all said lost; one that was missed breaks the row."""
    unbroken = view.lost_since and 0 <= now - view.lost_at <= _ANSWER_AGE_S
    return view.lost_since if unbroken else now


def _found(state: NodeState, view: GpuView, now: float) -> NodeState:
    """The GPU answers again: what only the driver's word called lost is healed."""
    state = _end_mismatch(state, view, now, ClosesKind.STATE)
    return close_for(
        state,
        view.seen.uuid,
        view.pci,
        lambda i: i.row.reason == REASON_LOST and i.row.closes_on == ON_RESET,
        now,
        ClosesKind.STATE,
    )


def _end_mismatch(state: NodeState, view: GpuView, now: float, by: str) -> NodeState:
    return close_where(
        state,
        lambda i: i.row.reason == MISMATCH and i.concerns(view.seen.uuid, view.pci),
        now,
        by,
    )


def _others_answer(state: NodeState, view: GpuView, now: float) -> bool:
    """Whether another GPU answers; a node's only GPU has no other to compare with."""
    others = [v for v in state.gpus.values() if v.enumerated and v.seen.uuid != view.seen.uuid]
    return not others or any(_answers(other, now) for other in others)


def _any_answers(state: NodeState, now: float) -> bool:
    return any(view.enumerated and _answers(view, now) for view in state.gpus.values())


def _answers(view: GpuView, now: float) -> bool:
    lately = abs(now - view.answered_at) < _ANSWER_AGE_S
    return lately and view.values.get(Signal.PRESENCE, "present") == "present"


def _given_away(state: NodeState) -> int:
    """GPUs on the bus that virtual machines have or that the driver leaves out."""
    everything = [replace(function, driver="") for function in state.functions]
    here = gpu_addresses(state.functions, state.excluded)
    return len(gpu_addresses(everything)) - len(here)


def _known_lost(state: NodeState, view: GpuView) -> bool:
    return any(
        incident.active
        and incident.concerns(view.seen.uuid, view.pci)
        and any(is_lost(member) for member in incident.members)
        for incident in state.incidents
    )


def _enumerate(state: NodeState, gpu: GpuSeen) -> NodeState:
    old = state.gpus.get(gpu.uuid, GpuView(seen=gpu))
    return with_gpu(state, replace(old, seen=gpu, enumerated=True))


def _forget_replaced(
    state: NodeState, gpus: tuple[GpuSeen, ...], known: frozenset[str], now: float
) -> NodeState:
    """A UUID never seen here at a known address: the GPU that was there has left the node.

    A GPU that only changed its address is none of that: its UUID was known.
    """
    named = {gpu.uuid for gpu in gpus}
    filled = {plain_address(gpu.pci) for gpu in gpus if gpu.pci and gpu.uuid not in known}
    left = {
        key: view
        for key, view in state.gpus.items()
        if view.pci not in filled or view.seen.uuid in named
    }
    state = replace(state, gpus=left)
    return close_where(
        state,
        lambda i: (
            bool(i.gpus) and named.isdisjoint(i.gpus) and bool(i.pci) and filled.issuperset(i.pci)
        ),
        now,
        BY_REPLACEMENT,
    )


def _name_incidents(state: NodeState) -> NodeState:
    """Give incidents that knew an address only the UUID that the driver now names."""
    uuids = {v.pci: v.seen.uuid for v in state.gpus.values() if v.pci and v.enumerated}
    changed = tuple(
        replace(incident, gpus=tuple(uuids[pci] for pci in incident.pci))
        if not incident.gpus and incident.pci and all(pci in uuids for pci in incident.pci)
        else incident
        for incident in state.incidents
    )
    return replace(state, incidents=changed)
