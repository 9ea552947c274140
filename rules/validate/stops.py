"""A step that ended without a value: is that the GPU's fault, or could it not be tested?

Called by `judge`. Source of the codes: CUresult in NVIDIA's cuda.h.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rules.validate.contract import Check, Verdict
from rules.validate.findings import Stop, Stopped

GPU_FAULTS: Final = frozenset(
    {
        214,  # an uncorrectable ECC error
        220,  # an uncorrectable NVLink error
        226,  # an error that was contained to one process
        700,  # a load or store outside of what was allocated: ours never leave it
        702,  # a launch that timed out
        714,  # an error in the call stack
        715,  # an illegal instruction, in code that its own driver compiled
        716,  # a misaligned address
        717,  # an address of another space
        718,  # a program counter that left its code
        719,  # a launch that failed
        999,  # unknown: what is left of a GPU that fell off the bus
    }
)
"""Errors that arithmetic on a sound GPU does not give. All others (no memory, no permission, no
compiler, a fabric that is not up) say that the test could not run.
"""
_ENOUGH_TO_DOUBT: Final = 2


def stop_checks(stopped: Sequence[Stopped], tested: int) -> Iterator[Check]:
    """One check for each step that stopped, of `tested` GPUs.

    The same error of the same call on every one of them is no verdict on any: the driver or the
    test itself is the suspect.
    """
    alike = Counter(
        (stop.check, stop.call, stop.code)
        for stop in {(stop.check, stop.gpu): stop for stop in stopped}.values()
        if stop.why is Stop.FAILED
    )
    for stop in stopped:
        everywhere = alike[(stop.check, stop.call, stop.code)] >= max(tested, _ENOUGH_TO_DOUBT)
        verdict, note = _judged(stop, everywhere=everywhere and stop.why is Stop.FAILED)
        yield Check(id=stop.check, gpu=stop.gpu, peer=stop.peer, verdict=verdict, note=note)


def _judged(stop: Stopped, *, everywhere: bool) -> tuple[Verdict, str]:
    if stop.why is Stop.HUNG:
        return Verdict.FAIL, f"no answer within {stop.seconds:g} s: it hangs"
    if stop.why is Stop.DIED:
        ended = f"signal {-stop.code}" if stop.code < 0 else f"status {stop.code}"
        # Too little memory for the pod ends it as well: what is wrong with the GPU, NVML tells.
        return Verdict.UNKNOWN, f"the process that tested it ended in the middle, with {ended}"
    said = f"{stop.call} gave {stop.name or 'error'} ({stop.code})"
    if everywhere:
        return Verdict.UNKNOWN, f"{said} on every GPU: the driver or this test is the suspect"
    if stop.code in GPU_FAULTS:
        return Verdict.FAIL, said
    return Verdict.UNKNOWN, f"{said}: it could not be tested"
