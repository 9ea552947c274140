"""What a repair step of this machine came to: one sentence, an exit status, a word for Kubernetes.

Made by `agent.repair.reset` and `agent.repair.restart`, told by the two commands. It proves
nothing: whether the node is repaired, the remediator sees for itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

MAX_BYTES: Final = 4096
"""What a kubelet keeps of a termination message."""
MAX_WORDS: Final = 1024


class Outcome(StrEnum):
    """How it ended."""

    DONE = "done"
    """Asked, and not refused by whoever does it."""
    NEEDLESS = "needless"
    """The node has booted since: there was nothing to do."""
    UNKNOWN = "unknown"
    """Asked, and whether it was heard is not known: it may happen yet."""
    FAILED = "failed"
    """It was begun and did not succeed."""
    REFUSED = "refused"
    """Something stands against it; nothing was begun."""


EXIT_STATUS: Final = {
    Outcome.DONE: 0,
    Outcome.NEEDLESS: 0,
    Outcome.UNKNOWN: 2,
    Outcome.FAILED: 1,
    Outcome.REFUSED: 3,
}


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """One JSON object, on standard output with `--json` and for Kubernetes."""

    outcome: Outcome
    message: str
    gpus: tuple[str, ...] = ()


def for_kubernetes(result: RepairResult) -> bytes:
    """The result within what a kubelet keeps."""
    short = msgspec.structs.replace(result, message=result.message[:MAX_WORDS])
    text = msgspec.json.encode(short)
    if len(text) > MAX_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(short, gpus=()))
    return text
