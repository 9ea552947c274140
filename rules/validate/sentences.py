"""What one check says to people.

Used by `judge` and `agent.commands.validate_table`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rules.validate.contract import Check


def sentence_of(check: Check, names: Mapping[str, str]) -> str:
    """`peer on GPU 1 and GPU 2: 30 GB/s, at least 301; 90 % of ...`; `names` are by UUID."""
    where = " and ".join(names.get(uuid, uuid) for uuid in (check.gpu, check.peer) if uuid)
    parts = []
    if check.value is not None:
        bound = f", at least {check.floor:g}" if check.floor is not None else ""
        parts.append(f"{check.value:g} {check.unit}".rstrip() + bound)
    if check.note:
        parts.append(check.note)
    return f"{check.id} on {where or 'this node'}: {'; '.join(parts) or 'not as it should be'}"
