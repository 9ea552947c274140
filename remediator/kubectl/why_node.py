"""A node in `why`: its health, why nothing is done about it, its taints and cordon with their
owners, what people wrote on it. Pure."""

from collections.abc import Iterator
from typing import Final

from remediator.kube import resources
from remediator.kubectl import node_state, why_causes
from remediator.kubectl.node_state import NodeLook
from remediator.view import operators
from rules.api import health, messages, names, quarantine_taint, timestamps
from rules.api.health import SourceStatus
from rules.api.nodes import FreshNode, QuarantineView
from rules.api.timestamps import TimeFormat
from rules.catalog.reason import Severity
from rules.catalog.why_not import WhyNot
from rules.fleet import node_health
from rules.session import causes, exclusions, halts, isolation, observation
from rules.session.history import NotOpened, Opening
from rules.session.repair import ladder
from rules.session.status import blocked_by
from rules.text.printable import is_pasteable

OVERDUE_S: Final = 60.0
"""A session opens within seconds of a health status, another leader within twenty."""
_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
"""Kubernetes adds it with every cordon; the cordon has its own line."""
_BY_PEOPLE: Final = {
    names.ANNOTATION_HOLD: "held",
    names.ANNOTATION_REPAIRED: "repaired",
    names.ANNOTATION_EXPECTED_GPUS: "expected GPUs",
    names.ANNOTATION_RELEASE_GPU: "the agent releases the driver",
}


