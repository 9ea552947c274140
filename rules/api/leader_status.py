"""What the leading remediator reports about itself on its Lease, which it may write when little
else works: that it cannot act and since when, and how it handles a policy that it cannot read.

Written by the leader with every renewal, read by `kubectl gpuward`. Whoever may write the Lease
may have written it: what is read is bounded and printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rules.api.names import (
    ANNOTATION_POLICY_LAST_GOOD,
    ANNOTATION_POLICY_UNREAD,
    ANNOTATION_UNABLE,
)
from rules.api.timestamps import format_time, parse_time
from rules.text.printable import printable

MAX_WORDS: Final = 400
"""Characters of one reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStatus:
    """Empty where all is well, and of a release that says nothing."""

    unable: str = ""
    """Why it does nothing to any node, a clause."""
    unable_since: float | None = None
    """In seconds of the epoch; None where that is not said."""
    unread: str = ""
    """Why it is in Shadow, which nobody chose: what is wrong with its policy, a clause."""
    last_good: str = ""
    """What is wrong with its policy, so that it goes on by the last good one, a clause."""

    def annotations(self) -> dict[str, str]:
        """As it stands on the Lease."""
        since = format_time(self.unable_since or 0.0)
        said = {
            ANNOTATION_UNABLE: f"{since} {_bounded(self.unable)}" if self.unable else "",
            ANNOTATION_POLICY_UNREAD: _bounded(self.unread),
            ANNOTATION_POLICY_LAST_GOOD: _bounded(self.last_good),
        }
        return {key: words for key, words in said.items() if words}


WELL: Final = LeaderStatus()


def leader_status(annotations: Mapping[str, str]) -> LeaderStatus:
    """What stands on a Lease."""
    said = annotations.get(ANNOTATION_UNABLE, "")
    at, _, why = said.partition(" ")
    since = parse_time(at)
    return LeaderStatus(
        unable=_bounded(said if since is None else why),
        unable_since=since,
        unread=_bounded(annotations.get(ANNOTATION_POLICY_UNREAD, "")),
        last_good=_bounded(annotations.get(ANNOTATION_POLICY_LAST_GOOD, "")),
    )


def _bounded(words: str) -> str:
    return printable(words[:MAX_WORDS]).strip().removesuffix(".")
