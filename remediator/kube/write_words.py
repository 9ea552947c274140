"""What log and metrics call a write: what only asks must not read as what does."""

from __future__ import annotations

from typing import Final

from rules.api import writes as d

DRY_RUN_EVICTION: Final = "DryRunEviction"
"""An eviction of which the API server is asked only whether it would allow it."""
_NAMED_BY: Final = ("node", "session", "name", "namespace", "pdb")


def kind_of(write: d.Write) -> str:
    """The word that stands for its kind."""
    if isinstance(write, d.EvictPod) and write.dry_run:
        return DRY_RUN_EVICTION
    return type(write).__name__


def named(write: d.Write) -> dict[str, str]:
    """Which object it is about, for a line of the log."""
    found = {name: value for name in _NAMED_BY if (value := getattr(write, name, ""))}
    if isinstance(write, d.WriteSessionStatus):
        # A phase is a word of the contract: Marked in Shadow means that nothing was marked.
        found |= {"phase": write.status.phase, "mode": write.status.mode}
    return found
