"""The sentences in which the state of NVML as a source is told: one per situation.

Pure; used by `supervisor`. Each message says what happened and what is next.
"""

from __future__ import annotations

from agent.nvml.messages import INIT_FAILURES, Fault, NvmlStatus, SourceReason, SourceState


def up(message: str) -> NvmlStatus:
    """NVML answers."""
    return NvmlStatus(state=SourceState.UP, reason=SourceReason.ANSWERING, message=message)


def released(reason: str) -> NvmlStatus:
    """The child let go on request."""
    return NvmlStatus(
        state=SourceState.RELEASED,
        reason=SourceReason.RELEASED,
        message=f"NVML was let go ({reason}); it is asked again when that ends.",
    )


def hung(call: str, gpu: str) -> NvmlStatus:
    """A call has not returned in its time."""
    where = f" for {gpu}" if gpu else ""
    return NvmlStatus(
        state=SourceState.DOWN,
        reason=SourceReason.CALL_HUNG,
        message=f"{call or 'The NVML child'}{where} has not returned; waiting for the driver.",
        call=call,
        gpu=gpu,
    )


def will_not_let_go(reason: str, call: str, gpu: str) -> NvmlStatus:
    """The child was asked to finish and does not."""
    return NvmlStatus(
        state=SourceState.DOWN,
        reason=SourceReason.CALL_HUNG,
        message=(
            f"NVML was to be let go ({reason}) but {call or 'the child'} "
            "does not return; it ends as soon as the driver answers."
        ),
        call=call,
        gpu=gpu,
    )


def unusable(note: str) -> NvmlStatus:
    """The child cannot use what it was pointed at."""
    return NvmlStatus(
        state=SourceState.DOWN,
        reason=SourceReason.SIMULATOR_UNUSABLE,
        message=note or "The simulated driver cannot be used.",
    )


def down(
    fault: Fault | None, status: int, killed: bool, wait_s: float, *, came_up: bool
) -> NvmlStatus:
    """The child ended by itself or was killed; `fault` is what NVML said, if it said something.

    `came_up`: it was otherwise when this agent began.
    """
    again = f"trying again in {wait_s:.0f} s."
    if fault is not None:
        failure = INIT_FAILURES.get(fault.code)
        if failure is not None:
            return NvmlStatus(
                state=SourceState.DOWN,
                reason=failure.reason,
                message=f"{failure.sentence} ({fault.call} gave {fault.code}); {again}",
                code=fault.code,
                call=fault.call,
                restart_agent=failure.restart_agent and came_up,
            )
        return NvmlStatus(
            state=SourceState.DOWN,
            reason=SourceReason.NVML_FAILED,
            message=f"{fault.call} gave {fault.code}; {again}",
            code=fault.code,
            call=fault.call,
        )
    how = "was killed after a hang" if killed else f"ended with status {status}"
    return NvmlStatus(
        state=SourceState.DOWN,
        reason=SourceReason.CHILD_DIED,
        message=f"The NVML child {how}; {again}",
    )


def off() -> NvmlStatus:
    """NVML is not to be asked, by configuration."""
    return NvmlStatus(
        state=SourceState.ABSENT, reason=SourceReason.OFF, message="NVML is switched off."
    )
