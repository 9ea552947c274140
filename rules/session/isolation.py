"""Decide whether a session isolates the accused GPUs or the node, and remove its device taints.

If the policy asks for it and the fault concerns single GPUs, each device of an accused GPU gets a
DeviceTaintRule (`rules.api.device_taints`). The node gets its label and session annotation with
parts `Device`, without taint and cordon, so that the other GPUs stay in service. `device_check`
follows the rules while the session is open.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api import device_taints, messages, resource_slices, timestamps
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import IsolatedDevice, QuarantineStatus
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import ObjectAddress
from rules.api.resource_slices import GpuDevice, NodeDevices, ResourceSliceView
from rules.api.writes import Decision
from rules.catalog.reason import Action
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Isolated, Policy
from rules.repair import objects
from rules.repair.objects import Json, ObjectSeen, ReadState
from rules.session import drain_scope
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.causes import DETECTOR
from rules.session.repair import endings, ladder, withdrawal
from rules.session.repair.request import FRESH_S, read_lately

EVIDENCE_NODE: Final = "nodeIsolated"
"""In `status.evidence`: why the node is isolated although the policy asks for devices."""
ISOLATED: Final = "Isolated"
"""Timeline step: what the session isolates."""
LEFT: Final = "DeviceTaintLeft"
"""Timeline step: rules that an operator has to delete."""
MAX_DEVICES: Final = 64
"""Devices that a session isolates; the CRD allows as many. One GPU has up to seven MIG devices in
use, and more names for MIG devices that could be created."""
_OF_ONE_GPU: Final = frozenset(
    {
        Action.NONE,
        Action.RESTART_APP,
        Action.RESET_GPU,
        Action.INVESTIGATE,
        Action.RUN_DIAGNOSTICS,
    }
)
"""Recommended actions that concern no other GPU and not the node."""
_USABLE: Final = frozenset({"Healthy", "Degraded"})
_CLASSIC: Final = "nvidia.com/gpu"
_MAX_TAINTS: Final = 8
_RETRIED_S: Final = 30.0
"""How long a new session waits for slices that can be read and are complete."""
_ACTS_S: Final = 60.0
"""How long after its creation a rule needs a condition. It takes three seconds."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """The devices to isolate. If there are none, the node is; `why` is a clause, "" if the policy
    asks for the node.
    """

    devices: tuple[IsolatedDevice, ...] = ()
    why: str = ""


def choice(case: Case) -> Decision | Isolation:
    """Return what the session isolates, or the decision that reads what this depends on."""
    if not wants_devices(case):
        return Isolation()
    if why := why_node(case):
        return Isolation(why=why)
    rules = rules_of(case)
    if isinstance(rules, Decision):
        return rules
    if rules.state is not ReadState.FOUND:
        found = Isolation(why=no_rules(rules))
        return found if rules.state is not ReadState.UNREAD else _retried(case, found)
    known = devices_of(case)
    if isinstance(known, Decision):
        return known
    found = resolved(case, known, ())
    return _retried(case, found) if found.why and not known.complete else found


def _retried(case: Case, found: Isolation) -> Decision | Isolation:
    """Return a decision without writes while a session is new: the API server may answer again,
    and the driver publishes its slices one by one.
    """
    if case.now - case.session.metadata.created_at >= _RETRIED_S:
        return found
    stored = case.session.status
    return Decision(
        step="ReadObject",
        because=found.why,
        message=stored.message,
        status=stored,
        wake_at=case.now + FRESH_S,
    )


def wants_devices(case: Case) -> bool:
    """Return whether the policy asks for devices for any active cause."""
    return any(case.policy.isolates(cause.reason) is Isolated.DEVICE for cause in case.causes)


def may_isolate(session: QuarantineView, policy: Policy) -> bool:
    """Return whether the policy asks for devices for every cause of the session."""
    causes = session.spec.causes
    return bool(causes) and all(policy.isolates(c.reason) is Isolated.DEVICE for c in causes)


def why_node(case: Case) -> str:
    """Return why the node has to be isolated, without reading anything; "" if devices may be."""
    for cause in case.causes:
        name = cause.reason or "the request of an operator"
        if cause.source != DETECTOR:
            return f"{name} is no fault of a GPU that the agent reports"
        if case.policy.isolates(cause.reason) is Isolated.NODE:
            return f"the policy isolates the node for {name}"
        incidents = case.seen.health.status.incidents if case.seen.health is not None else ()
        if not any(each.gpus for each in incidents if each.id == cause.incident):
            return f"{name} names no GPU"
        (action,) = ladder.asked_for(case.session, (cause,), case.seen.health, case.policy)
        if action not in _OF_ONE_GPU:
            return f"{name} needs {action}"
    if why := drain_scope.no_single_gpu(case.session, case.causes, case.seen.health):
        return why
    accused = drain_scope.accused_gpus(case.session, case.seen.health)
    gpus = case.seen.health.status.gpus if case.seen.health is not None else ()
    if not any(gpu.uuid not in accused and gpu.health in _USABLE for gpu in gpus):
        return "no other GPU of the node is usable"
    if has_plugin(case.node):
        return f"the node offers {_CLASSIC} through the device plugin"
    lost = st.entries_lost(case.seen.not_kept, "devices")
    refused = lost or case.seen.refused.get(NodeWrite.DEVICE)
    return refused.why if refused is not None and refused.permanent else ""


def has_plugin(node: NodeView) -> bool:
    """Return whether the node offers GPUs through the device plugin, past every device taint."""
    return node.status.allocatable.get(_CLASSIC, "0") != "0"


def rules_of(case: Case) -> Decision | ObjectSeen:
    """Return all DeviceTaintRules, in the newest version that the API server serves."""
    newest, older = (device_taints.address(version) for version in device_taints.VERSIONS)
    query, seen = newest, read_lately(case, newest, FRESH_S)
    if seen is not None and seen.state is ReadState.NOT_SERVED:
        query, seen = older, read_lately(case, older, FRESH_S)
    return seen or endings.reading(query, "the isolation of a GPU depends on")


def no_rules(seen: ObjectSeen) -> str:
    """Return why DeviceTaintRules cannot be used, as a clause."""
    if seen.state is ReadState.FORBIDDEN:
        return "component devices is not installed"
    return seen.why


def without_effect(rule: Json, now: float) -> str:
    """Return why the rule has no effect, as a clause; "" while it may have one.

    The API server accepts rules with its feature gate off. The controller manager sets a condition
    within seconds if its own gate is on.
    """
    made_at = timestamps.parse_time(str(objects.at(rule, "metadata.creationTimestamp")))
    if objects.at(rule, "status.conditions") or made_at is None or now - made_at < _ACTS_S:
        return ""
    return "no controller acts on DeviceTaintRules (feature gate DRADeviceTaintRules)"


def own_rules(case: Case, seen: ObjectSeen) -> dict[str, Json]:
    """Return the rules of the session, by name."""
    uid = case.session.metadata.uid
    return {
        str(objects.at(rule, "metadata.name")): rule
        for rule in seen.found
        if (labels := objects.at(rule, "metadata.labels"))
        and isinstance(labels, dict)
        and labels.get(device_taints.LABEL_SESSION) == uid
    }


def devices_of(case: Case) -> Decision | NodeDevices:
    """Return the devices in the ResourceSlices of the node."""
    node = case.seen.name
    query = ObjectAddress(
        api_version=device_taints.VERSIONS[0],
        resource="resourceslices",
        fields=resource_slices.fields_of(resource_slices.GPU_DRIVER, node),
    )
    seen = read_lately(case, query, FRESH_S)
    if seen is None:
        return endings.reading(query, "the devices of the accused GPUs are in")
    try:
        slices = msgspec.convert(seen.found, tuple[ResourceSliceView, ...])
    except (msgspec.ValidationError, RecursionError):
        return NodeDevices()
    found = seen.state is ReadState.FOUND
    return resource_slices.node_devices(node, slices, all_read=found)


def resolved(case: Case, known: NodeDevices, recorded: tuple[IsolatedDevice, ...]) -> Isolation:
    """Return the devices of the accused GPUs in `known`.

    A GPU that is not published keeps its `recorded` devices, without rule if another GPU has the
    name now. A GPU that never had a device is a reason to isolate the node.
    """
    devices: list[IsolatedDevice] = []
    before = {(each.driver, each.pool, each.device): each for each in recorded}
    for uuid in sorted(drain_scope.accused_gpus(case.session, case.seen.health)):
        found = known.of_gpu(uuid)
        kept = [each for each in recorded if each.uuid == uuid]
        if not found and not kept:
            return Isolation(why=f"no ResourceSlice of the node shows GPU {uuid}")
        if not found:
            devices += [each if _still(each, known) else _nameless(each) for each in kept]
        for device in found or ():
            new = _device(case, uuid, device)
            same = before.get(device.address)
            uid = same.rule_uid if same is not None and same.uuid == uuid else ""
            devices.append(msgspec.structs.replace(new, rule_uid=uid))
    if len(devices) > MAX_DEVICES:
        return Isolation(why=f"the accused GPUs have {len(devices)} devices")
    return Isolation(devices=tuple(devices))


def _still(device: IsolatedDevice, known: NodeDevices) -> bool:
    """Return whether no other GPU has the name of the device."""
    address = resource_slices.DeviceAddress(device.driver, device.pool, device.device)
    return known.gpu_of(address) in {"", device.uuid}


def _nameless(device: IsolatedDevice) -> IsolatedDevice:
    return msgspec.structs.replace(device, rule="", rule_uid="")


def _device(case: Case, uuid: str, device: GpuDevice) -> IsolatedDevice:
    taints = (f"{each.key}={each.value}:{each.effect}"[:256] for each in device.taints)
    return IsolatedDevice(
        uuid=uuid,
        driver=device.address.driver,
        pool=device.address.pool,
        device=device.address.device,
        rule=device_taints.rule_name(case.session.metadata.uid, *device.address),
        taints=tuple(taints)[:_MAX_TAINTS],
    )


def with_reason(status: QuarantineStatus, why: str, now: float) -> QuarantineStatus:
    """Return the status with the reason why the node is isolated instead of devices."""
    evidence = {**status.evidence, EVIDENCE_NODE: why[:300]}
    return st.noted(touched(status, evidence=evidence), ISOLATED, f"the node: {why}", now)


def noted(
    status: QuarantineStatus, devices: Sequence[IsolatedDevice], now: float
) -> QuarantineStatus:
    """Return the status with a timeline entry of the devices."""
    return st.noted(status, ISOLATED, messages.isolated_devices(devices), now)


def removed(case: Case) -> Decision | str:
    """Return the decision that deletes the session's rules; once there are none, "", or a clause
    with those that an operator has to delete.

    The names of the rules are removed from the status first. Otherwise a missing rule would count
    as deleted by an operator. If one is, that ends the session at every decision.
    """
    devices = case.status.devices
    if not devices:
        return ""
    seen = rules_of(case)
    if isinstance(seen, Decision):
        return seen
    found = own_rules(case, seen)
    by_operator = seen.state is ReadState.FOUND and altered(case, seen)
    if not by_operator and any(each.rule for each in devices):
        status = touched(case.status, devices=tuple(map(_nameless, devices)))
        return case.decision("UntaintDevice", status, because=_REMOVED, wake_at=case.now)
    if seen.state is ReadState.NOT_SERVED or (seen.state is ReadState.FOUND and not found):
        return ""
    refused, since, why = case.seen.refused.get(NodeWrite.DEVICE), seen.failing_since, seen.why
    if refused is not None:
        since, why = refused.since, refused.why
    elif seen.state is ReadState.FOUND:
        writes = tuple(untaint(case, seen, rule) for rule in found.values())
        return case.decision("UntaintDevice", case.status, because=_REMOVED, before=writes)
    left = f"DeviceTaintRules {device_taints.LABEL_SESSION}={case.session.metadata.uid} ({why})"
    waited_s = case.now - since if since is not None else 0.0
    if seen.state is ReadState.FORBIDDEN or waited_s >= withdrawal.WITHDRAWAL_S:
        return left
    clause = f"the device taints of the session could not be removed yet: {why}"
    refusal = Refusal(reason=WhyNot.TAINT_REFUSED, why=clause)
    message = messages.bounded(f"Not ended yet: {clause}.")
    status = st.with_refusal(case.status, case.now, refusal, message)
    return case.decision(
        "UntaintDevice",
        touched(status, message=message),
        because=clause,
        blocked_by=refusal.reason,
        wake_at=case.now + FRESH_S,
    )


_REMOVED: Final = "its device taints are removed"


def altered(case: Case, seen: ObjectSeen) -> str:
    """Return the name of a rule that an operator deleted or changed; "" if all are as created."""
    own = own_rules(case, seen)
    for device in case.status.devices:
        if not device.rule_uid:
            continue
        spec = taint(case, "", device, "").spec
        same = all(
            objects.at(own.get(device.rule, {}), f"spec.{part}.{key}") == value
            for part, values in spec.items()
            for key, value in values.items()
            if key != "value"
        )
        if not same:
            return device.rule
    return ""


def taint(case: Case, api_version: str, device: IsolatedDevice, reason: str) -> TaintDevice:
    """Return the write that creates the rule of the device."""
    return TaintDevice(
        node=case.seen.name,
        node_uid=case.seen.uid,
        session=case.session.name,
        session_uid=case.session.metadata.uid,
        api_version=api_version,
        device=device,
        reason=reason,
        effect=device_taints.NO_EFFECT if case.shadow else device_taints.NO_SCHEDULE,
    )


def untaint(case: Case, seen: ObjectSeen, rule: Json) -> UntaintDevice:
    """Return the write that deletes exactly this rule."""
    return UntaintDevice(
        node=case.seen.name,
        session=case.session.name,
        api_version=seen.api_version,
        name=str(objects.at(rule, "metadata.name")),
        uid=objects.uid_of(rule),
        resource_version=objects.version_of(rule),
    )


def foreign_taints(devices: Iterable[IsolatedDevice]) -> str:
    """Return the taints of the DRA driver that stay on the devices, as a clause; "" if none."""
    found = [
        f"{each.device} ({messages.name_list(each.taints)})" for each in devices if each.taints
    ]
    return f"the DRA driver still taints {messages.name_list(found)}" if found else ""
