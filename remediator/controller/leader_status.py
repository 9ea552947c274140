"""What this replica, while it leads, says of itself on its Lease: `rules.api.nodes`.

Whoever deletes its ClusterRoleBinding leaves it the Lease, which a Role of its own namespace
grants: from there people learn that nothing they wait for happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from remediator.controller.policy_source import PolicySource
from remediator.kube.clock import Clock
from rules.api.nodes import LeaderStatus
from rules.catalog.why_not import Refusal

_LASTS_S: Final = 5.0
"""A list that is made anew is no news: what is over by the next renewals is not told."""


class SelfReport:
    """Remembers since when this replica cannot act."""

    def __init__(
        self,
        clock: Clock,
        unable: Callable[[], str],
        unsaid: Callable[[], Refusal | None],
        policy: PolicySource,
    ) -> None:
        """`unable` says why nothing could be done to a node now, "" while it could; `unsaid` what
        no session can say, since it may not be written.
        """
        self._clock = clock
        self._unable = unable
        self._unsaid = unsaid
        self._policy = policy
        self._since: float | None = None

    def annotations(self) -> dict[str, str]:
        """What is to stand on the Lease now."""
        refused, now = self._unsaid(), self._clock.now()
        why = _clause(self._unable()) or (refused.why if refused is not None else "")
        self._since = None if not why else now if self._since is None else self._since
        lasts = self._since is not None and now - self._since >= _LASTS_S
        wrong = self._policy.wrong
        return LeaderStatus(
            unable=why if lasts else "",
            unable_since=self._since,
            unread=wrong if self._policy.unread else "",
            last_good="" if self._policy.unread else wrong,
        ).annotations()


def _clause(sentence: str) -> str:
    """As a part of another sentence, which it does not begin."""
    named = sentence[1:2].isupper()  # an abbreviation keeps its capitals
    return sentence if named else f"{sentence[:1].lower()}{sentence[1:]}"
