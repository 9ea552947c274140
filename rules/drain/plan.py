"""Plan the drain of one node: which pods to evict, which stay and why, what blocks.

The remediator calls `plan_drain` whenever the node's pods changed, while the session's decision is
`Evicting.GO` (or `PROBE`). The pods come from a watch or a list. A node is drained when it had no
pod to evict for `settle`, the pods are certain (`DrainInput.certain`), and the volumes of the
evicted pods are detached or past their timeout.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from rules.api import timestamps
from rules.api.pods import PodView
from rules.api.quarantine import PodNote
from rules.api.workloads import PdbView
from rules.api.writes import DeletePod, EvictPod, SetDisruptionTarget
from rules.catalog.reason import DrainScope, Severity
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import blockers, drain_plan, eviction, gangs, notice
from rules.drain.drain_plan import DrainInput, DrainPlan, OwnerWanted
from rules.drain.fate import Fate, LeftBy, Moment, PodAssessment, fate_of, is_critical
from rules.drain.memory import DrainMemory, claims, keeps_returning, listed
from rules.policy.policy import Policy

VOLUME_DETACH_S: Final = 360.0
"""Seconds for which volumes of evicted pods may stay attached before the drain ends anyway:
Kubernetes force-detaches them after six minutes."""
_BEFORE_CRITICAL: Final = frozenset({Fate.EVICT, Fate.LEAVING, Fate.WAITS})
_CONFIRM_S: Final = 0.05
"""How soon the pods of a node that seems empty are read for certain."""


def plan_drain(given: DrainInput, policy: Policy, memory: DrainMemory, now: float) -> DrainPlan:
    """Assess every pod and return the plan."""
    owners = given.owners
    pods = sorted((p for p in given.pods if p.spec.node_name == given.node), key=lambda p: p.key)
    budgets = _budgets(pods, given.pdbs)
    memory = listed(memory, pods, now)
    at = _moment(given, policy, now)
    assessments = [(pod, fate_of(pod, given.missing_owners, at)) for pod in pods]
    late = _is_late(given, at) and not given.dry_run
    # Critical pods are evicted once all other pods are gone.
    first = (pod for pod, assessment in assessments if assessment.fate in _BEFORE_CRITICAL)
    critical_turn = min(map(is_critical, first), default=None)
    refusing = _refusing(pods, budgets, memory)
    evict: list[EvictPod] = []
    blocked: list[tuple[PodView, Refusal]] = []
    force: list[tuple[SetDisruptionTarget, DeletePod]] = []
    force_due = False
    waiting: list[str] = []
    for pod, assessment in assessments:
        if assessment.fate in {Fate.STAYS, Fate.STUCK, Fate.OVER}:
            continue
        if assessment.fate is Fate.LEAVING:
            waiting.append(pod.key)
            continue
        due = not given.dry_run and _force_is_due(pod, assessment, given, at)
        pdbs, outcome = budgets[pod.uid], memory.outcomes.get(pod.uid)
        # A PDB's refusal holds for all its pods.
        by_pdb = any(pdb.key in refusing for pdb in pdbs)
        if due and not by_pdb and (outcome is None or not outcome.refused):
            # Regardless of its PDB: a pod is force-deleted only after an eviction was refused.
            force_due = True
            waiting.append(pod.key)
            evict.append(_evict(pod, given, pdbs))
            continue
        if due:
            force.append(_force(pod, given, now))
            if pod.uid not in memory.unforced:
                continue
        blocker = _blocker(pod, assessment, given, pdbs, memory, by_pdb, now)
        if blocker is not None:
            owner = blockers.owner_name(pod, owners)
            blocked.append((pod, replace(blocker, owner=owner)))
        if assessment.fate is Fate.WAITS:
            waiting.append(pod.key)
        elif blocker is None or blocker.reason not in blockers.HOLDING:
            later = critical_turn is not None and is_critical(pod) > critical_turn
            evicts = given.dry_run or late or not later
            # A dry run evicts nothing, so critical pods do not wait.
            if blocker is None or not evicts:
                waiting.append(pod.key)
            if evicts:
                evict.append(_evict(pod, given, pdbs))

    def notes(fate: Fate) -> tuple[PodNote, ...]:
        found = ((p, v) for p, v in assessments if v.fate is fate and v.why)
        return tuple(PodNote(name=p.key, why=v.why) for p, v in found)

    stuck, worst = notes(Fate.STUCK), blockers.worst_of(blocked)
    limits = [refusal.until for _, refusal in blocked if refusal.until is not None]
    remaining = [p for p, v in assessments if v.fate not in {Fate.STAYS, Fate.OVER}]
    memory, drained, wake_at, attached = _settled(memory, pods, remaining, given, policy, now)
    wanted = _unknown_owners(assessments, blocked, given)
    if any(owner.kind == "DaemonSet" for _, owner in wanted):
        drained = False
    unknown = _holders_unknown(evict, pods, given)
    unanswered = [e for e in evict if e.uid not in memory.outcomes]
    notice_until, notify = notice.due(given, assessments, policy, now)
    if notice_until is not None:
        waiting += [pod.key for pod, _ in blocked if pod.key not in waiting]
        evict, force, blocked, force_due, worst = [], [], [], False, None
        wake_at = min(notice_until, wake_at or notice_until)
    plan = DrainPlan(
        memory=memory,
        evict=tuple(evict),
        force=tuple(force),
        notify=notify,
        notice_until=notice_until,
        not_notified=memory.not_notified if notice_until is not None else None,
        force_due=force_due,
        force_refused=next(
            (memory.unforced[d.uid] for _, d in force if d.uid in memory.unforced), None
        ),
        blocked=blockers.grouped(blocked),
        blocked_reason=worst.reason if worst is not None else None,
        blocked_until=max(limits) if limits and len(limits) == len(blocked) else None,
        needs_human=_needs_human(worst, stuck, late),
        waiting=tuple(waiting),
        leaving=sum(assessment.fate is Fate.LEAVING for _, assessment in assessments),
        leaves_by=max((v.leaves_by for _, v in assessments if v.leaves_by), default=None),
        stuck=stuck,
        left_by_policy=notes(Fate.STAYS),
        left_by_failure=(*stuck, *notes(Fate.OVER), *attached),
        drained=drained and not given.dry_run,
        probed=given.dry_run and not unanswered,
        wake_at=min(
            (
                t
                for t in (wake_at, *(v.until for _, v in assessments))
                if t is not None and t > now
            ),
            default=None,
        ),
        wants_owners=wanted,
        unknown=unknown,
    )
    return drain_plan.with_idle(plan, given, policy, now) if plan.drained else plan


def _holders_unknown(
    evict: Iterable[EvictPod], pods: Iterable[PodView], given: DrainInput
) -> tuple[str, ...]:
    """Return the evicted pods that scope Holders would leave if their GPUs were known."""
    if given.scope is not DrainScope.HOLDERS:
        return ()
    leave = {eviction.uid for eviction in evict}
    return tuple(pod.key for pod in pods if pod.uid in leave and pod.held is None)


def _blocker(
    pod: PodView,
    assessment: PodAssessment,
    given: DrainInput,
    pdbs: tuple[PdbView, ...],
    memory: DrainMemory,
    by_pdb: bool,
    now: float,
) -> Refusal | None:
    """Return what blocks the pod. `by_pdb`: its PDB refused another pod of the node."""
    controller = pod.metadata.controller
    if assessment.refusal is not None:
        return assessment.refusal
    if controller is not None and keeps_returning(memory, controller.uid):
        return Refusal(
            reason=WhyNot.POD_RETURNS,
            why=f"{controller.kind} {controller.name[:100]} recreates its pod on the node",
            permanent=True,
            remedy="make it respect the cordon, or scale it down",
        )
    if given.severity != Severity.FATAL and pod.uid in given.no_room:
        return Refusal(
            reason=WhyNot.NO_CAPACITY,
            why=f"no other node has {pod.gpus} free GPUs",
            remedy="the pod is evicted once GPUs are free, or if the fault becomes Fatal",
        )
    gang = gangs.gang_of(pod, given.owners)
    outcome = memory.outcomes.get(pod.uid)
    return blockers.blocker_of(pod, pdbs, outcome, gang, now, given.dry_run or by_pdb)


def _refusing(
    pods: Iterable[PodView], budgets: Mapping[str, tuple[PdbView, ...]], memory: DrainMemory
) -> frozenset[str]:
    """Return the keys of the PDBs that refused a pod of this node."""
    return frozenset(
        pdb.key
        for pod in pods
        if (outcome := memory.outcomes.get(pod.uid)) is not None and outcome.by_budget
        for pdb in budgets[pod.uid]
    )


def _budgets(
    pods: Iterable[PodView], pdbs: Iterable[PdbView]
) -> Mapping[str, tuple[PdbView, ...]]:
    """Return the PDBs that select each pod, by pod UID."""
    near: dict[str, list[PdbView]] = {}
    for pdb in pdbs:
        near.setdefault(pdb.metadata.namespace, []).append(pdb)
    return {pod.uid: eviction.matching(pod, near.get(pod.metadata.namespace, ())) for pod in pods}


def _evict(pod: PodView, given: DrainInput, pdbs: tuple[PdbView, ...]) -> EvictPod:
    return EvictPod(
        node=given.node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        session=given.session,
        pdb=pdbs[0].key if eviction.needs_turn(pod, pdbs) else "",
        dry_run=given.dry_run,
    )


def _force_is_due(pod: PodView, assessment: PodAssessment, given: DrainInput, at: Moment) -> bool:
    """Return whether the drain timeout has passed and the policy force-deletes the pod.

    A pod with a time of its own (`maxWait`, a do-not-disrupt annotation) keeps that time, too: the
    later one counts. A pod with `WaitCompleted` and no `maxWait` has the drain timeout only. A pod
    that started after the drain has the full timeout, without suspended time.
    """
    if at.policy.drain.on_timeout != "Force" or pod.doubt or not _is_late(given, at):
        return False
    if assessment.fate is Fate.WAITS and assessment.until is not None:
        return False
    started = timestamps.parse_time(pod.status.start_time or "") or pod.metadata.created_at
    lost_s = at.started_at - (timestamps.parse_time(given.drain.started_at) or at.now)
    over = at.now - started - lost_s > at.policy.drain_timeout_s(at.severity)
    return over and assessment.fate in {Fate.EVICT, Fate.WAITS}


def _force(pod: PodView, given: DrainInput, now: float) -> tuple[SetDisruptionTarget, DeletePod]:
    grace = pod.spec.termination_grace_period_seconds
    by_policy = "drain.onTimeout: Force"
    target = SetDisruptionTarget(
        node=given.node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        at=now,
        message=f"Force-deleted after the drain timeout ({by_policy}), session {given.session}.",
    )
    delete = DeletePod(
        node=given.node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        session=given.session,
        grace_s=max(1, 30 if grace is None else grace),
        by_policy=by_policy,
    )
    return target, delete


def _settled(
    memory: DrainMemory,
    pods: list[PodView],
    remaining: list[PodView],
    given: DrainInput,
    policy: Policy,
    now: float,
) -> tuple[DrainMemory, bool, float | None, tuple[PodNote, ...]]:
    """Return the memory, whether the node is drained, when to plan again, and attached volumes."""
    memory = replace(memory, detaching=False)
    if remaining:
        cleared = replace(memory, clear_since=None, clear_uids=frozenset(), pods_gone_at=None)
        return cleared, False, None, ()
    gone_at = memory.pods_gone_at if memory.pods_gone_at is not None else now
    attached = _attached(memory, pods, given)
    uids = frozenset(pod.uid for pod in pods if not pod.finished)
    same = memory.clear_since is not None and memory.clear_uids == uids
    since = memory.clear_since if same and memory.clear_since is not None else now
    memory = replace(memory, clear_since=since, clear_uids=uids, pods_gone_at=gone_at)
    detach_by = gone_at + VOLUME_DETACH_S
    if attached and now < detach_by:
        return replace(memory, detaching=True), False, detach_by, ()
    drained = given.certain and now - since >= policy.drain.settle_s
    again_at = None if drained else max(since + policy.drain.settle_s, now + _CONFIRM_S)
    return memory, drained, again_at, attached


def _attached(memory: DrainMemory, pods: list[PodView], given: DrainInput) -> tuple[PodNote, ...]:
    """Return the volumes of evicted pods that are still attached, without those of other pods."""
    staying = {claim for pod in pods for claim in claims(pod) if not pod.finished}
    known = given.claims
    volumes = {
        known[claim].spec.volume_name for claim in memory.volumes - staying if claim in known
    }
    here = (one.spec for one in given.attachments if one.spec.node_name == given.node)
    attached = {spec.source.persistent_volume_name for spec in here} & volumes
    return tuple(PodNote(name=f"volume {name}", why="still attached") for name in sorted(attached))


def _needs_human(worst: Refusal | None, stuck: tuple[PodNote, ...], late: bool) -> WhyNot | None:
    if worst is not None and worst.permanent:
        return worst.reason
    if stuck:
        return WhyNot.POD_STUCK
    return WhyNot.DRAIN_TIMEOUT if late and worst is not None else None


def _unknown_owners(
    assessments: list[tuple[PodView, PodAssessment]],
    blocked: list[tuple[PodView, Refusal]],
    given: DrainInput,
) -> tuple[OwnerWanted, ...]:
    pods = [p for p, v in assessments if v.left_by is LeftBy.DAEMON_SET] + [p for p, _ in blocked]
    found: dict[str, OwnerWanted] = {}
    for pod in pods:
        controller = pod.metadata.controller
        if controller is None or controller.uid in given.missing_owners:
            continue
        if controller.kind == "DaemonSet" and controller.group != "apps":
            continue  # gpuward may not read it, so the drain does not wait for it
        if controller.uid not in given.owners:
            found[controller.uid] = pod.metadata.namespace, controller
    return tuple(found.values())


def kept_from_eviction(pod: PodView, given: DrainInput, policy: Policy, now: float) -> str:
    """Return why the pod is not evicted any more; "" if it still is."""
    at = _moment(given, policy, now)
    assessment = fate_of(pod, given.missing_owners, at)
    goes = assessment.fate is Fate.EVICT or _force_is_due(pod, assessment, given, at)
    return "" if goes else _sentence(assessment)


def kept_from_force(pod: PodView, given: DrainInput, policy: Policy, now: float) -> str:
    """Return why the pod is not force-deleted any more; "" if it still is."""
    if policy.drain.on_timeout != "Force":
        return f"drain.onTimeout is {policy.drain.on_timeout}"
    at = _moment(given, policy, now)
    assessment = fate_of(pod, given.missing_owners, at)
    if assessment.fate not in {Fate.EVICT, Fate.WAITS}:
        return _sentence(assessment)
    return "" if _force_is_due(pod, assessment, given, at) else "its timeout has not passed"


def _is_late(given: DrainInput, at: Moment) -> bool:
    return drain_plan.overdue(given.drain, at.severity, at.policy, at.now, given.last_active_at)


def _moment(given: DrainInput, policy: Policy, now: float) -> Moment:
    return Moment(
        now=now,
        started_at=drain_plan.worked_since(given.drain, now, given.last_active_at),
        severity=given.severity,
        policy=policy,
        own_namespace=given.own_namespace,
        scope=given.scope,
        accused=given.accused,
    )


def _sentence(assessment: PodAssessment) -> str:
    return f"its fate is {assessment.fate} now{f' ({assessment.why})' if assessment.why else ''}"
