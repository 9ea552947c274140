"""The repair ladder of one session: the running step, the next step, and the steps to display.

Computed from session objects alone, for one decision (`rules.session.repair.readiness`), for the
turns of the fleet (`rules.fleet.quarantined_turns`), and for page, `why` and `plan`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from rules.api import timestamps
from rules.api.health import Wire
from rules.api.nodes import HealthView, QuarantineView
from rules.api.quarantine import (
    Cause,
    Phase,
    QuarantineStatus,
    RepairAttempt,
    RepairRequest,
    RepairState,
)
from rules.catalog import reasons
from rules.catalog.reason import Level
from rules.policy.policy import Policy
from rules.repair import ladder
from rules.repair.adapter import NewObject, RepairAction, mentions
from rules.repair.ladder import LadderPosition, Rung, Step
from rules.session import external, history, observation
from rules.session.causes import level_in_effect, requested_domain
from rules.session.validation import result as test_result

_OPEN: Final = frozenset({"", RepairState.PLANNED, RepairState.HELD, RepairState.ASKED})
"""An empty state was dropped by the CRD of an older release."""


def under_way(status: QuarantineStatus) -> RepairAttempt | None:
    """Return the step that was planned or requested and has not ended; None without one."""
    return next((attempt for attempt in reversed(status.repair) if attempt.state in _OPEN), None)


def next_step(
    session: QuarantineView,
    siblings: Iterable[QuarantineView],
    causes: Iterable[Cause],
    health: HealthView | None,
    policy: Policy,
    now: float,
) -> LadderPosition:
    """Return the position on the ladder for the active causes."""
    repair = policy.repair
    causes = tuple(causes)
    begins = ladder.begins_at(asked_for(session, causes, health, policy))
    if any(cause.source == test_result.SOURCE for cause in causes):
        begins = ladder.above(begins, taken_in(session))
    return ladder.next_rung(
        begins,
        adapters={step: wanted.adapter for step, wanted in repair.steps.items()},
        taken=taken_in(session),
        tried=tried((session, *siblings), repair.window_s, now),
        named=named_in(session),
        attempts=repair.attempts,
        chosen=chosen(session, causes),
        unfit=unfit(session, health, policy),
    )


NO_ACCUSED_GPU: Final = "needs the GPUs to reset, and no cause names one that is present"


def unfit(session: QuarantineView, health: HealthView | None, policy: Policy) -> dict[str, str]:
    """Return the steps that cannot be requested in this session, with the reason.

    A reset by GPU UUID needs accused GPUs that are present. No cause recommends a reset of all
    GPUs: faults of NVSwitches and their fabric begin at the driver or the node.
    """
    wanted = policy.repair.steps.get(Step.RESET_GPU)
    action = policy.repair.action(wanted.adapter, Step.RESET_GPU) if wanted is not None else None
    if action is None or not must_name(Step.RESET_GPU, action):
        return {}
    gpus = health.status.gpus if health is not None else ()
    there = {gpu.uuid for gpu in gpus if gpu.uuid}
    accused = set(accused_by(session, health))
    return {} if accused and (not there or accused & there) else {Step.RESET_GPU: NO_ACCUSED_GPU}


def must_name(step: str, action: RepairAction) -> bool:
    """Return whether the request of the step has to name GPUs."""
    if step != Step.RESET_GPU or not isinstance(action, NewObject):
        return False
    return mentions(action.object, "gpuUUIDs")


def accused_by(session: QuarantineView, health: HealthView | None) -> list[str]:
    """Return the GPUs of the session's causes from the health status, else from its evidence."""
    ids = {cause.incident for cause in session.spec.causes if cause.incident}
    incidents = health.status.incidents if health is not None else ()
    named = {uuid for i in incidents if i.id in ids for uuid in i.gpus}
    kept: Any = session.status.evidence.get("gpus")
    if not named and isinstance(kept, list):
        named = {uuid for uuid in kept if isinstance(uuid, str)}
    return sorted(named)


def approved(session: QuarantineView, causes: Iterable[Cause], rung: Rung, policy: Policy) -> bool:
    """Return whether the step may begin: the policy allows it, or an operator approved it. In a
    session of an NVLink domain an operator approves each step.
    """
    if policy.repair.mode == "Auto" and not requested_domain(session):
        return True
    return approval_for(session, causes, rung.step) is not None


def requested_at(at: str, session: QuarantineView, now: float) -> float | None:
    """Return when an operator made a request, limited to the lifetime of the session and `now`;
    None without a readable time.
    """
    asked_at = timestamps.parse_time(at)
    if asked_at is None:
        return None
    over = (
        None if observation.is_open(session) else timestamps.parse_time(session.status.phase_since)
    )
    latest = now if over is None else min(now, over)
    return max(min(asked_at, latest), session.metadata.created_at)


def request_in_force(session: QuarantineView, causes: Iterable[Cause]) -> RepairRequest | None:
    """Return the operator's approval of a step; None if there is none, or if all faults it was
    given for have closed. `causes` are the active ones.

    In a session with only manual causes it holds as long as the session.
    """
    asked = session.spec.repair
    if asked is None or all(cause.source == "Human" for cause in session.spec.causes):
        return asked
    asked_at = timestamps.parse_time(asked.at)
    if asked_at is None:
        return asked if any(cause.source != "Human" for cause in causes) else None
    for cause in causes:
        since = (timestamps.parse_time(cause.at), history.reopened_at(session))
        if cause.source != "Human" and all(at is None or at <= asked_at for at in since):
            return asked
    return None


