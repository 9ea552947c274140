"""When to call the NVML child hung, when to kill it, when to start another: pure.

Each function takes the state, the time and what happened, and returns the state after it and what
to do; `link` does that. A process stuck in the driver cannot be killed, and killing one that is
merely slow has frozen GPUs: so a call gets minutes, and a second child never starts before the
first is reaped.
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
    """The child let go on request."""
    return NvmlStatus(
        state=SourceState.RELEASED,
        reason=SourceReason.RELEASED,
        message=f"NVML was let go ({reason}); it is asked again when that ends.",
    )


def _ended(
    fault: CallFailed | None, status: int, killed: bool, wait_s: float, *, came_up: bool
) -> NvmlStatus:
    """The child ended by itself or was killed; `fault` is what NVML said, if it said something.

    `came_up`: it was otherwise when this agent began.
    """
    again = f"trying again in {wait_s:.0f} s."
    if fault is None:
        how = "was killed after a hang" if killed else f"ended with status {status}"
        return _down(SourceReason.CHILD_DIED, f"The NVML child {how}; {again}")
    failure = messages.INIT_FAILURES.get(fault.code)
    if failure is None:
        return _down(SourceReason.NVML_FAILED, f"{fault.call} gave {fault.code}; {again}")
    return _down(
        failure.reason,
        f"{failure.sentence} ({fault.call} gave {fault.code}); {again}",
        restart_agent=failure.restart_agent and came_up,
    )


OFF = NvmlStatus(
    state=SourceState.ABSENT, reason=SourceReason.OFF, message="NVML is switched off."
)


UNKNOWN_AFTER_S = 5.0
"""A call this much over its time makes the source Unknown."""
KILL_AFTER_S = 120.0
KILL_AFTER_GSP_TIMEOUT_S = 600.0
"""After an Xid 119 or 120 the driver itself is waiting for the GPU's firmware."""
KILL_INTERVAL_S = 3600.0
FINISH_GRACE_S = 60.0
START_WITHIN_S = 10.0
"""Interpreter start, imports and the first words of the child."""
BETWEEN_CALLS_S = 1.0
BACKOFF_MAX_S = 60.0
STEADY_AFTER_S = 60.0
"""A child that lived this long has earned a quick restart."""
AFTER_ARRIVAL_S = 1.0
"""The driver announces a GPU before it has finished with it, and eight of them one by one."""
GSP_XIDS = (119, 120)


class ChildPhase(enum.Enum):
    """Where the child is."""

    NONE = enum.auto()
    RUNNING = enum.auto()
    FINISHING = enum.auto()
    KILLED = enum.auto()


class Want(enum.Enum):
    """What the agent wants of the child."""

    RUN = enum.auto()
    RELEASE = enum.auto()
    CLOSE = enum.auto()


class State(NamedTuple):
    """All that the supervisor remembers. Times are monotonic seconds."""

    phase: ChildPhase = ChildPhase.NONE
    want: Want = Want.RUN
    release_reason: str = ""
    start_at: float | None = 0.0
    """When to start the next child; None: not by itself."""
    started_at: float = 0.0
    attempts: int = 0
    call: str = ""
    gpu: str = ""
    expected_by: float = 0.0
    hung: bool = False
    greeted: bool = False
    """NVML answered this child."""
    first: int | None = None
    """How the first child fared: 0 when NVML answered it, else the code that NVML gave."""
    finish_by: float | None = None
    killed_at: float | None = None
    gsp_seen_at: float | None = None
    fault: CallFailed | None = None
    status: messages.NvmlStatus | None = None


class Spawn(msgspec.Struct, frozen=True):
    """Start a child."""


class Kill(msgspec.Struct, frozen=True):
    """Kill the child."""


class StopOrder(msgspec.Struct, frozen=True):
    """The link's work is over; `clean` is False when a hung child was left to end by itself."""

    clean: bool


class Send(msgspec.Struct, frozen=True):
    """Send this to the child."""

    message: messages.ToChild


class Emit(msgspec.Struct, frozen=True):
    """Tell the main loop."""

    status: messages.NvmlStatus


Output = Spawn | Kill | StopOrder | Send | Emit
Step = tuple[State, list[Output]]


def next_deadline(state: State) -> float | None:
    """When `tick` is due next; None: nothing is waiting for time."""
    times: list[float] = []
    if state.phase is ChildPhase.NONE:
        if state.want is Want.RUN and state.start_at is not None:
            times.append(state.start_at)
    else:
        if not state.hung:
            times.append(state.expected_by + UNKNOWN_AFTER_S)
        elif state.phase is not ChildPhase.KILLED:
            times.append(_kill_at(state))
        if state.finish_by is not None:
            times.append(state.finish_by)
    return min(times, default=None)


