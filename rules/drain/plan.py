"""The drain of one node as a plan: who goes now, who stays and why, what blocks, when it is over.

`plan_drain` is called by the remediator after every uncached list of the node's pods, while the
session's decision says `Evicting.GO` (or `PROBE`). It never assumes that an eviction worked:
the next list tells. A node is drained when two equal lists at least `settle` apart have nothing
left to evict and the volumes of the pods that left are detached or past their time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from rules.api import timestamps
from rules.api.pods import PodView
from rules.api.quarantine import PodNote
from rules.api.workloads import PdbView
from rules.api.writes import DeletePod, EvictPod, SetDisruptionTarget
from rules.catalog.reason import Severity
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import blockers, drain_plan, eviction, gangs
from rules.drain.drain_plan import DrainInput, DrainPlan, OwnerWanted
from rules.drain.fate import Fate, LeftBy, Moment, PodAssessment, fate_of, is_critical
from rules.drain.memory import DrainMemory, claims, keeps_returning, listed
from rules.policy.policy import Policy

VOLUME_DETACH_S: Final = 360.0
"""Seconds for which volumes of pods that left may stay attached before the drain counts as over:
after six minutes Kubernetes detaches them by force itself."""
_HOLD_THE_TURN: Final = frozenset({Fate.EVICT, Fate.LEAVING, Fate.WAITS})
_SECOND_LOOK_S: Final = 1.0
"""How soon an empty node is listed again where `settle` asks for less."""


def plan_drain(look: DrainInput, policy: Policy, memory: DrainMemory, now: float) -> DrainPlan:
    """Judge every pod of the list and say what follows."""
    owners = look.owners
    pods = sorted((p for p in look.pods if p.spec.node_name == look.node), key=lambda p: p.key)
    budgets = _budgets(pods, look.pdbs)
    memory = listed(memory, pods, now)
    at = _moment(look, policy, now)
    assessments = [(pod, fate_of(pod, look.missing_owners, at)) for pod in pods]
    late = _is_late(look, at) and not look.dry_run
    # Those of an earlier turn have to be gone before a later one starts.
    holding = (pod for pod, verdict in assessments if verdict.fate in _HOLD_THE_TURN)
    turn = min(map(is_critical, holding), default=None)
    asked = _refusing(pods, budgets, memory)
    evict: list[EvictPod] = []
    obstacles: list[tuple[PodView, Refusal]] = []
    force: list[tuple[SetDisruptionTarget, DeletePod]] = []
    force_due = False
    waiting: list[str] = []
    for pod, verdict in assessments:
        if verdict.fate in {Fate.STAYS, Fate.STUCK, Fate.OVER}:
            continue
        if verdict.fate is Fate.LEAVING:
            waiting.append(pod.key)
            continue
        due = not look.dry_run and _force_is_due(pod, verdict, look, at)
        pdbs, outcome = budgets[pod.uid], memory.outcomes.get(pod.uid)
        # A PDB's refusal stands for all its pods.
        by_pdb = any(pdb.key in asked for pdb in pdbs)
        if due and not by_pdb and (outcome is None or not outcome.refused):
            # Whatever its budget says: nobody is deleted by force who was not asked first.
            force_due = True
            waiting.append(pod.key)
            evict.append(_evict(pod, look, pdbs))
            continue
        if due:
            force.append(_force(pod, look, now))
            if pod.uid not in memory.unforced:
                continue
        blocker = _blocker(pod, verdict, look, pdbs, memory, by_pdb, now)
        if blocker is not None:
            owner = blockers.owner_name(pod, owners)
            obstacles.append((pod, replace(blocker, owner=owner)))
        if verdict.fate is Fate.WAITS:
            waiting.append(pod.key)
        elif blocker is None or blocker.reason not in blockers.HOLDING:
            later = turn is not None and is_critical(pod) > turn
            asks = look.dry_run or late or not later
            # In a dry run nobody leaves, so that no turn would ever come.
            if blocker is None or not asks:
                waiting.append(pod.key)
            if asks:
                evict.append(_evict(pod, look, pdbs))

    def notes(fate: Fate) -> tuple[PodNote, ...]:
        found = ((p, v) for p, v in assessments if v.fate is fate and v.why)
        return tuple(PodNote(name=p.key, why=v.why) for p, v in found)

    stuck, worst = notes(Fate.STUCK), blockers.worst_of(obstacles)
    remaining = [p for p, v in assessments if v.fate not in {Fate.STAYS, Fate.OVER}]
    memory, drained, wake_at, attached = _settled(memory, pods, remaining, look, policy, now)
    wanted = _unknown_owners(assessments, obstacles, look)
    if any(owner.kind == "DaemonSet" for _, owner in wanted):
        drained = False
    unasked = [e for e in evict if e.uid not in memory.outcomes]
    return DrainPlan(
        memory=memory,
        evict=tuple(evict),
        force=tuple(force),
        force_due=force_due,
        force_refused=next(
            (memory.unforced[d.uid] for _, d in force if d.uid in memory.unforced), None
        ),
        blocked=blockers.grouped(obstacles),
        blocked_reason=worst.reason if worst is not None else None,
        needs_human=_needs_human(worst, stuck, late),
        waiting=tuple(waiting),
        leaving=sum(verdict.fate is Fate.LEAVING for _, verdict in assessments),
        leaves_by=max((v.leaves_by for _, v in assessments if v.leaves_by), default=None),
        stuck=stuck,
        left_by_policy=notes(Fate.STAYS),
        left_by_failure=(*stuck, *notes(Fate.OVER), *attached),
        drained=drained and not look.dry_run,
        probed=look.dry_run and not unasked,
        wake_at=min(
            (
                t
                for t in (wake_at, *(v.until for _, v in assessments))
                if t is not None and t > now
            ),
            default=None,
        ),
        wants_owners=wanted,
    )


def _blocker(
    pod: PodView,
    verdict: PodAssessment,
    look: DrainInput,
    pdbs: tuple[PdbView, ...],
    memory: DrainMemory,
    by_pdb: bool,
    now: float,
) -> Refusal | None:
    """What keeps the pod; `by_pdb`: its PDB refused another pod of the node."""
    controller = pod.metadata.controller
    if verdict.refusal is not None:
        return verdict.refusal
    if controller is not None and keeps_returning(memory, controller.uid):
        return Refusal(
            reason=WhyNot.POD_RETURNS,
            why=f"{controller.kind} {controller.name[:100]} puts its pod back on the node",
            permanent=True,
            remedy="make it respect the cordon, or scale it down",
        )
    if look.severity != Severity.FATAL and pod.uid in look.no_room:
        return Refusal(
            reason=WhyNot.NO_CAPACITY,
            why=f"no other node has {pod.gpus} free GPUs",
            remedy="it goes when there is room, or when the fault becomes Fatal",
        )
    gang = gangs.gang_of(pod, look.owners)
    outcome = memory.outcomes.get(pod.uid)
    return blockers.blocker_of(pod, pdbs, outcome, gang, now, look.dry_run or by_pdb)


def _refusing(
    pods: Iterable[PodView], budgets: Mapping[str, tuple[PdbView, ...]], memory: DrainMemory
) -> frozenset[str]:
    """Keys of the PDBs that refused a pod of this node: one question stands for all its pods."""
    return frozenset(
        pdb.key
        for pod in pods
        if (outcome := memory.outcomes.get(pod.uid)) is not None and outcome.by_budget
        for pdb in budgets[pod.uid]
    )


def _budgets(
    pods: Iterable[PodView], pdbs: Iterable[PdbView]
) -> Mapping[str, tuple[PdbView, ...]]:
    """The PDBs that select each pod, by pod UID; a cluster has many, a namespace few."""
    near: dict[str, list[PdbView]] = {}
    for pdb in pdbs:
        near.setdefault(pdb.metadata.namespace, []).append(pdb)
    return {pod.uid: eviction.matching(pod, near.get(pod.metadata.namespace, ())) for pod in pods}


def _evict(pod: PodView, look: DrainInput, pdbs: tuple[PdbView, ...]) -> EvictPod:
    return EvictPod(
        node=look.node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        session=look.session,
        pdb=pdbs[0].key if eviction.needs_turn(pod, pdbs) else "",
        dry_run=look.dry_run,
    )


def _force_is_due(pod: PodView, verdict: PodAssessment, look: DrainInput, at: Moment) -> bool:
    """Whether the drain is past its time and the policy lets the pod be deleted by force.

    A pod that waits for a time of its own (`maxWait`, a do-not-disrupt annotation) was promised
    that time too: the later of the two counts. One that may run as long as it likes
    (`WaitCompleted` without `maxWait`) was promised the drain's time only. A pod that came later
    than the drain has its own full time, suspensions apart.
    """
    if at.policy.drain.on_timeout != "Force" or pod.doubt or not _is_late(look, at):
        return False
    if verdict.fate is Fate.WAITS and verdict.until is not None:
        return False
    started = timestamps.parse_time(pod.status.start_time or "") or pod.metadata.created_at
    lost_s = at.started_at - (timestamps.parse_time(look.drain.started_at) or at.now)
    over = at.now - started - lost_s > at.policy.drain_timeout_s(at.severity)
    return over and verdict.fate in {Fate.EVICT, Fate.WAITS}


def _force(pod: PodView, look: DrainInput, now: float) -> tuple[SetDisruptionTarget, DeletePod]:
    grace = pod.spec.termination_grace_period_seconds
    by_policy = "drain.onTimeout: Force"
    target = SetDisruptionTarget(
        node=look.node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        at=now,
        message=f"Deleted past the drain's time by policy ({by_policy}), session {look.session}.",
    )
    delete = DeletePod(
        node=look.node,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.uid,
        session=look.session,
        grace_s=max(1, 30 if grace is None else grace),
        by_policy=by_policy,
    )
    return target, delete


def _settled(
    memory: DrainMemory,
    pods: list[PodView],
    remaining: list[PodView],
    look: DrainInput,
    policy: Policy,
    now: float,
) -> tuple[DrainMemory, bool, float | None, tuple[PodNote, ...]]:
    """Whether the node is drained; when to look again; attachments past their time."""
    if remaining:
        cleared = replace(memory, clear_since=None, clear_uids=frozenset(), pods_gone_at=None)
        return cleared, False, None, ()
    gone_at = memory.pods_gone_at if memory.pods_gone_at is not None else now
    attached = _attached(memory, pods, look)
    uids = frozenset(pod.uid for pod in pods)
    same = memory.clear_since is not None and memory.clear_uids == uids
    since = memory.clear_since if same and memory.clear_since is not None else now
    memory = replace(memory, clear_since=since, clear_uids=uids, pods_gone_at=gone_at)
    detach_by = gone_at + VOLUME_DETACH_S
    if attached and now < detach_by:
        return memory, False, detach_by, ()
    settled = same and now - since >= policy.drain.settle_s
    again_at = None if settled else max(since + policy.drain.settle_s, now + _SECOND_LOOK_S)
    return memory, settled, again_at, attached


def _attached(memory: DrainMemory, pods: list[PodView], look: DrainInput) -> tuple[PodNote, ...]:
    """Volumes of pods that left and are still attached; those of pods that stay do not count."""
    staying = {claim for pod in pods for claim in claims(pod) if not pod.finished}
    known = look.claims
    volumes = {
        known[claim].spec.volume_name for claim in memory.volumes - staying if claim in known
    }
    here = (one.spec for one in look.attachments if one.spec.node_name == look.node)
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
    obstacles: list[tuple[PodView, Refusal]],
    look: DrainInput,
) -> tuple[OwnerWanted, ...]:
    pods = [p for p, v in assessments if v.left_by is LeftBy.NATURE_DAEMON] + [
        p for p, _ in obstacles
    ]
    found: dict[str, OwnerWanted] = {}
    for pod in pods:
        controller = pod.metadata.controller
        if controller is None or controller.uid in look.missing_owners:
            continue
        if controller.kind == "DaemonSet" and controller.group != "apps":
            continue  # gpuward has no right to read it, and nothing may wait for that
        if controller.uid not in look.owners:
            found[controller.uid] = pod.metadata.namespace, controller
    return tuple(found.values())


def kept_from_eviction(pod: PodView, look: DrainInput, policy: Policy, now: float) -> str:
    """Why the pod is not to be evicted any more; "" when it still is."""
    at = _moment(look, policy, now)
    verdict = fate_of(pod, look.missing_owners, at)
    goes = verdict.fate is Fate.EVICT or _force_is_due(pod, verdict, look, at)
    return "" if goes else _sentence(verdict)


def kept_from_force(pod: PodView, look: DrainInput, policy: Policy, now: float) -> str:
    """Why the pod is not to be deleted by force any more; "" when it still is."""
    if policy.drain.on_timeout != "Force":
        return f"the policy says {policy.drain.on_timeout}"
    at = _moment(look, policy, now)
    verdict = fate_of(pod, look.missing_owners, at)
    if verdict.fate not in {Fate.EVICT, Fate.WAITS}:
        return _sentence(verdict)
    return "" if _force_is_due(pod, verdict, look, at) else "its time is not over"


def _is_late(look: DrainInput, at: Moment) -> bool:
    return drain_plan.overdue(look.drain, at.severity, at.policy, at.now, look.last_active_at)


def _moment(look: DrainInput, policy: Policy, now: float) -> Moment:
    return Moment(
        now=now,
        started_at=drain_plan.worked_since(look.drain, now, look.last_active_at),
        severity=look.severity,
        policy=policy,
        own_namespace=look.own_namespace,
    )


def _sentence(verdict: PodAssessment) -> str:
    return f"it {verdict.fate.lower()} by now{f' ({verdict.why})' if verdict.why else ''}"
