"""Decide when the NVML child hangs, when to kill it and when to start another. Pure functions.

Each function takes the state, the time and an event, and returns the new state and the actions for
`link`. A process that is stuck in the driver cannot be killed, and killing a slow one has frozen
GPUs. So a call gets minutes to return, and a second child never starts before the first is reaped.
"""

import enum
from typing import NamedTuple

import msgspec

from agent.nvml import messages
from agent.nvml.messages import NvmlStatus, SourceReason
from rules.api import timestamps
from rules.catalog.signals import EventKind, SourceState
from rules.judge.observation import CallFailed, GpuEvent, Inventory


def _down(reason: SourceReason, message: str, *, restart_agent: bool = False) -> NvmlStatus:
    return NvmlStatus(
        state=SourceState.DOWN, reason=reason, message=message, restart_agent=restart_agent
    )


def _up(message: str) -> NvmlStatus:
    return NvmlStatus(state=SourceState.UP, reason=SourceReason.ANSWERING, message=message)


def _released(reason: str) -> NvmlStatus:
    """Return the status after a release on request."""
    return NvmlStatus(
        state=SourceState.RELEASED,
        reason=SourceReason.RELEASED,
        message=f"NVML is released ({reason}) and is read again when the request ends.",
    )


def _ended(
    fault: CallFailed | None, status: int, killed: bool, wait_s: float, *, came_up: bool
) -> NvmlStatus:
    """Return the status after the child ended or was killed; `fault` is NVML's error, if any.

    `came_up`: the failure began while this agent ran.
    """
    again = f"retrying in {wait_s:.0f} s."
    if fault is None:
        how = "hung and was killed" if killed else f"exited with status {status}"
        return _down(SourceReason.CHILD_DIED, f"The NVML child {how}; {again}")
    failure = messages.INIT_FAILURES.get(fault.code)
    if failure is None:
        return _down(SourceReason.NVML_FAILED, f"{fault.call} returned {fault.code}; {again}")
    return _down(
        failure.reason,
        f"{failure.sentence} ({fault.call} returned {fault.code}); {again}",
        restart_agent=failure.restart_agent and came_up,
    )


OFF = NvmlStatus(
    state=SourceState.ABSENT, reason=SourceReason.OFF, message="NVML is off (--nvml off)."
)


OVERDUE_S = 5.0
"""A call that is overdue by this makes the source Down."""
KILL_AFTER_S = 120.0
KILL_AFTER_GSP_TIMEOUT_S = 600.0
"""After an Xid 119 or 120 the driver is waiting for the GPU's firmware."""
KILL_INTERVAL_S = 3600.0
FINISH_GRACE_S = 60.0
START_WITHIN_S = 10.0
"""Time for interpreter start, imports and the child's first message."""
BETWEEN_CALLS_S = 1.0
BACKOFF_MAX_S = 60.0
STEADY_AFTER_S = 60.0
"""A child that ran this long is restarted without a long back-off."""
AFTER_ARRIVAL_S = 1.0
"""The driver announces a GPU before it is ready, and eight GPUs one by one."""
GSP_XIDS = (119, 120)


class ChildPhase(enum.Enum):
    """The phase of the child."""

    NONE = enum.auto()
    RUNNING = enum.auto()
    FINISHING = enum.auto()
    KILLED = enum.auto()


class Want(enum.Enum):
    """What the agent wants from the child."""

    RUN = enum.auto()
    RELEASE = enum.auto()
    CLOSE = enum.auto()


class State(NamedTuple):
    """The state of the supervisor. Times are monotonic seconds."""

    phase: ChildPhase = ChildPhase.NONE
    want: Want = Want.RUN
    release_reason: str = ""
    start_at: float | None = 0.0
    """When to start the next child; None: not scheduled."""
    started_at: float = 0.0
    attempts: int = 0
    call: str = ""
    gpu: str = ""
    expected_by: float = 0.0
    hung: bool = False
    greeted: bool = False
    """Whether NVML has answered this child."""
    first: int | None = None
    """The first child's result: 0 if NVML answered, else NVML's code."""
    finish_by: float | None = None
    killed_at: float | None = None
    gsp_seen_at: float | None = None
    fault: CallFailed | None = None
    status: messages.NvmlStatus | None = None
    overdue_s: float = OVERDUE_S
    kill_after_s: float = KILL_AFTER_S


