"""How old what this process knows may be before harm rests on it.

A pause, a person's release or another owner that came while a list or watch fails is missing in
what was last seen; whoever goes on with that harms in spite of it. Judged for every view by
whoever holds it, said in `FleetSnapshot.doubt`, checked at every decision and before every
harmful write. Pure: ages come in as numbers.
"""

from __future__ import annotations

from typing import Final

QUIET_S: Final = 100.0
"""An API server sends each watch a bookmark about once a minute (kube-apiserver's
`bookmarkFrequency` is 60 s), so a view that heard nothing for this long is not merely quiet."""
UNFOLLOWED_S: Final = 20.0
"""A watch that ends is resumed within milliseconds, after some failures within seconds."""


def too_old(
    name: str,
    *,
    quiet_s: float,
    unfollowed_s: float,
    problem: str,
    longest_quiet_s: float = QUIET_S,
) -> str:
    """Why no harm may rest on the view called `name`, a clause; "" when it may.

    `quiet_s` is since anything of it was heard, `unfollowed_s` since nobody follows it (0 while
    somebody does); `problem` is what keeps that from working, where it is known.
    `longest_quiet_s` is shorter for a view that is listed anew more often.
    """
    if quiet_s <= longest_quiet_s and unfollowed_s <= UNFOLLOWED_S:
        return ""
    why = f" ({problem})" if problem else ""
    return f"what is known of {name} is too old to act on{why}"[:300]
