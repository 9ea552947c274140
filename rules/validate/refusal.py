"""Why a test must not begin: it would disturb somebody, or say nothing.

Called by `agent.commands.validate` and `agent.validate.course`. Each answer is one sentence; empty
where the test may begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rules.validate.findings import Subject

FREE_SHARE: Final = 0.9
"""Of the memory, that is free on an idle GPU beside the test's own process: what must be tested.
"""
_WHY: Final = "nothing was tested, since that would disturb the work and spoil the figures"
_INSIST: Final = "drain the node first, or insist with --even-if-busy"


def untestable(chosen: Sequence[Subject]) -> str:
    """Only whole GPUs can be tested."""
    split = [subject for subject in chosen if subject.mig]
    if not split:
        return ""
    return (
        f"GPU {split[0].index} is in MIG mode, and only whole GPUs can be tested: nothing was"
        " tested; choose others with --gpus."
    )


def in_use(chosen: Sequence[Subject]) -> str:
    """Processes of others, as far as NVML shows them: a pod sees those of its own alone."""
    held = [subject for subject in chosen if subject.processes]
    if not held:
        return ""
    first = held[0]
    pids = ", ".join(str(pid) for pid in first.processes[:3])
    more = f" and {len(held) - 1} more are in use" if len(held) > 1 else ""
    return f"GPU {first.index} is in use by process {pids}{more}: {_WHY}; {_INSIST}."


def occupied(subject: Subject, free: int, total: int) -> str:
    """Memory that somebody out of sight holds. Bytes."""
    if total <= 0 or free >= FREE_SHARE * total:
        return ""
    return (
        f"GPU {subject.index} has {100 * free / total:.0f} % of its memory free, so somebody out "
        f"of sight uses it: {_WHY}; {_INSIST}."
    )
