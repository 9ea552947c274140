"""Does the present agree: is the GPU of an incident sound right now, sick, or not observed.

Called by `judge.closing` for evidence of repair and for faults read from the past. It looks
only at what was read since a given time; what nothing has read since then is not sound, it is
not observed.
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
"""What the presence of a GPU may be that cannot work."""


class Present(Enum):
    """What the present says about the GPU of an incident."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unseen"
    LEFT = "left"
    """It is not here, and no GPU is missing: removed for good, or given to a virtual machine."""


def present_of(state: NodeState, incident: Incident, since: float) -> Present:
    """Judge the GPUs of an incident, or every GPU where it names none that is known."""
    views = [
        view
        for key in (incident.gpus or incident.pci)
        if (view := find_gpu(state, key, key if not incident.gpus else "")) is not None
    ]
    if incident.gpus and not views:
        # A card with another name may have moved there: it says nothing of the one that was.
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
    """Whether what sees the GPUs sees as many as this node should have.

    Where nothing is known of the count, a GPU may be missing.
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
    """Judge one GPU by what was read after `since`."""
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
    return Present.UNKNOWN if view.action else Present.GOOD  # taken back, to be read once more


def present_values(state: NodeState, view: GpuView) -> Mapping[Signal, Value]:
    """What the GPU reads now; nothing once it is lost, has left, or nobody reads it any more."""
    source = state.view_source
    answers = view.values.get(Signal.PRESENCE) not in _NOT_SOUND
    if source is None or state.source(source) is not SourceState.UP:
        return {}
    return view.values if view.enumerated and answers else {}


def links_down(state: NodeState, view: GpuView) -> int:
    """How many of the links that the GPU has by design are down now; 0 when nothing tells.

    With MIG on, or outside an active partition of the fabric, links are off by design.
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
    """Whether every link that the GPU has by design was read and is up."""
    states = view.values.get(Signal.NVLINK_STATES)
    expected = expected_links(state, view.seen.uuid)
    if not isinstance(states, tuple) or not expected:
        return False
    return sum(link in checks.LINKS_UP for link in states) >= expected


def expected_links(state: NodeState, uuid: str) -> int | None:
    """How many NVLinks the GPU has by design; None when that is not known."""
    links = links_by_design(state, uuid)
    return None if links is None else len(links)


def links_by_design(state: NodeState, uuid: str) -> tuple[int, ...] | None:
    """Which of the GPU's NVLinks lead somewhere, up or down; None when that is not known.

    On a switch all GPUs have as many, so one that lost a link before it was first described is
    measured by the others.
    """
    topology = state.topology
    if topology is None or uuid not in topology.gpus:
        return None
    here = {view.seen.uuid for view in state.gpus.values() if view.enumerated}
    if not here.issuperset(topology.gpus) and none_missing(state):
        return None  # it describes GPUs that have left the node, and the links to them
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
    """A GPU that no source knows by name: sick where a GPU is missing, else it has left."""
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
    """Judge a GPU that is gone from the bus: one that is listed and reads all ones is dead."""
    left = not functions_at(state, address) and none_missing(state)
    return Present.LEFT if left else Present.BAD


def _given_away(state: NodeState, address: str, since: float) -> bool:
    """Whether the GPU at the address is a virtual machine's, or left out by the driver."""
    return state.pci_at > since and address in expected_gpus.given_away(
        state.functions, state.excluded
    )


def gone_from_pci(state: NodeState, address: str, since: float) -> bool:
    """Whether a check at the bus after `since` missed what it once showed, or read all ones."""
    if not address or state.pci_at <= since:
        return False
    here = functions_at(state, address)
    return here[0].config_space_ok is False if here else address in state.bridges