class Spawn(msgspec.Struct, frozen=True):
    """Start a child."""


class Kill(msgspec.Struct, frozen=True):
    """Kill the child."""


class StopOrder(msgspec.Struct, frozen=True):
    """Stop the link; `clean` is False if a hung child was left running."""

    clean: bool


class Send(msgspec.Struct, frozen=True):
    """Send an order to the child."""

    message: messages.ToChild


class Emit(msgspec.Struct, frozen=True):
    """Report a status to the main loop."""

    status: messages.NvmlStatus


Output = Spawn | Kill | StopOrder | Send | Emit
Step = tuple[State, list[Output]]


def next_deadline(state: State) -> float | None:
    """Return when `tick` is due next; None if no deadline is set."""
    times: list[float] = []
    if state.phase is ChildPhase.NONE:
        if state.want is Want.RUN and state.start_at is not None:
            times.append(state.start_at)
    else:
        if not state.hung:
            times.append(state.expected_by + state.overdue_s)
        elif state.phase is not ChildPhase.KILLED:
            times.append(_kill_at(state))
        if state.finish_by is not None:
            times.append(state.finish_by)
    return min(times, default=None)


def _kill_at(state: State) -> float:
    """Return when the hung child may be killed."""
    at = state.expected_by + state.kill_after_s
    if state.gsp_seen_at is not None:
        at = max(at, state.gsp_seen_at + KILL_AFTER_GSP_TIMEOUT_S)
    if state.killed_at is not None:
        at = max(at, state.killed_at + KILL_INTERVAL_S)
    return at


def child_reported(state: State, now: float, message: messages.FromChild) -> Step:
    """Handle a message of the child."""
    call, gpu, within_s = "", "", BETWEEN_CALLS_S
    if isinstance(message, messages.Calling):
        call, gpu, within_s = message.call, message.gpu, message.within_s
    was_hung = state.hung
    state = state._replace(call=call, gpu=gpu, expected_by=now + within_s, hung=False)
    match message:
        case GpuEvent(kind=EventKind.XID | EventKind.OPERATIONAL, data=xid) if xid in GSP_XIDS:
            state = state._replace(gsp_seen_at=now)
        case CallFailed(of_driver=True):
            state = state._replace(fault=message)
        case Inventory():
            first = 0 if state.first is None else state.first
            state = state._replace(greeted=True, first=first, fault=None)
            return _emit(state, _up("NVML answers."))
    if was_hung and state.greeted and state.phase is ChildPhase.RUNNING:
        return _emit(state, _up("NVML answers again."))
    return state, []


def exited(state: State, now: float, status: int) -> Step:
    """Handle the end of the child after it was reaped; a negative status is a signal."""
    lived_s = now - state.started_at
    attempts = 0 if lived_s >= STEADY_AFTER_S else state.attempts
    killed, asked = state.phase is ChildPhase.KILLED, state.phase is ChildPhase.FINISHING
    fault = state.fault
    state = state._replace(
        phase=ChildPhase.NONE,
        hung=False,
        greeted=False,
        finish_by=None,
        fault=None,
        attempts=attempts + 1,
    )
    if state.want is Want.CLOSE:
        return state, [StopOrder(clean=True)]
    if state.want is Want.RELEASE:
        return _emit(state._replace(attempts=0), _released(state.release_reason))
    if asked:
        # Released and resumed before the child ended: start the next one at once.
        return tick(state._replace(start_at=now, attempts=0), now)
    if status == messages.EXIT_REINITIALISE and (attempts == 0 or fault is None):
        return tick(state._replace(start_at=now if attempts == 0 else now + 1.0), now)
    wait_s = timestamps.backoff_s(attempts + 1, 1.0, BACKOFF_MAX_S)
    code = fault.code if fault is not None else None
    # If the failure was there from the start, a new container does not help.
    came_up = state.first is not None and state.first != code
    return _emit(
        state._replace(start_at=now + wait_s, first=code if state.first is None else state.first),
        _ended(fault, status, killed, wait_s, came_up=came_up),
    )


