"""What the next leader does first about a session: its own rules, asked before there is one. Pure.

What a session says of the time to come was said by a leader that is gone: the time has passed, the
node was rebooted, a person uncordoned it or asked for its release.
"""

from __future__ import annotations

from dataclasses import replace

from remediator.kubectl.leading import Unled
from remediator.kubectl.node_look import NodeLook
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase
from rules.session.decide import decide


def first_act(look: NodeLook, session: QuarantineView, unled: Unled) -> str:
    """The sentence the session then gets; "" where it only goes on with what it was at, and where
    more decides than this person sees: a session that waits needs the budget of the whole fleet.
    """
    before = session.status.phase
    if look.node is None or look.policy is None or before in {"", Phase.PENDING}:
        return ""
    seen = replace(look.observed(look.node, look.policy, session), last_active_at=unled.led_at)
    status = decide(session, seen, look.now, look.policy).status
    if status is None or (status.phase == before and before != Phase.VALIDATING):
        return ""
    return status.message
