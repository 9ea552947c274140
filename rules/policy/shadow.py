"""Whether Shadow was decided or came by accident, and what is said of either: nowhere else.

A process that could not read its policy since its start is in Shadow, since it must not act by
limits that nobody set. Nobody chose that: it is no word about any node, it ends with a policy that
can be read and not with `mode: Enforce`, and people are to be told, at night as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rules.api.quarantine import Mode
from rules.catalog.why_not import WhyNot
from rules.policy.policy import Policy


class UnreadPolicy(Policy, frozen=True, kw_only=True):
    """The defaults, in force because no policy could be read since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowWords:
    """Why nothing is done to nodes, and what ends that; clauses."""

    reason: WhyNot
    said: str
    """What is so, of the whole fleet."""
    halts: str
    """Why a session that has begun stands still."""
    nobody: str
    """Beside the word Shadow: that nobody chose it; "" where somebody did."""
    enforced: str
    """What ends it and has nodes judged afresh, a noun."""
    again: str
    """When sessions that stand still go on."""


_CHOSEN: Final = ShadowWords(
    reason=WhyNot.POLICY_IS_SHADOW,
    said="the policy is Shadow",
    halts="the policy was switched to Shadow, so nothing more is done to the node",
    nobody="",
    enforced="mode Enforce in the policy",
    again="when the policy enforces again",
)
_UNREAD: Final = ShadowWords(
    reason=WhyNot.POLICY_UNREAD,
    said="the remediator has not been able to read its policy since it started, so it is in "
    "Shadow, which nobody chose",
    halts="the remediator has not been able to read its policy since it started, so nothing more "
    "is done to the node",
    nobody="which nobody chose: no policy could be read since the remediator started",
    enforced="a policy that can be read",
    again="once the policy can be read again",
)
GOES_ON: Final = {words.reason: words.again for words in (_CHOSEN, _UNREAD)}
"""When a session goes on that says why it stands still."""


def shadow_of(policy: Policy | None) -> ShadowWords | None:
    """The words for a policy in Shadow; None for one that enforces, or is not known."""
    if policy is None or policy.mode != Mode.SHADOW:
        return None
    return _UNREAD if isinstance(policy, UnreadPolicy) else _CHOSEN


def session_mode(policy: Policy) -> Mode:
    """What a session that begins now is: for want of a policy it waits, and is not played by
    limits that nobody set.
    """
    return Mode.ENFORCE if by_accident(policy) else policy.mode


def by_accident(policy: Policy | None) -> bool:
    """Whether nothing is done to nodes although nobody decided that."""
    return isinstance(policy, UnreadPolicy) and policy.mode == Mode.SHADOW
