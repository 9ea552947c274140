"""The current state of an incident's GPU: good, bad, unknown, or no longer in the node.

Only data read since a given time counts. Without data the state is unknown, not good.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rules.catalog.signals import Signal
from rules.judge import expected_gpus
from rules.judge.facts import checks
from rules.judge.incident import Incident
from rules.judge.observation import SourceState, Value
from rules.judge.state import GpuView, NodeState, find_gpu, functions_at
from rules.judge.topology import Interconnect, interconnect, links_rest
from rules.text import pci_address

_NOT_SOUND: Final = frozenset({"lost", "missing", "reset_required"})
"""Values of presence for a GPU that cannot run workloads."""


class Present(Enum):
    """The current state of an incident's GPU."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    LEFT = "left"
    """It is not here and no GPU is missing: removed, or passed to a virtual machine."""


def present_of(state: NodeState, incident: Incident, since: float) -> Present:
    """Return the state of the GPUs of an incident, or of every GPU if it names no known one."""
    views = [
        view
        for key in (incident.gpus or incident.pci)
        if (view := find_gpu(state, key, key if not incident.gpus else "")) is not None
    ]
    if incident.gpus and not views:
        # Another GPU may be at this address now; its state does not count for the old one.
        at_address = (find_gpu(state, "", pci) for pci in incident.pci)
        views = [view for view in at_address if view is not None and not view.seen.uuid]
    if not views and (incident.gpus or incident.pci) and incident.scope == "GPU":
        return _unknown_gpu(state, incident, since)
    if not views:
        views = [view for view in state.gpus.values() if view.enumerated]
        if len(views) < state.learned.count and not none_missing(state):
            return Present.UNKNOWN
        if not views:
            bus_alone = state.view_source is None and state.pci_at > since
            return Present.GOOD if bus_alone else Present.UNKNOWN
    answers = {gpu_now(state, view, since) for view in views}
    for answer in (Present.BAD, Present.UNKNOWN, Present.LEFT):
        if answer in answers:
            return answer
    return Present.GOOD


def none_missing(state: NodeState) -> bool:
    """Whether the data source lists as many GPUs as this node should have.

    If the expected count is unknown, a GPU may be missing.
    """
    expected = state.expected
    if not expected.count and expected.source not in (
        expected_gpus.CONFIG,
        expected_gpus.ANNOTATION,
    ):
        return False
    source = state.view_source
    if source is None:
        alive = [each for each in state.functions if each.config_space_ok is not False]
        return (
            state.pci_at > 0
            and len(expected_gpus.gpu_addresses(alive, state.excluded)) >= expected.count
        )
    if state.source(source) is not SourceState.UP or not state.inventory_at:
        return False
    return sum(view.enumerated for view in state.gpus.values()) >= expected.count


def gpu_now(state: NodeState, view: GpuView, since: float) -> Present:
    """Return the state of one GPU, by data read after `since`."""
    if not view.enumerated and _given_away(state, view.pci, since):
        return Present.LEFT
    if gone_from_pci(state, view.pci, since):
        return Present.BAD if view.enumerated else _not_here(state, view.pci)
    source = state.view_source
    if source is None:
        seen = state.pci_at > since and functions_at(state, view.pci)
        return Present.GOOD if seen else Present.UNKNOWN
    if state.source(source) is not SourceState.UP:
        return Present.UNKNOWN
    if not view.enumerated and none_missing(state):
        return Present.LEFT
    if view.values.get(Signal.PRESENCE) in _NOT_SOUND and view.read_at > since:
        return Present.BAD
    if not view.enumerated:
        return Present.BAD if state.inventory_at > since else Present.UNKNOWN
    if view.answered_at <= since:
        return Present.UNKNOWN
    asked = view.values.get(Signal.RECOVERY_ACTION) or (view.action and view.action_seen != 0)
    if asked or view.values.get(Signal.REMAP_FAILURE) or links_down(state, view):
        return Present.BAD
    return Present.UNKNOWN if view.action else Present.GOOD  # withdrawn, needs a second read