def _kill_at(state: State) -> float:
    """The first moment at which killing the hung child is allowed."""
    at = state.expected_by + KILL_AFTER_S
    if state.gsp_seen_at is not None:
        at = max(at, state.gsp_seen_at + KILL_AFTER_GSP_TIMEOUT_S)
    if state.killed_at is not None:
        at = max(at, state.killed_at + KILL_INTERVAL_S)
    return at


def said(state: State, now: float, message: messages.FromChild) -> Step:
    """The child sent a message."""
    call, gpu, within_s = "", "", BETWEEN_CALLS_S
    if isinstance(message, messages.Calling):
        call, gpu, within_s = message.call, message.gpu, message.within_s
    was_hung = state.hung
    state = state._replace(call=call, gpu=gpu, expected_by=now + within_s, hung=False)
    match message:
        case GpuEvent(kind=EventKind.XID, data=xid) if xid in GSP_XIDS:
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
    """The child ended and was reaped; a negative status is a signal."""
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
        # Released and resumed before it had gone: its end is what was asked for.
        return tick(state._replace(start_at=now, attempts=0), now)
    if status == messages.EXIT_REINITIALISE and (attempts == 0 or fault is None):
        return tick(state._replace(start_at=now if attempts == 0 else now + 1.0), now)
    wait_s = timestamps.backoff_s(attempts + 1, 1.0, BACKOFF_MAX_S)
    code = fault.code if fault is not None else None
    # A container that began with this failure gains nothing by another beginning.
    came_up = state.first is not None and state.first != code
    return _emit(
        state._replace(start_at=now + wait_s, first=code if state.first is None else state.first),
        _ended(fault, status, killed, wait_s, came_up=came_up),
    )


def release(state: State, now: float, reason: str) -> Step:
    """Let go of NVML."""
    if state.want is not Want.RUN:
        return state, []
    state = state._replace(want=Want.RELEASE, release_reason=reason)
    if state.phase is ChildPhase.NONE:
        return _emit(state, _released(reason))
    return _finish(state, now + FINISH_GRACE_S)


def resume(state: State, now: float) -> Step:
    """The release is over."""
    if state.want is not Want.RELEASE:
        return state, []
    # A child that is still finishing is waited for: its end starts the next one.
    return tick(state._replace(want=Want.RUN, start_at=now, release_reason=""), now)


def refresh(state: State, _now: float) -> Step:
    """Enumerate again and read everything now."""
    return state, [Send(messages.Refresh())] if state.phase is ChildPhase.RUNNING else []


def gsp_timeout_seen(state: State, now: float) -> Step:
    """An Xid 119 or 120 was seen in the kernel log."""
    return state._replace(gsp_seen_at=now), []


def reinitialise(state: State, now: float) -> Step:
    """A GPU came or went: only a fresh initialisation counts it."""
    if state.phase is ChildPhase.RUNNING:
        return state, [Send(messages.Reinitialise())]
    if state.phase is ChildPhase.NONE and state.start_at is not None:
        # What came may be the driver that the last child did not find: do not sit out the wait.
        soon = min(state.start_at, now + AFTER_ARRIVAL_S)
        return state._replace(start_at=soon, attempts=0), []
    return state, []


def close(state: State, now: float, timeout_s: float) -> Step:
    """The agent ends."""
    state = state._replace(want=Want.CLOSE)
    if state.phase is ChildPhase.NONE:
        return state, [StopOrder(clean=True)]
    return _finish(state, now + timeout_s)


def _finish(state: State, by: float) -> Step:
    asked = state.phase is not ChildPhase.RUNNING
    phase = ChildPhase.FINISHING if state.phase is ChildPhase.RUNNING else state.phase
    return state._replace(phase=phase, finish_by=by), [] if asked else [Send(messages.Finish())]


def tick(state: State, now: float) -> Step:
    """Time passed."""
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
    if not state.hung and now >= state.expected_by + UNKNOWN_AFTER_S:
        call = f"{state.call or 'The NVML child'}{f' for {state.gpu}' if state.gpu else ''}"
        hung = f"{call} has not returned; waiting for the driver."
        state, outputs = _emit(state._replace(hung=True), _down(SourceReason.CALL_HUNG, hung))
    if state.hung and state.phase is not ChildPhase.KILLED and now >= _kill_at(state):
        state = state._replace(phase=ChildPhase.KILLED, killed_at=now)
        outputs = [*outputs, Kill()]
    if state.finish_by is not None and now >= state.finish_by:
        state = state._replace(finish_by=None)
        if state.want is Want.CLOSE:
            return state, [*outputs, StopOrder(clean=False)]
        stays = (
            f"NVML was to be let go ({state.release_reason}) but {state.call or 'the child'} "
            "does not return; it ends as soon as the driver answers."
        )
        state, more = _emit(state, _down(SourceReason.CALL_HUNG, stays))
        outputs = [*outputs, *more]
    return state, outputs


def _emit(state: State, status: messages.NvmlStatus) -> Step:
    if status == state.status:
        return state, []
    return state._replace(status=status), [Emit(status)]
