"""The sentences for people: what happened, what is next, what to do; and Events that carry them.

Called by `verdict` and by the agent's edge with the changes of one observation. Text from the
kernel never enters a sentence: it stays in the evidence. Records of Info make no Event: a program
in a crash loop must not flood the API server.
"""

from typing import Final

import msgspec

from rules.catalog import explanations, reasons
from rules.catalog.reason import Action, Level, Severity
from rules.judge import patterns, topology
from rules.judge.incident import Incident, Scope
from rules.judge.judge import Change, ChangeKind
from rules.judge.state import NodeState, find_gpu
from rules.judge.topology import Interconnect

AMPERE: Final = 7
"""NVML's architecture number. Source: NVML reference."""

_MEANS: Final = {
    Severity.FATAL: "work on it is failing or will",
    Severity.DEGRADED: "it is slower or at risk",
    Severity.INFO: "this is a record",
}
_NEXT: Final = {
    Level.DRAIN: "the node should be drained",
    Level.CORDON: "the node should take no new work",
    Level.REPORT: "no work is stopped",
}
_TO_DO: Final = {
    Action.NONE: "nothing needs to be done",
    Action.RESTART_APP: "restart the program",
    Action.RESET_GPU: "reset the GPU",
    Action.RESTART_NODE: "restart the node",
    Action.POWER_CYCLE: "power the node off and on, a restart is not enough",
    Action.REPLACE_NODE: "replace the node",
    Action.INVESTIGATE: "investigate",
    Action.DRAIN_P2P: "stop peer-to-peer work on it, then look at the driver's answer again",
    Action.RECOVER_IMEX_DOMAIN: "recover the IMEX domain",
    Action.RESTART_FABRIC_MANAGER: "restart the fabric manager",
    Action.RUN_DIAGNOSTICS: "run diagnostics",
    Action.CHECK_MECHANICALS: "check cables, power and seating",
    Action.UPDATE_FIRMWARE: "update driver and firmware",
}
_RESET_ALL: Final = "reset all GPUs of the node together"

_UNKNOWN: Final = {
    "Starting": "The agent has just started and has not observed the GPUs yet; wait for "
                "its first poll.",
    "OnlyKernelLog": "The kernel log reports no fault and is all that is seen here: whether the "
                     "GPUs are well cannot be known; give the agent NVML or dcgm-exporter to "
                     "know.",
    "NoGPU": "No GPU is on this node's PCI bus and none is expected, so there is no health to "
             "report; if there should be one, report it with the annotation "
             "gpuward.io/expected-gpus.",
    "TooLittleSeen": "The dcgm-exporter page has no series that would show a failing GPU; let it "
                     "export row remaps, ECC errors or the recovery action, or give the agent "
                     "NVML.",
    "NoSenseWorks": "Neither the driver nor the kernel log can be read, so nothing is known of "
                    "the GPUs; give the agent one of them.",
    "WaitingForDriver": "The node booted a short while ago and its NVIDIA driver is not loaded "
                        "yet; wait for it.",
    "DriverAbsent": "No NVIDIA driver answers, so the GPUs cannot be seen; install, load or "
                    "repair the driver.",
    "DriverMismatch": "The NVIDIA library and the loaded kernel module differ in version; restart "
                      "the node or reload the driver.",
    "NoAccess": "The agent may not use the NVIDIA driver; check its devices, runtime class and "
                "privileges.",
    "NoGPUAnswers": "The driver is loaded but none of its GPUs answers; look at the kernel log, "
                    "power and the driver.",
    "CallHung": "A call into the NVIDIA driver does not return, so the GPUs cannot be seen; look "
                "at the kernel log and at tasks in D state.",
    "ForeignPage": "The dcgm-exporter page describes another node's GPUs; make its Service "
                   "node-local.",
    "BlankPage": "The dcgm-exporter page has no value of any GPU, so the GPUs cannot be seen; "
                 "look at dcgm-exporter and its host engine on this node.",
    "FrozenPage": "The dcgm-exporter page repeats old values, even of the energy that the GPUs "
                  "have used, so they cannot be seen; look at dcgm-exporter and its host engine "
                  "on this node.",
    "DCGMDown": "dcgm-exporter does not answer, so the GPUs cannot be seen; look at its "
                "pod on this node.",
}  # fmt: skip


def incident_sentence(state: NodeState, incident: Incident, others: int) -> str:
    """One sentence about an incident; `others` more are active beside it."""
    row = incident.row
    more = ""
    if others > 0:
        more = f" ({others} more incident{'s' if others != 1 else ''} active)"
    means = _MEANS[row.severity]
    if incident.answer == reasons.NO_ACTION:
        means = "the driver saw no need for a repair"
    return (
        f"{subject(state, incident)} reported {row.reason}: {means}, "
        f"{_NEXT[row.level]}; {to_do(state, incident)}{more}."
    )