def chosen(session: QuarantineView, causes: Iterable[Cause]) -> str:
    """Return the step of the operator's approval in force; "" without one."""
    asked = request_in_force(session, causes)
    return asked.step if asked is not None else ""


def approval_for(
    session: QuarantineView, causes: Iterable[Cause], step: str
) -> RepairRequest | None:
    """Return the operator's approval of this step that is in force; None without one."""
    asked = request_in_force(session, causes)
    return asked if asked is not None and asked.step == step else None


def taken_in(session: QuarantineView) -> frozenset[str]:
    """Return the steps that this session has taken, without those withdrawn before the request."""
    return frozenset(attempt.step for attempt in session.status.repair if attempt.counts)


def named_in(session: QuarantineView) -> Mapping[str, int]:
    """Return the highest attempt number of each step in this session, withdrawn ones included, so
    that request names stay unique.
    """
    numbers: dict[str, int] = {}
    for attempt in session.status.repair:
        numbers[attempt.step] = max(attempt.attempt, numbers.get(attempt.step, 0))
    return numbers


def tried(sessions: Iterable[QuarantineView], window_s: float, now: float) -> Counter[str]:
    """Return how often each step was tried on one node in the window, over all its sessions.

    Counted by node name: some repairs delete the Node and the same machine registers again.
    """
    return Counter(
        attempt.step
        for session in sessions
        for attempt in session.status.repair
        if attempt.counts
        and ((at := timestamps.parse_time(attempt.started_at)) is None or now - at <= window_s)
    )


def asked_for(
    session: QuarantineView, causes: Iterable[Cause], health: HealthView | None, policy: Policy
) -> list[str]:
    """Return the recommended action of each cause: from its incident, the session's evidence or
    its reason. Manual causes recommend none.
    """
    kept: Any = session.status.evidence.get("incidents")
    known = {
        str(each.get("id")): str(each.get("recommendedAction"))
        for each in (kept if isinstance(kept, list) else ())
        if isinstance(each, dict)
    }
    if health is not None:
        known |= {i.id: i.recommended_action for i in health.status.incidents}
    found = []
    for cause in causes:
        row = reasons.REASONS.get(cause.reason)
        default = str(row.action) if row is not None else ""
        if cause.source == test_result.SOURCE:
            default = str(ladder.AFTER_A_FAILED_TEST)
        trigger = external.trigger_of(cause, session.spec.node_uid, policy)
        if trigger is not None:
            found.append(str(trigger.action))
        elif cause.source != "Human":
            found.append(known.get(cause.incident, default))
    return found


NEXT, LATER, PASSED = "Next", "Later", "Passed"
"""States of a step that was not taken in this session: next, later or skipped."""


class LadderRung(Wire, frozen=True):
    """One step of the ladder; `state` is that of its attempt, or Next, Later or Passed."""

    step: str
    state: str
    adapter: str = ""
    attempt: int = 0
    started_at: str = ""
    ended_at: str = ""
    detail: str = msgspec.field(default="", name="said")
    """Its proof, what is missing for it, or why the step is skipped."""

    @property
    def clause(self) -> str:
        """`RestartNode Failed (NodeConditions, attempt 1): ...`."""
        by = ", ".join(
            part for part in (self.adapter, self.attempt and f"attempt {self.attempt}") if part
        )
        detail = f": {self.detail}" if self.detail else ""
        # "Passed" alone would read as success.
        state = "skipped" if self.state == PASSED else self.state
        return f"{self.step} {state}{f' ({by})' if by else ''}{detail}"


def rungs(
    session: QuarantineView,
    siblings: Iterable[QuarantineView],
    causes: Iterable[Cause],
    health: HealthView | None,
    policy: Policy,
    now: float,
) -> tuple[LadderRung, ...]:
    """Return the steps from the begin of the ladder to its end, and all attempts of this session.

    Without a required repair (level Cordon, closed causes) only the attempts are returned.
    """
    attempts = session.status.repair
    causes = tuple(causes)
    drains = level_in_effect(session, causes, policy) == Level.DRAIN
    over = session.status.phase == Phase.VALIDATING or not observation.is_open(session)
    if policy.repair.mode == "Off" or not drains or over:
        return tuple(map(_tried, attempts))
    position = next_step(session, siblings, causes, health, policy, now)
    return tuple(_all(attempts, position, policy))


def _all(
    attempts: tuple[RepairAttempt, ...], position: LadderPosition, policy: Policy
) -> Iterator[LadderRung]:
    passed = dict(position.passed)
    begins = position.begins.rank if position.begins is not None else len(ladder.LADDER)
    for step in ladder.LADDER:
        mine = [attempt for attempt in attempts if attempt.step == step]
        yield from map(_tried, mine)
        if any(attempt.counts for attempt in mine) or step.rank < begins:
            continue
        yield _untried(step, position, passed.get(step, ""), policy)


def _tried(attempt: RepairAttempt) -> LadderRung:
    return LadderRung(
        step=attempt.step,
        state=attempt.state,
        adapter=attempt.adapter,
        attempt=attempt.attempt,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        detail=attempt.proof,
    )


def _untried(step: Step, position: LadderPosition, passed: str, policy: Policy) -> LadderRung:
    wanted = policy.repair.steps.get(step)
    adapter = wanted.adapter if wanted is not None else ""
    if position.rung is not None and position.rung.step == step:
        return LadderRung(step=step, state=NEXT, adapter=adapter, attempt=position.rung.attempt)
    if passed or not adapter:
        return LadderRung(step=step, state=PASSED, detail=passed or "has no adapter")
    return LadderRung(step=step, state=LATER, adapter=adapter)
