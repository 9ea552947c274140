"""Messages of conditions, GPUNodeHealth and Events: what happened, what follows, what to do.

Text from the kernel never enters a message: it stays in the evidence. Records of severity Info
make no Event, so that a program in a crash loop does not flood the API server.
"""

import re
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

_EFFECT: Final = {
    Severity.FATAL: "Workloads fail or will fail",
    Severity.DEGRADED: "Workloads are slower or at risk",
    Severity.INFO: "This is a record",
}
_NO_ACTION_EFFECT: Final = "The driver requires no recovery action"
_LEVEL: Final = {
    Level.DRAIN: "the node should be drained",
    Level.CORDON: "the node should be cordoned",
    Level.REPORT: "no cordon or drain is needed",
}
_TO_DO: Final = {
    Action.NONE: "no action needed",
    Action.RESTART_APP: "restart the program",
    Action.RESET_GPU: "reset the GPU",
    Action.RESTART_NODE: "restart the node",
    Action.POWER_CYCLE: "power-cycle the node; a restart is not enough",
    Action.REPLACE_NODE: "replace the node",
    Action.INVESTIGATE: "investigate",
    Action.DRAIN_P2P: "stop peer-to-peer workloads on the GPU, then read the driver's recovery "
                      "action again",
    Action.RECOVER_IMEX_DOMAIN: "recover the IMEX domain",
    Action.RESTART_FABRIC_MANAGER: "restart the fabric manager",
    Action.RUN_DIAGNOSTICS: "run diagnostics",
    Action.CHECK_MECHANICALS: "check cables, power and seating",
    Action.UPDATE_FIRMWARE: "update driver and firmware",
}  # fmt: skip
_RESET_ALL: Final = "reset all GPUs of the node together"

_UNKNOWN: Final = {
    "Starting": "The agent has just started and has no GPU data yet. Wait for its first poll.",
    "OnlyKernelLog": "The agent reads only the kernel log, which shows no fault. GPU health is "
                     "unknown. Give the agent NVML or dcgm-exporter.",
    "NoGPU": "No GPU is on the PCI bus and none is expected, so there is no health to report. If "
             "GPUs are missing, set the annotation gpuward.io/expected-gpus.",
    "TooLittleSeen": "The dcgm-exporter page has no metric that would show a failing GPU. Export "
                     "row remaps, ECC errors or the recovery action, or give the agent NVML.",
    "NoSenseWorks": "Neither the driver nor the kernel log can be read, so GPU health is unknown. "
                    "Give the agent access to one of them.",
    "WaitingForDriver": "The node booted recently and its NVIDIA driver is not loaded yet. Wait "
                        "for the driver.",
    "DriverAbsent": "The NVIDIA driver does not answer, so GPU health is unknown. Install, load "
                    "or repair the driver.",
    "DriverMismatch": "The NVIDIA library and the loaded kernel module have different versions. "
                      "Restart the node or reload the driver.",
    "NoAccess": "The agent has no access to the NVIDIA driver. Check its device files, runtime "
                "class and privileges.",
    "NoGPUAnswers": "The driver is loaded but no GPU answers. Check the kernel log, power and the "
                    "driver.",
    "CallHung": "A call into the NVIDIA driver hangs, so GPU health is unknown. Check the kernel "
                "log and tasks in D state.",
    "ForeignPage": "The dcgm-exporter page shows another node's GPUs. Make its Service "
                   "node-local.",
    "BlankPage": "The dcgm-exporter page has no GPU values, so GPU health is unknown. Check "
                 "dcgm-exporter and its host engine on this node.",
    "FrozenPage": "The dcgm-exporter page repeats old values, even of GPU energy, so GPU health "
                  "is unknown. Check dcgm-exporter and its host engine on this node.",
    "DCGMDown": "dcgm-exporter does not answer, so GPU health is unknown. Check its pod on this "
                "node.",
}  # fmt: skip

