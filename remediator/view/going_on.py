"""Whether gpuward is doing something about a node now that a word of people would stop. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api.nodes import NodeView, PauseView, QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.catalog.reason import Level
from rules.policy.policy import Policy
from rules.session.causes import has_human, level_in_effect
from rules.session.observation import opted_out, pause_covers, selects_node
from rules.session.owners import working_owner

ON_THE_WAY: Final = frozenset({Phase.MARKED, Phase.DRAINING})
_NOT_YET: Final = frozenset({"", Phase.PENDING})


def goes_out(
    session: QuarantineView,
    node: NodeView,
    pauses: Iterable[PauseView],
    policy: Policy | None,
    now: float,
) -> bool:
    """Whether the node is on its way out of service: its pods leave, or a person asked for it and
    it is marked next. Not what waits for its turn, nor what stands still already.

    `pauses` are those in force; `policy` is None where it may not be read.
    """
    if stands_still(session, node, pauses, policy, now) or session.spec.release is not None:
        return False
    if session.status.phase in _NOT_YET:
        return has_human(session)
    level = level_in_effect(session, session.spec.causes, policy or Policy())
    return session.status.phase in ON_THE_WAY and level == Level.DRAIN


def stands_still(
    session: QuarantineView,
    node: NodeView,
    pauses: Iterable[PauseView],
    policy: Policy | None,
    now: float,
) -> bool:
    """Whether nothing more is done to the node as things are, as `rules.session.halts` has it."""
    shadow = Mode.SHADOW in {session.status.mode, policy.mode if policy is not None else ""}
    left_out = policy is not None and not selects_node(policy, node) and not has_human(session)
    return (
        shadow
        or left_out
        or opted_out(node)
        or bool(working_owner(node, None, now))
        or any(pause_covers(pause, node, now) for pause in pauses)
    )
