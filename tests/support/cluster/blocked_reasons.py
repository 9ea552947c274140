"""Every word that the deciding rules can put into a session's condition Blocked.

Read from the source of `rules`: the `reason` of whatever says no (a permit, a halt, a budget's
refusal, an obstacle, a pod's fate, a gang's turn), and the words that functions return or assign
next to a clause for people. A new reason shows up here by being written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

RULES = Path(__file__).resolve().parents[3] / "rules"
MODULES = ("session/*.py", "fleet/*.py", "drain/*.py", "api/refusal.py", "api/gangs.py")
SPEAKERS = frozenset(
    {"Permit", "Halt", "Block", "Obstacle", "PodVerdict", "GangTurn", "EvictionOutcome", "Refusal"}
)
_WORD = re.compile(r"([A-Z][a-z0-9]+)+|[A-Z]{2,}[A-Za-z0-9]*")


def blocked_reasons() -> set[str]:
    """All of them."""
    found: set[str] = set()
    for pattern in MODULES:
        for path in RULES.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text())):
                found |= {word for word in _words(node) if _WORD.fullmatch(word)}
    return found


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        keys = {k.arg: ast.unparse(k.value) for k in node.keywords}
        # A stuck pod's own words go into the list of stuck pods; the condition says PodStuck.
        if node.func.id in SPEAKERS and keys.get("fate") != "Fate.STUCK":
            yield from (w for k in node.keywords if k.arg == "reason" for w in _strings(k.value))
    elif isinstance(node, ast.ClassDef) and node.name in SPEAKERS:
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == "reason":
                yield from _strings(part.value)
    elif isinstance(node, ast.FunctionDef):
        yield from _of_function(node)
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("(reason,"):
        yield from _first(node.value)
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {"reason", "human"}:
        yield from _strings(node.value)


def _of_function(node: ast.FunctionDef) -> Iterator[str]:
    """Functions that answer (reason, clause), or one word that needs a person."""
    returns = [r.value for r in ast.walk(node) if isinstance(r, ast.Return)]
    if node.returns is not None and ast.unparse(node.returns) == "tuple[str, str]":
        for value in returns:
            yield from _first(value)
    elif node.name == "_needs_human":
        for value in returns:
            yield from _strings(value)
    elif "excesses" in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
        for part in ast.walk(node):
            if isinstance(part, ast.Tuple) and len(part.elts) == 4:
                yield from _strings(part.elts[2])
    elif node.name == "_too_many":
        for value in returns:
            yield from (w for w in _strings(value) if w)


def _first(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.Tuple):
        yield from _strings(value.elts[0])
    elif isinstance(value, ast.IfExp):
        yield from _first(value.body)
        yield from _first(value.orelse)


def _strings(value: ast.AST | None) -> Iterator[str]:
    """String constants an expression may come out as; what it only compares with is not one."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _strings(value.body)
        yield from _strings(value.orelse)
    elif value is not None and not isinstance(value, ast.Compare | ast.Call):
        for part in ast.iter_child_nodes(value):
            yield from _strings(part)
