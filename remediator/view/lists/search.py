"""What a search finds: nodes and sessions by a part of their name, GPUs by serial number or UUID.
Pure.
"""

from __future__ import annotations

from remediator.view.fleet_view import node_row
from remediator.view.shapes import FoundRow
from remediator.view.state import PageState

MOST_FOUND = 200
SHORTEST = 2
"""Of a serial number or UUID: a single letter would find every GPU."""


def search(state: PageState, text: str) -> list[FoundRow]:
    """Every node that the text may mean, each once, with why; nodes by name first."""
    asked = text.strip().lower()
    if not asked:
        return []
    found: dict[str, str] = {}
    for name in sorted(state.snapshot.nodes):
        if asked in name.lower():
            found[name] = "its name"
    for name, session in sorted(state.snapshot.quarantines.items()):
        if asked in name.lower():
            found.setdefault(session.spec.node_name, f"session {name}")
    if len(asked) >= SHORTEST:
        for node, why in _gpus(state, asked):
            found.setdefault(node, why)
    there = state.snapshot.nodes
    return [
        FoundRow(node=node_row(there[name], state) if name in there else None, name=name, why=why)
        for name, why in list(found.items())[:MOST_FOUND]
    ]


def _gpus(state: PageState, asked: str) -> list[tuple[str, str]]:
    """Nodes of GPUs by serial number or UUID: from verdicts at hand, and from what is on
    record.
    """
    found: list[tuple[str, str]] = []
    for name, health in sorted({**state.read, **state.snapshot.healths}.items()):
        found += [
            (name, f"GPU {gpu.index}, serial {gpu.serial or '-'}, {gpu.uuid}")
            for gpu in health.status.gpus
            if asked in gpu.uuid.lower() or asked in gpu.serial.lower()
        ]
    for _, record in sorted(state.snapshot.records.items()):
        status = record.status
        if status.node and (asked in status.uuid.lower() or asked in status.serial.lower()):
            found.append((status.node, f"on record: serial {status.serial or '-'}, {status.uuid}"))
    return found
