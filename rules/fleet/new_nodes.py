"""Test new nodes under load while no pod uses a GPU there.

The Job requests all GPUs of the node at the lowest priority. If it does not start in time or is
preempted, it is retried later. The result is the node's condition GPUValidated, for which a gate
for new nodes can wait. A failed test opens a session like any other fault.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rules.api import messages, names, pods, selectors, timestamps
from rules.api.nodes import NodeView
from rules.api.quarantine import Mode, QuarantineSpec
from rules.api.repair_writes import CreateTestJob, DeleteTestJob
from rules.api.writes import CreateSession, Write
from rules.catalog.reason import Level
from rules.fleet import budget
from rules.policy.policy import Policy, Validation
from rules.session import causes, exclusions, observation
from rules.session.observation import FleetSnapshot
from rules.session.validation.jobs import (
    ANNOTATION_BOOT,
    ANNOTATION_NODE,
    ANNOTATION_OF,
    GPU_RESOURCE,
    JobSeen,
    JobView,
    claims_gpus,
    name_of_test,
    new_node_job_of,
    reported_on,
)
from rules.session.validation.result import REASON, Assessment, Result, cause_of_test, outcome_of

STARTS_S = 120.0
"""If the pod of a Job does not run by then, the node is busy."""
AT_ONCE = 10
"""The most tests at once, so that a bad test image fails only a few nodes before a pause."""
AGAIN_S = 3600.0
"""How soon the test of a busy node, or one without a result, is retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleStep:
    """The next writes, and the nodes whose test had no result."""

    writes: tuple[Write, ...] = ()
    in_vain: tuple[str, ...] = ()


def follow(snapshot: FleetSnapshot, jobs: Sequence[JobSeen]) -> IdleStep:
    """Read the results of finished tests and delete obsolete Jobs."""
    writes: list[Write] = []
    in_vain: list[str] = []
    for seen in jobs:
        node = _node_of(seen, snapshot)
        if seen.job is None or node is None:
            continue
        if not asks_for_pods(seen.job, snapshot):
            if seen.job.passed:
                writes.append(_deletion(seen, node, snapshot))
            continue
        result = _result(seen, node, snapshot)
        if result is None:
            continue
        if result.assessment is Assessment.UNKNOWN:
            in_vain.append(node.name)
            writes.append(_deletion(seen, node, snapshot))
        elif not _known(seen.job, node):
            writes += _reported(seen, node, result, snapshot)
    return IdleStep(writes=tuple(writes), in_vain=tuple(in_vain))


def asks_for_pods(job: JobView, snapshot: FleetSnapshot) -> bool:
    """Return whether the pods of this Job are needed: it runs, or the node lacks its result."""
    node = _node_of(JobSeen(name=job.metadata.name, job=job), snapshot)
    return node is not None and not (job.over and _known(job, node))


def due(snapshot: FleetSnapshot, jobs: Sequence[JobSeen], tried: Mapping[str, float]) -> list[str]:
    """Return the nodes to test now: those without a result, by name, at most `AT_ONCE`."""
    if not any(map(_tests, snapshot.policy.policies)) or snapshot.doubt:
        return []
    selects = selectors.parse_selector(snapshot.policy.node_selector)
    selected = [node for node in snapshot.nodes.values() if selects(node.labels)]
    going_on = (s for s in jobs if s.job is not None and not s.job.over)
    running = {n.name for s in going_on if (n := _node_of(s, snapshot)) is not None}
    room = AT_ONCE - len(running)
    taken = _in_quarantine(snapshot)
    # Lazy: only as many nodes are checked as tests may start.
    free = (
        node.name
        for node in sorted(selected, key=lambda node: node.name)
        if node.condition(names.CONDITION_VALIDATED) is None
        and _tests(snapshot.policy_of(node))
        and node.name not in running
        and snapshot.now - tried.get(node.name, float("-inf")) >= AGAIN_S
        and not why_not_now(node, snapshot, taken)
    )
    return list(islice(free, max(0, room)))


def _tests(policy: Policy) -> bool:
    return policy.validate.tests_new_nodes and policy.mode != Mode.SHADOW