_XID_REASON: Final = re.compile(r"Xid(\d+)(\w+)")


def incident_sentence(state: NodeState, incident: Incident, others: int) -> str:
    """Return the message of an incident; `others` is the number of other active incidents."""
    row = incident.row
    effect = _NO_ACTION_EFFECT if incident.answer == reasons.NO_ACTION else _EFFECT[row.severity]
    more = ""
    if others > 0:
        more = f" {others} more {'incident is' if others == 1 else 'incidents are'} active."
    return (
        f"{subject(state, incident)} reported {_spelled(row.reason)}. {effect}; "
        f"{_LEVEL[row.level]}. Next: {to_do(state, incident)}.{more}"
    )


def unconfirmed_sentence(state: NodeState, incident: Incident) -> str:
    """Return the message of a past fault that no data source can confirm."""
    return (
        f"The kernel log shows {_spelled(incident.row.reason)} on {subject(state, incident)} from "
        "before the agent started. No data source can confirm that it persists. "
        f"Next: {to_do(state, incident)}, or give the agent NVML or dcgm-exporter."
    )


def _spelled(reason: str) -> str:
    """Return `Xid 79 (GPUFallenOffBus)` for `Xid79GPUFallenOffBus`, other reasons unchanged."""
    found = _XID_REASON.fullmatch(reason)
    return f"Xid {found[1]} ({found[2]})" if found else reason


def to_do(state: NodeState, incident: Incident) -> str:
    """Return the recommended action as a clause; some nodes cannot reset a single GPU."""
    action = incident.row.action
    if incident.floor is not None:
        return f"{_TO_DO[action]}, because lighter repairs did not last"
    if action is Action.RESET_GPU and not resets_alone(state):
        return _RESET_ALL
    return _TO_DO[action]


def resets_alone(state: NodeState) -> bool:
    """Return whether a single GPU can be reset: not before Ampere, nor on A100 with NVSwitch."""
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
    """Return the device of an incident: `GPU 3 (0000:3b:00)`, `NVSwitch at 0000:0a:00`."""
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
    """Return the message for unknown GPU health."""
    default = f"GPU health is unknown ({reason}). Check the agent's data sources on this node."
    return _UNKNOWN.get(reason, default)


WARNING = "Warning"
NORMAL = "Normal"


class NodeEvent(msgspec.Struct, frozen=True):
    """One Event about the node."""

    type: str
    reason: str
    message: str


def events_for(state: NodeState, changes: tuple[Change, ...]) -> tuple[NodeEvent, ...]:
    """Return the Events for the changes of one observation; `state` is the new state."""
    events = (_event(state, change) for change in changes)
    return tuple(event for event in events if event is not None)


def _event(state: NodeState, change: Change) -> NodeEvent | None:
    incident = change.incident
    if incident is not None:
        if incident.row.severity is Severity.INFO:
            return None
        if change.kind is ChangeKind.CLOSED:
            about = subject(state, incident)
            sentence = f"{about}: {_spelled(change.reason)} ended ({incident.closed_by})."
            if incident.closed_by == patterns.COMMON:
                named = _spelled(change.reason)
                sentence = f"{about}: {named} continues as one incident of the node."
            return NodeEvent(NORMAL, change.reason, sentence)
        if not incident.active:
            return None
        return NodeEvent(WARNING, change.reason, incident_sentence(state, incident, 0))
    match change.kind:
        case ChangeKind.STAND_DOWN:
            return NodeEvent(
                NORMAL, change.reason, "The agent released the GPUs on request. No GPU is "
                                       "reported lost until they are back."
            )  # fmt: skip
        case ChangeKind.STAND_DOWN_EXPIRED:
            return NodeEvent(
                WARNING, change.reason, "The GPUs were released for over two hours. The agent "
                                        "uses them again. Remove the label or annotation that "
                                        "requests the release."
            )  # fmt: skip
        case _:
            return None