def taint_lines(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """Taints and cordon with their owners, and what will stay."""
    node = look.node
    if node is None:
        return
    note = quarantine_taint.read_note(node)
    for taint in node.spec.taints:
        if taint.key == _CORDON_TAINT:
            continue
        value = f"={taint.value}" if taint.value else ""
        owner = "set" if taint.key == names.TAINT_QUARANTINE else "not set"
        yield f"taint {taint.key}{value}:{taint.effect}, {owner} by gpuward"
    if node.spec.unschedulable:
        yield f"cordon, {_cordon_owner(node, look.times)}"
    if note is not None and (session is None or note.session != session.name):
        yield f"session {note.session} has ended: the remediator removes its taint and cordon"


def domain_lines(look: NodeLook) -> Iterator[str]:
    """The NVLink domain of the node and the jobs that use it."""
    if look.node is not None and (domain := look.node.labels.get(names.LABEL_NVLINK_DOMAIN)):
        yield f"NVLink domain {domain}"
        yield from (one.clause(look.name) for one in look.compute_domains)
    asked = causes.requested_domain(look.session) if look.session is not None else ""
    if is_pasteable(asked):
        yield f"quarantined as a unit: kubectl gpuward why --nvlink-domain {asked}"


def device_lines(session: QuarantineView | None) -> Iterator[str]:
    """The isolated devices with their taints, or why the node is isolated instead."""
    if session is None:
        return
    for each in session.status.devices:
        rule = f"DeviceTaintRule {each.rule}" if each.rule else "no DeviceTaintRule"
        yield f"{each.device or 'not published'} of pool {each.pool} ({each.uuid}): {rule}"
        for taint in each.taints:
            yield f"{each.device}: {taint} of the DRA driver, until its plugin restarts"
    why = session.status.evidence.get(isolation.EVIDENCE_NODE)
    if isinstance(why, str) and not session.status.devices:
        yield f"none: {why}"


def _cordon_owner(node: FreshNode, times: TimeFormat) -> str:
    note = quarantine_taint.read_note(node)
    if note is not None and note.prior_unschedulable:
        return (
            f"not set by gpuward: {quarantine_taint.cordon_stays(node)}, and it stays after a "
            "release"
        )
    if note is not None and "Cordon" in note.parts:
        stays = quarantine_taint.cordon_stays(node)
        return f"set by gpuward{f'; it stays after a release: {stays}' if stays else ''}"
    managers = [
        entry
        for entry in node.metadata.managed_fields
        if isinstance(entry.fields_v1.get("f:spec"), dict)
        and "f:unschedulable" in entry.fields_v1["f:spec"]
    ]
    if not managers:
        return "not set by gpuward"
    last = max(managers, key=lambda entry: entry.time)
    return f"set by {last.manager[:100]} {times.ago(last.time)}, not by gpuward"


def _at_a_readable_time(value: str, times: TimeFormat) -> str:
    """Return the note of the annotation with the time at its start in a readable form."""
    first, _, rest = value.partition(" ")
    known = timestamps.parse_time(first) is not None
    return f"{times.ago(first)} {rest}".rstrip() if known else value


def kept_lines(look: NodeLook) -> Iterator[str]:
    """Hold, opt-out, pauses and other annotations of operators."""
    node = look.node
    if node is not None:
        # A session that waits for it quotes what the operator wrote.
        quoted = look.session is not None and blocked_by(look.session.status) == WhyNot.HOLD
        for key, text in _BY_PEOPLE.items():
            value = node.annotations.get(key)
            if value is not None and not (key == names.ANNOTATION_HOLD and quoted):
                yield f"{text}: {_at_a_readable_time(value, look.times)}{_unheard(key, value)}"
        yield from why_causes.disagreement(look)
        if exclusions.opted_out(node):
            yield "opted out: gpuward reports faults and does not change the node"
        if unheard := halts.invalid_opt_out(node):
            yield unheard
    yield from operators.pause_lines(look.pauses, look.times)


def _unheard(key: str, value: str) -> str:
    """Of a number of GPUs that no agent takes."""
    if key != names.ANNOTATION_EXPECTED_GPUS or health.annotated_count(value) is not None:
        return ""
    return f" (no number from 0 to {health.MAX_GPUS}, so it is ignored)"


def health_lines(look: NodeLook) -> Iterator[str]:
    """How its GPUs are and whether that can be believed; its clock; data sources that are down."""
    if look.health is None:
        labels = look.node.labels.keys() if look.node is not None else frozenset()
        if names.LABEL_GPUS in labels:  # an agent wrote that, so one published once
            yield (
                "Unknown: the node's GPUNodeHealth no longer exists; a running agent recreates it "
                "within minutes"
            )
        else:
            yield "Unknown: no agent has ever published a health status for this node"
        if (
            look.node is not None
            and names.LABEL_GPUS not in labels
            and not node_state.has_gpus(look.node)
        ):
            yield "no label of the node shows NVIDIA GPUs; a node without GPUs needs no agent"
        yield from filter(None, [operators.clock_message(look.node, None, look.now)])
        yield from _see_agent(look)
        return
    status = look.health.status
    text = ", ".join(
        part
        for part in (
            status.health,
            status.gpus_healthy
            and f"{status.gpus_healthy} GPUs usable{operators.degraded_of(status)}",
            status.driver_version and f"driver {status.driver_version}",
        )
        if part
    )
    written = look.times.ago(status.observed_at)
    if look.stale:
        since = f" {look.times.since(status.silent_since)}" if status.silent_since else ""
        state = look.health_now.value
        if state == node_health.UNKNOWN:
            last = f"the last health status, {written}, was {text}"
            yield f"{state}: {look.stale}{since}; {last}"
        else:
            yield f"{text}; last changed {written}, and now {look.stale}"
        if look.stale in observation.AGENT_PROBLEMS and not any(
            each.state == "Released" for each in status.sources
        ):
            yield from _see_agent(look)
    else:
        # Without a right to read nodes and pods a silent agent is known minutes later.
        alive = "" if look.node is None or look.agents is None else ", agent running"
        yield f"{text}; last changed {written}{alive}"
    yield from filter(None, [operators.clock_message(look.node, look.health, look.now)])
    if status.message and status.health != "Healthy":
        yield status.message
    if look.node is not None and (failed := exclusions.failed_owner(look.node)):
        yield failed
    for source in status.sources:
        if source.state == "Released":
            yield _released(look, source)
        elif source.state == "Down":
            since = f" {look.times.since(source.since)}" if source.since else ""
            yield f"source {source.name} is {source.state}{since}: {source.reason or 'no reason'}"


def _released(look: NodeLook, source: SourceStatus) -> str:
    since = f" {look.times.ago(source.since)}" if source.since else ""
    owner = exclusions.working_owner(look.node, None, look.now) if look.node is not None else ""
    step = ladder.under_way(look.session.status) if look.session is not None else None
    repair = f"{step.step} of session {look.session.name}" if step and look.session else ""
    why = owner or repair or "an operator requested it"
    return (
        f"the agent closed the driver{since} on request: {why}; it opens the driver again "
        "afterwards, after two hours at the latest"
    )


def _see_agent(look: NodeLook) -> Iterator[str]:
    """Yield the command that shows the agent of this node."""
    if look.agents is None:
        return
    if not look.agents:
        yield "no gpuward-agent pod runs on this node; check the DaemonSet:"
        yield "kubectl get daemonset -A -l app.kubernetes.io/name=gpuward"
        return
    yield (
        f"kubectl get pods -A -o wide -l {resources.AGENT_SELECTOR} --field-selector "
        f"spec.nodeName={look.name}"
    )


def quiet_lines(look: NodeLook) -> Iterator[str]:
    """Yield why gpuward does nothing for a faulty or unknown node without an open session."""
    incidents = look.health.status.incidents if look.health else ()
    active = [i for i in (*incidents, *look.external) if i.active]
    if look.node is None:
        return
    found = look.opening
    if not active and (look.stale or look.health is None):
        yield "nothing: gpuward does not treat missing data as a failure"
    elif active and found is None:
        names_ = messages.name_list(incident.reason for incident in active)
        are = "is" if len({incident.reason for incident in active}) == 1 else "are"
        stays = "as it is" if look.node.spec.unschedulable else "in service"
        yield f"nothing: {names_} {are} only reported (level Report); the node stays {stays}"
    elif active and found is not None:
        yield from _not_opened(look, found)


def policy_lines(look: NodeLook) -> Iterator[str]:
    """Yield the policy of the node and its mode, where the file has pools."""
    if look.policy is not None and look.policy.shown_name:
        yield f"{look.policy.name}, mode {look.policy.mode}"


def left_to_people(look: NodeLook) -> bool:
    """Whether something is wrong with the node in service that only an operator would act on."""
    if look.session is not None or look.health is None or look.node is None or look.stale:
        return False
    found = look.opening
    if found is not None:
        return found.not_opened is NotOpened.ENDED_BY_OPERATOR
    return any(i.active and i.severity != Severity.INFO for i in look.health.status.incidents)


def _not_opened(look: NodeLook, found: Opening) -> Iterator[str]:
    """The first thing that keeps a session from opening, or from touching the node."""
    until = look.times.until(found.until) if found.until is not None else ""
    shadow = look.shadow_texts
    match found.not_opened:
        case NotOpened.OPTED_OUT:
            label = f"kubectl label node {look.name} {names.LABEL_OPT_OUT}-"
            yield f"nothing while the node is opted out; to opt in: {label}"
        case NotOpened.NOT_SELECTED:
            selector = look.policy.node_selector if look.policy is not None else ""
            yield f"nothing: the policy's nodeSelector {selector!r} does not select it"
        case NotOpened.STALE | NotOpened.REPORTED if look.stale:
            yield "nothing while its health status is stale: repair the agent first"
        case NotOpened.ENDED_BY_OPERATOR:
            last = next(s for s in reversed(look.sessions) if causes.ended_by_operator(s))
            yield (
                f"nothing {until}: an operator ended session {last.name}. These incidents "
                "open no new session until then. A new incident, a fault of another GPU or a more "
                "severe fault can open one."
            )
            yield f"{last.name}: {last.status.message}"
        case _ if shadow is not None and shadow.unintended:
            yield f"nothing in Shadow mode: {shadow.unintended}; {shadow.ended_by} ends it"
        case _ if shadow is not None:
            yield "nothing in Shadow mode; kubectl gpuward plan shows what mode Enforce would do"
        case _ if look.pauses:
            yield f"nothing while it is paused: {operators.resume_command(look.pauses)}"
        case _:
            yield _opens(look, found)


def _opens(look: NodeLook, found: Opening) -> str:
    """That a session opens, or should have: a right may be lost, and a remediator that may not
    write cannot report that here.
    """
    seen_at = [timestamps.parse_time(incident.first_seen) for incident in found.incidents]
    ended_at = [timestamps.parse_time(session.status.phase_since) for session in look.sessions]
    since = max((at for at in (*seen_at, *ended_at) if at is not None), default=look.now)
    if look.leader.cannot_act or look.now - since <= OVERDUE_S:
        return "a session opens within seconds"
    return (
        f"a session should have opened {look.times.ago(since)}; the remediator does not act: "
        "check its permissions with kubectl gpuward preflight, and keep new pods off the node "
        f"with kubectl cordon {look.name}"
    )
