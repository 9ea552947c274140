"""What would end each kind of waiting: one line per reason of `rules.catalog.why_not`.

`kubectl gpuward why` prints it under what blocks a session; the lines are
`remediator/data/remedies.json`. The long form of each is the page of the same name in
`docs/runbooks/blocked/`; a test compares both with the reasons.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.why_not import WhyNot


class Remedy(msgspec.Struct, frozen=True):
    """What ends a wait, and the command that does, with `{node}` for the node; either may be
    "".
    """

    words: str
    command: str = ""


LET_GO: Final = "kubectl gpuward repair {node}"
"""Ends the wait for approval where a repair step is proposed, and not a release."""
REMEDIES: Final = msgspec.json.decode(
    data_file("remedies.json", "remediator"), type=dict[WhyNot, Remedy]
)
