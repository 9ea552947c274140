"""Which GPUs are behind a PCIe bridge, and what an error that a bridge reports says about them.

Called by `judge.facts.kernel` for lines of a port, and by `judge.facts.presence` which learns the
paths. A path is remembered after the GPU left the bus: the line may be read after the GPU is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rules.judge.burst import is_lost
from rules.judge.expected_gpus import gpu_addresses
from rules.judge.incident import Finding, Incident, IncidentPhase, Member, Scope
from rules.judge.observation import PciFunction
from rules.judge.state import MAX_GPUS, NodeState
from rules.text.pci_address import plain_address

CONTAINMENT: Final = "PcieContainment"
_MAX_BRIDGES: Final = 16
"""Deeper than any host nests its switches."""


def learn_bridges(state: NodeState, functions: Sequence[PciFunction]) -> NodeState:
    """Remember each GPU on the bus that this node's workloads may count on, with the bridges above
    it.
    """
    bridges = dict(state.bridges)
    ours = gpu_addresses(functions, state.excluded)
    for function in functions:
        address = plain_address(function.address)
        if address not in ours:
            bridges.pop(address, None)  # handed to a virtual machine, or left out, since then
        elif address in bridges or len(bridges) < MAX_GPUS:
            bridges[address] = function.upstream[-_MAX_BRIDGES:] or bridges.get(address, ())
    return state if bridges == state.bridges else replace(state, bridges=bridges)


def gpus_below(state: NodeState, bridge: str) -> tuple[str, ...]:
    """Addresses of the GPUs behind this bridge; none where the paths are not known."""
    return tuple(sorted(gpu for gpu, above in state.bridges.items() if bridge.lower() in above))


def about_gpus_below(
    state: NodeState, finding: Finding, bridge: str, *, each: bool
) -> tuple[Finding, ...]:
    """A bridge's finding as one of the GPUs behind it; nothing where there are none.

    With several behind it, it is about each of them, or else about the node.
    """
    below = gpus_below(state, bridge)
    if len(below) > 1 and not each:
        return (replace(finding, scope=Scope.NODE),)
    return tuple(replace(finding, gpu="", pci=gpu, scope=Scope.GPU) for gpu in below)


def cut_off_home(incidents: Sequence[Incident], finding: Finding) -> Incident | None:
    """The active incident that a loss and the containment which caused it share, in either order.

    What needs the present to agree never joins what is already judged.
    """
    lost = is_lost(Member(finding.row, finding.xid))
    if not lost and finding.row.reason != CONTAINMENT:
        return None
    who, waits = finding.who, finding.lookback or finding.needs_present
    for incident in incidents:
        if not incident.active or not incident.concerns(who):
            continue
        if waits and incident.phase is not IncidentPhase.PRESENT:
            continue
        if lost and incident.has_reason(CONTAINMENT):
            return incident
        if not lost and any(is_lost(member) for member in incident.members):
            return incident
    return None