def making(
    name: str, tests: Validation, template: Mapping[str, object], snapshot: FleetSnapshot
) -> CreateTestJob | None:
    """Return the write that creates the test Job; None if the node is gone, or if the template
    requests GPUs in another way than the node offers them.
    """
    node = snapshot.nodes.get(name)
    if node is None or claims_gpus(template) is not _claimed(node):
        return None
    # The name includes the hour, so that a second leader finds the Job of the first.
    job = name_of_test(f"{name}-new", int(snapshot.now // AGAIN_S))
    return CreateTestJob(
        node=name,
        node_uid=node.uid,
        session="",
        namespace=snapshot.own_namespace,
        name=job,
        body=new_node_job_of(
            template, name=job, node=node, gpus=_gpus(node), timeout_s=tests.timeout_s
        ),
    )


def _in_quarantine(snapshot: FleetSnapshot) -> frozenset[str]:
    return frozenset(
        s.spec.node_name for s in snapshot.quarantines.values() if observation.is_open(s)
    )


def why_not_now(node: NodeView, snapshot: FleetSnapshot, taken: Collection[str]) -> str:
    """Return why a node may not be tested now; "" if it may. `taken` have an open session."""
    if node.doubt or not (_gpus(node) or _claimed(node)):
        return "it has no GPUs that a pod can request"
    if budget.control_plane(node):
        return "it is a control-plane node"
    if node.spec.unschedulable or node.ready != "True":
        return "it takes no pods"
    if names.ANNOTATION_HOLD in node.annotations:
        return "an operator holds it"
    if node.name in taken:
        return "it is in quarantine"
    health = snapshot.healths.get(node.name)
    if health is not None and health.status.health == "Unhealthy":
        return "its health status is Unhealthy"
    return exclusions.kept_off(node, snapshot)


def _gpus(node: NodeView) -> int:
    """Return the number of GPUs; 0 for a node with MIG devices or shared GPUs."""
    amounts = {name: n for name, n in pods.gpu_amounts(node.status.allocatable).items() if n > 0}
    return amounts.get(GPU_RESOURCE, 0) if amounts.keys() <= {GPU_RESOURCE} else 0


def _claimed(node: NodeView) -> bool:
    """Return whether the node has GPUs without MIG and no device plugin offers them: pods get them
    through ResourceClaims.
    """
    entire = node.labels.get(names.LABEL_MIG, "none") == "none"
    offered = any(pods.gpu_amounts(node.status.allocatable).values())
    return names.LABEL_GPUS in node.labels and entire and not offered


def _node_of(seen: JobSeen, snapshot: FleetSnapshot) -> NodeView | None:
    """Return the Node of the Job, if it is still the same object."""
    notes = seen.job.metadata.annotations if seen.job is not None else {}
    node = snapshot.nodes.get(notes.get(ANNOTATION_NODE, ""))
    return node if node is not None and notes.get(ANNOTATION_OF) == node.uid else None


def _known(job: JobView, node: NodeView) -> bool:
    """Return whether the node has the result of this Job or of a later one."""
    known = node.condition(names.CONDITION_VALIDATED)
    if known is None:
        return False
    at = timestamps.parse_time(known.last_heartbeat_time or "") or 0.0
    own = known.message.startswith(f"{job.metadata.name}: ")
    return own or 0 < job.metadata.created_at <= at


def _result(seen: JobSeen, node: NodeView, snapshot: FleetSnapshot) -> Result | None:
    """Return the test's result; unknown if the Job has to end; None while it runs."""
    assert seen.job is not None
    meta = seen.job.metadata
    if node.boot_id and meta.annotations.get(ANNOTATION_BOOT) != node.boot_id:
        return Result(assessment=Assessment.UNKNOWN, message="the node rebooted")
    outcome = outcome_of(seen, node=node.name, made_for=node.uid, job_uid=meta.uid)
    if outcome.result is not None:
        return outcome.result
    runs = any(pod.status.phase == "Running" for pod in seen.pods)
    if not runs and snapshot.now - meta.created_at > STARTS_S:
        return Result(assessment=Assessment.UNKNOWN, message="the node was busy")
    if why := why_not_now(node, snapshot, _in_quarantine(snapshot)):
        return Result(assessment=Assessment.UNKNOWN, message=why)
    return None


def _deletion(seen: JobSeen, node: NodeView, snapshot: FleetSnapshot) -> DeleteTestJob:
    assert seen.job is not None
    return DeleteTestJob(
        node=node.name,
        namespace=snapshot.own_namespace,
        name=seen.name,
        uid=seen.job.metadata.uid,
    )


def _reported(
    seen: JobSeen, node: NodeView, result: Result, snapshot: FleetSnapshot
) -> Iterable[Write]:
    """Return the writes of a result: the session first, since the condition ends the test."""
    sessions = [s for s in snapshot.quarantines.values() if s.spec.node_name == node.name]
    opened = any(c.incident == seen.name for s in sessions for c in s.spec.causes)
    if result.assessment is not Assessment.PASS and not opened:
        cause = cause_of_test(seen.name, result.assessment, messages.bounded(result.message)[:512])
        level = snapshot.policy_of(node).level_of(REASON, str(Level.DRAIN))
        if level not in {Level.REPORT, Level.CORDON, Level.DRAIN}:
            level = str(Level.DRAIN)
        if level != Level.REPORT:
            spec = QuarantineSpec(
                node_name=node.name,
                node_uid=node.uid,
                boot_id=node.boot_id,
                causes=(cause,),
                level=level,
            )
            yield CreateSession(name=causes.session_name(node, seen.name, sessions), spec=spec)
    passed = result.assessment is Assessment.PASS
    yield reported_on(
        node,
        seen.name,
        passed=passed,
        message=result.message or result.assessment,
        now=snapshot.now,
    )
