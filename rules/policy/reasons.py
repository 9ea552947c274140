"""Reasons in a policy that no catalog knows: most likely a slip of the pen that changes nothing.

Called by `policy check` only. A note and not an error: a newer agent, or an agent with a rules
file of its own, may publish reasons that this version has never heard of.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from rules.catalog.reasons import REASONS, RECOVERY_REASONS
from rules.catalog.xid import catalog
from rules.policy.external import reasons_of
from rules.policy.policy import Policy

_UNKNOWN_XID: Final = re.compile(r"Xid\d{1,4}Unknown")


def unknown_reasons(policy: Policy) -> tuple[str, ...]:
    """One sentence for each, with the nearest reason there is."""
    known = {*REASONS, *RECOVERY_REASONS, *(row.reason().reason for row in catalog().values())}
    known |= reasons_of(policy.external)
    return tuple(
        f"reasons.{reason} is no reason of this version{_nearest(reason, known)}; it changes "
        "nothing unless an agent publishes it"
        for reason in sorted(policy.reasons)
        if reason not in known and not _UNKNOWN_XID.fullmatch(reason)
    )


def _nearest(reason: str, known: set[str]) -> str:
    numbered = [name for name in sorted(known) if name.startswith(reason)]
    near = numbered or difflib.get_close_matches(reason, sorted(known), n=1)
    return f", did you mean {near[0]}?" if near else ""