def unconfirmed_sentence(state: NodeState, incident: Incident) -> str:
    """One sentence about a fault of the past that nothing here can confirm or deny."""
    return (
        f"The kernel log tells of {incident.row.reason} on {subject(state, incident)} from before"
        " the agent's start, and whether it lasts cannot be known: nothing else here sees the"
        f" GPUs; {to_do(state, incident)}, or give the agent NVML or dcgm-exporter."
    )


def to_do(state: NodeState, incident: Incident) -> str:
    """The recommended action as a clause; some nodes cannot reset one GPU alone."""
    action = incident.row.action
    if incident.floor is not None:
        return f"{_TO_DO[action]}, since lighter repairs did not last"
    if action is Action.RESET_GPU and not resets_alone(state):
        return _RESET_ALL
    return _TO_DO[action]


def resets_alone(state: NodeState) -> bool:
    """Whether one GPU can be reset by itself: not before Ampere, nor on A100 with NVSwitch."""
    generations = {
        view.seen.architecture
        for view in state.gpus.values()
        if view.seen.architecture is not None
    }
    if any(generation < AMPERE for generation in generations):
        return False
    switched = (
        state.topology is not None
        and topology.interconnect(state.topology) is Interconnect.NVSWITCH
    )
    return not (AMPERE in generations and switched)


def subject(state: NodeState, incident: Incident) -> str:
    """What an incident is about: `GPU 3 (0000:3b:00)`, `NVSwitch at 0000:0a:00`."""
    reason = incident.row.reason
    several = incident.gpus or incident.pci
    if incident.scope is Scope.NODE and len(several) > 1:
        return f"The node (common cause on {len(several)} GPUs)"
    if incident.scope is Scope.NODE and not incident.gpus:
        if explanations.device_kind(reason) == explanations.NVSWITCH and incident.pci:
            return explanations.device_at(reason, incident.pci[0])
        return f"The node (device {incident.pci[0]})" if incident.pci else "The node"
    names = []
    for gpu in incident.gpus or incident.pci:
        view = find_gpu(state, gpu, gpu if not incident.gpus else "")
        if view is not None and view.seen.index >= 0:
            names.append(
                f"GPU {view.seen.index} ({view.pci})" if view.pci else f"GPU {view.seen.index}"
            )
        else:
            known = incident.pci[:1]
            serial = f", serial {view.seen.serial}" if view and view.seen.serial else ""
            named_as = explanations.device_at(reason, known[0]) if known else f"GPU {gpu}"
            names.append(f"{named_as}{serial}")
    named = ", ".join(names[:3]) or "A GPU"
    return f"The NVLink domain of {named}" if incident.scope is Scope.DOMAIN else named


def unknown_sentence(reason: str) -> str:
    """Why nothing sees the GPUs."""
    default = f"The GPUs cannot be seen ({reason}); look at the agent's sources on this node."
    return _UNKNOWN.get(reason, default)


WARNING = "Warning"
NORMAL = "Normal"


class NodeEvent(msgspec.Struct, frozen=True):
    """One Event about the node."""

    type: str
    reason: str
    message: str


def events_for(state: NodeState, changes: tuple[Change, ...]) -> tuple[NodeEvent, ...]:
    """The Events for what just changed; `state` is the new state."""
    events = (_event(state, change) for change in changes)
    return tuple(event for event in events if event is not None)


def _event(state: NodeState, change: Change) -> NodeEvent | None:
    incident = change.incident
    if incident is not None:
        if incident.row.severity is Severity.INFO:
            return None
        if change.kind is ChangeKind.CLOSED:
            about = subject(state, incident)
            sentence = f"{about}: {change.reason} is over ({incident.closed_by})."
            if incident.closed_by == patterns.COMMON:
                sentence = f"{about}: {change.reason} goes on as one fault of the entire node."
            return NodeEvent(NORMAL, change.reason, sentence)
        if not incident.active:
            return None
        return NodeEvent(WARNING, change.reason, incident_sentence(state, incident, 0))
    match change.kind:
        case ChangeKind.STAND_DOWN:
            return NodeEvent(
                NORMAL, change.reason, "The agent lets go of the GPUs on request; nothing new is "
                                       "judged lost until they are back."
            )  # fmt: skip
        case ChangeKind.STAND_DOWN_EXPIRED:
            return NodeEvent(
                WARNING, change.reason, "The GPUs were let go for over two hours; the agent takes "
                                        "them back, end the pause that was forgotten."
            )  # fmt: skip
        case _:
            return None
