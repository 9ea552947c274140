"""What `why` is asked about: one node, with what was read of it."""

from typing import Any

import msgspec

from remediator.kubectl.node_state import NodeLook
from remediator.kubectl.why import why_lines
from rules.api.nodes import FreshNode, HealthView, QuarantineView
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.remediator.kubectl_objects import NOW, Object, node

NAME = "gpu-7"
SESSION = f"{NAME}-0badcafe"
ENFORCE = Policy(mode=Mode.ENFORCE)


def look(
    health: Object | None = None, *sessions: Object, on: Object | None = None, **changes: Any
) -> NodeLook:
    """The input of `why`; the defaults are a healthy node without changes, in mode Enforce."""
    found: dict[str, Any] = {
        "name": NAME,
        "now": NOW,
        "node": msgspec.convert(on or node(NAME), FreshNode),
        "health": msgspec.convert(health, HealthView) if health else None,
        "sessions": tuple(msgspec.convert(one, QuarantineView) for one in sessions),
        "agents": (),
        "policy": ENFORCE,
    }
    return NodeLook(**{**found, **changes})


def summary(seen: NodeLook) -> str:
    """The output of `why` in one line."""
    return " ".join(" ".join(why_lines(seen)).split())