def release(state: State, now: float, reason: str) -> Step:
    """Release NVML."""
    if state.want is not Want.RUN:
        return state, []
    state = state._replace(want=Want.RELEASE, release_reason=reason)
    if state.phase is ChildPhase.NONE:
        return _emit(state, _released(reason))
    return _finish(state, now + FINISH_GRACE_S)


def resume(state: State, now: float) -> Step:
    """End the release."""
    if state.want is not Want.RELEASE:
        return state, []
    # If a child is still finishing, its end starts the next one.
    return tick(state._replace(want=Want.RUN, start_at=now, release_reason=""), now)


def refresh(state: State, _now: float) -> Step:
    """Enumerate again and read everything now."""
    return state, [Send(messages.Refresh())] if state.phase is ChildPhase.RUNNING else []


def gsp_timeout_seen(state: State, now: float) -> Step:
    """Handle an Xid 119 or 120 in the kernel log."""
    return state._replace(gsp_seen_at=now), []


def reinitialise(state: State, now: float) -> Step:
    """Handle a GPU that was added or removed: NVML must initialise again to count it."""
    if state.phase is ChildPhase.RUNNING:
        return state, [Send(messages.Reinitialise())]
    if state.phase is ChildPhase.NONE and state.start_at is not None:
        # The new device may be the driver that the last child did not find: retry soon.
        soon = min(state.start_at, now + AFTER_ARRIVAL_S)
        return state._replace(start_at=soon, attempts=0), []
    return state, []


def close(state: State, now: float, timeout_s: float) -> Step:
    """Stop the child because the agent ends."""
    state = state._replace(want=Want.CLOSE)
    if state.phase is ChildPhase.NONE:
        return state, [StopOrder(clean=True)]
    return _finish(state, now + timeout_s)


def _finish(state: State, by: float) -> Step:
    asked = state.phase is not ChildPhase.RUNNING
    phase = ChildPhase.FINISHING if state.phase is ChildPhase.RUNNING else state.phase
    return state._replace(phase=phase, finish_by=by), [] if asked else [Send(messages.Finish())]


def tick(state: State, now: float) -> Step:
    """Handle deadlines that have passed."""
    outputs: list[Output] = []
    if state.phase is ChildPhase.NONE:
        if state.want is Want.RUN and state.start_at is not None and now >= state.start_at:
            state = state._replace(
                phase=ChildPhase.RUNNING,
                start_at=None,
                started_at=now,
                call="start",
                gpu="",
                expected_by=now + START_WITHIN_S,
            )
            return state, [Spawn()]
        return state, []
    if not state.hung and now >= state.expected_by + state.overdue_s:
        call = f"{state.call or 'The NVML child'}{f' for {state.gpu}' if state.gpu else ''}"
        hung = f"{call} has not returned. Waiting for the driver."
        state, outputs = _emit(state._replace(hung=True), _down(SourceReason.CALL_HUNG, hung))
    if state.hung and state.phase is not ChildPhase.KILLED and now >= _kill_at(state):
        state = state._replace(phase=ChildPhase.KILLED, killed_at=now)
        outputs = [*outputs, Kill()]
    if state.finish_by is not None and now >= state.finish_by:
        state = state._replace(finish_by=None)
        if state.want is Want.CLOSE:
            return state, [*outputs, StopOrder(clean=False)]
        stays = (
            f"NVML cannot be released ({state.release_reason}): {state.call or 'the child'} has "
            "not returned. The child ends when the driver answers."
        )
        state, more = _emit(state, _down(SourceReason.CALL_HUNG, stays))
        outputs = [*outputs, *more]
    return state, outputs


def _emit(state: State, status: messages.NvmlStatus) -> Step:
    if status == state.status:
        return state, []
    return state._replace(status=status), [Emit(status)]
