"""One look through NVML, made by a process of its own (`reader`), since NVML too may hang.

Called by `course` before, during and after the test.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

import msgspec

from agent.validate.processes import DIE_WITHIN_S, module_command, module_environment
from rules.validate.findings import Counters, Subject


class ReadingError(Exception):
    """NVML could not be read; the text is one sentence."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML says of the node now. `links` are by place in `subjects`."""

    subjects: list[Subject] = []
    counters: list[Counters] = []
    links: list[list[str]] = []
    counted: int = 0
    """GPUs that NVML counts; more than `subjects` where it cannot describe one."""
    error: str = ""


def look(mode: str, deadline_s: float) -> Reading:
    """Read once. Raises ReadingError where NVML does not answer, or not in time."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        module_command("agent.validate.reader", mode),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=module_environment(),
    )
    try:
        said, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        # One that sits in the kernel outlasts that, and is left behind.
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=DIE_WITHIN_S)
        raise ReadingError(f"NVML did not answer within {deadline_s:g} s.") from None
    try:
        reading = msgspec.json.decode(said, type=Reading)
    except msgspec.DecodeError:
        status = process.returncode
        raise ReadingError(f"the process that reads NVML ended with status {status}.") from None
    if reading.error:
        raise ReadingError(reading.error)
    return reading
