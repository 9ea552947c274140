"""Who else claims a field of a node, read from its `managedFields`.

Called by `rules.api.mark` when our mark comes off: what another manager has asked for meanwhile
stays. A manager's name is what its client says of itself; it is named to people and proves
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.nodes import FreshNode, NodeView
from rules.api.timestamps import parse_time

MERGED: Final = "ancient-changes"
"""What the API server calls the oldest of more than ten updating managers, put into one entry."""


def claimed_by_another(node: NodeView, path: Sequence[str], since: float) -> str:
    """The manager other than us that claims the field at `path`; "" when nobody does.

    `since` (seconds since the epoch): an older claim is not about what we set. A claim without a
    readable time counts: server-side apply of a value that is there already makes its manager an
    owner and changes nothing else, so that no time is recorded. Only a `FreshNode` carries the
    managers, anything else is claimed by nobody.
    """
    if not isinstance(node, FreshNode):
        return ""
    claims = [entry for entry in node.metadata.managed_fields if entry.claims(path)]
    ours = any(entry.manager == COMPONENT_REMEDIATOR for entry in claims)
    for entry in claims:
        # Our own claim may have been put into the merged entry.
        if entry.manager == COMPONENT_REMEDIATOR or (entry.manager == MERGED and not ours):
            continue
        at = parse_time(entry.time)
        if at is None or at >= since:
            return entry.manager[:100] or "another manager"
    return ""


def claimed_by_us_at(node: FreshNode, path: Sequence[str]) -> float | None:
    """When we last wrote, if we own the field at `path`; None where we do not, or nobody can say
    when. Whoever sets a value that is there already, as a second cordon, becomes no owner.
    """
    ours = (e for e in node.metadata.managed_fields if e.manager == COMPONENT_REMEDIATOR)
    return next((parse_time(entry.time) for entry in ours if entry.claims(path)), None)
