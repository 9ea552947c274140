"""What a person can do about a node now, as commands to copy. Pure.

The page and `kubectl gpuward why` show the same commands in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rules.api.quarantine import Condition
from rules.session.status import PROPOSED


def proposed_step(conditions: Iterable[Condition]) -> str:
    """The repair step that waits for a person's word; "" where none does."""
    asked = (c.reason for c in conditions if c.type == PROPOSED and c.status == "True")
    return next(asked, "")


def session_acts(
    node: str, *, proposed: str = "", held: bool = False, detected: bool = True
) -> Iterator[tuple[str, str]]:
    """(command, what it does) for a node with an open session; `detected` where a fault is among
    its causes.
    """
    if proposed:
        yield f"kubectl gpuward repair {node}", f"let {proposed} go"
    if held:
        yield f"kubectl gpuward unhold {node}", "let it be released"
    else:
        yield (
            f'kubectl gpuward hold {node} --reason "..."',
            "keep it out (a second cordon leaves no trace)",
        )
    if detected:
        yield f'kubectl gpuward repaired {node} --reason "..."', "say that a part was replaced"
    yield f'kubectl gpuward release {node} --reason "..."', "give it back now"
