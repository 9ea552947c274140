"""A plan as lines for a terminal: what holds several nodes is said once. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from remediator.kubectl.planning.node_plan import NodePlan
from remediator.view.text import labelled, table
from rules.api.sentences import some
from rules.text.counted import count
from rules.text.printable import printable

_SHOWN_BLOCKS: Final = 3
_SHARED: Final = 2
"""So many nodes with the same sentence are told it once."""
_NODE: Final = "NODE"
"""Stands for the node in a sentence that is about each of several."""


def plan_lines(planned: Sequence[NodePlan], *, wide: bool) -> list[str]:
    """The table; under it what holds for several nodes, once, and then what holds for one."""
    told = {one.node: _details(one, wide=wide) for one in planned}
    nodes: dict[str, list[str]] = {}
    for name, texts in told.items():
        for text in texts:
            nodes.setdefault(_of_any(text, name), []).append(name)
    shared = {text: names for text, names in nodes.items() if len(names) >= _SHARED}
    lines = [_table(planned, wide=wide)]
    for text, names in shared.items():
        named = ", ".join(names) if wide else some(names)
        lines += ["", *labelled("", [f"{count(len(names), 'node')}: {text}", f"  {named}"])]
    for name, texts in told.items():
        own = [text for text in texts if _of_any(text, name) not in shared]
        if own:
            lines += ["", printable(name), *labelled("", own)]
    return lines


def _of_any(text: str, node: str) -> str:
    """The sentence as it is said of any node: only its commands are about this one."""
    command = rf"(kubectl (?:gpuward \w+|label node) ){re.escape(node)}(?![\w.-]*\w)"
    return re.sub(command, rf"\1{_NODE}", text)


def _table(planned: Sequence[NodePlan], *, wide: bool) -> str:
    held_back = any(one.blocked_by for one in planned)
    shadow = any(one.now not in {"", "nothing"} for one in planned)
    header = ["REASON", "PEOPLE", "EVICT", "BLOCKED", "LEFT"]
    header = ["NODE", "WOULD", *(["WHY"] if held_back else []), *header]
    rows = [
        [
            one.node,
            f"{one.would}, then {one.then}" if one.then else one.would,
            *([one.blocked_by] if held_back else []),
            one.reason,
            ", ".join(one.people),
            str(one.evictable),
            str(len(one.blocked)),
            str(one.left),
            *([one.now] if shadow else []),
        ]
        for one in planned
    ]
    header += ["NOW"] if shadow else []
    return table(header, rows, spare=("LEFT", "EVICT", "PEOPLE", "BLOCKED"), wide=wide)


def _details(one: NodePlan, *, wide: bool) -> list[str]:
    """Why it waits, what blocks it, what could not come back."""
    said = [text for text in (one.over_budget, one.because) if text]
    blocked = one.blocked if wide else one.blocked[:_SHOWN_BLOCKS]
    said += [f"blocked: {text}" for text in blocked]
    if len(one.blocked) > len(blocked):
        said.append(f"and {len(one.blocked) - len(blocked)} more blocks: -o wide")
    if one.repair:
        said.append(one.repair)
    if one.untolerating:
        said.append(f"could not come back: {some(one.untolerating)} (no toleration)")
    return said