def present_values(state: NodeState, view: GpuView) -> Mapping[Signal, Value]:
    """Return the current readings; none if the GPU is lost, has left, or is not polled."""
    source = state.view_source
    answers = view.values.get(Signal.PRESENCE) not in _NOT_SOUND
    if source is None or state.source(source) is not SourceState.UP:
        return {}
    return view.values if view.enumerated and answers else {}


def links_down(state: NodeState, view: GpuView) -> int:
    """Return how many of the links that the GPU has by design are down; 0 if unknown.

    Links are off by design with MIG, or outside an active partition of the fabric.
    """
    states = view.values.get(Signal.NVLINK_STATES)
    if not isinstance(states, tuple) or view.seen.mig_mode:
        return 0
    if not any(link in checks.LINKS_UP for link in states) and links_rest(state, view):
        return 0
    expected = expected_links(state, view.seen.uuid)
    if expected is None:
        return 0
    up = sum(link in checks.LINKS_UP for link in states)
    unread = sum(link not in checks.LINK_STATES for link in states)
    return max(0, expected - up - unread)


def all_links_up(state: NodeState, view: GpuView) -> bool:
    """Whether every link that the GPU has by design is read as up."""
    states = view.values.get(Signal.NVLINK_STATES)
    expected = expected_links(state, view.seen.uuid)
    if not isinstance(states, tuple) or not expected:
        return False
    return sum(link in checks.LINKS_UP for link in states) >= expected


def expected_links(state: NodeState, uuid: str) -> int | None:
    """Return how many NVLinks the GPU has by design; None if unknown."""
    links = links_by_design(state, uuid)
    return None if links is None else len(links)


def links_by_design(state: NodeState, uuid: str) -> tuple[int, ...] | None:
    """Return the NVLinks that are connected by design, up or down; None if unknown.

    With NVSwitch all GPUs have the same number of links, so a GPU that lost a link before its
    first description is compared with the others.
    """
    topology = state.topology
    if topology is None or uuid not in topology.gpus:
        return None
    here = {view.seen.uuid for view in state.gpus.values() if view.enumerated}
    if not here.issuperset(topology.gpus) and none_missing(state):
        return None  # it describes GPUs that left the node and the links to them
    row = topology.gpus.index(uuid)
    joined = [
        tuple(link for link, remote in enumerate(remotes) if remote != "")
        for remotes in topology.remotes
    ]
    if row >= len(joined):
        return None
    if interconnect(topology) is Interconnect.NVSWITCH:
        return tuple(range(max(map(len, joined))))
    return joined[row]


def _unknown_gpu(state: NodeState, incident: Incident, since: float) -> Present:
    """Return the state of a GPU that no data source lists: bad if a GPU is missing, else left."""
    addresses = [pci_address.plain_address(pci) for pci in incident.pci]
    if addresses and all(_given_away(state, address, since) for address in addresses):
        return Present.LEFT
    gone = [address for address in addresses if gone_from_pci(state, address, since)]
    if gone:
        here = {_not_here(state, address) for address in gone}
        return Present.BAD if Present.BAD in here else Present.LEFT
    view = state.view_source
    if view is None:
        if not addresses or state.pci_at <= since:
            return Present.UNKNOWN
        if any(functions_at(state, address) for address in addresses):
            return Present.GOOD
        return Present.LEFT if none_missing(state) else Present.UNKNOWN
    if state.source(view) is SourceState.UP and state.inventory_at > since:
        # The driver enumerated its GPUs, and this one is not among them.
        return Present.LEFT if none_missing(state) else Present.BAD
    return Present.UNKNOWN


def _not_here(state: NodeState, address: str) -> Present:
    """Return the state of a GPU that is gone from the bus, or reads all ones."""
    left = not functions_at(state, address) and none_missing(state)
    return Present.LEFT if left else Present.BAD


def _given_away(state: NodeState, address: str, since: float) -> bool:
    """Whether the GPU at the address is passed to a VM or excluded by the driver."""
    return state.pci_at > since and address in expected_gpus.given_away(
        state.functions, state.excluded
    )


def gone_from_pci(state: NodeState, address: str, since: float) -> bool:
    """Whether a bus scan after `since` did not find the device, or read all ones."""
    if not address or state.pci_at <= since:
        return False
    here = functions_at(state, address)
    return here[0].config_space_ok is False if here else address in state.bridges
