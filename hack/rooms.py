"""Draw the house from its imports into docs/architecture.md: rooms, arrows, and what goes in and
out.

`python -m hack.rooms` writes it, `--check` compares. A room is a package; its sentence is the
first of its `__init__`. Arrows that follow from others (A to C where A to B to C) are left out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hack.generated import write_or_check

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PROGRAMS = ("rules", "agent", "remediator")
BEGIN, END = "<!-- drawn from the imports: {} -->", "<!-- end -->"

Arrows = Mapping[str, frozenset[str]]


def modules() -> dict[str, Path]:
    """Every module of the programs by its dotted name."""
    found = {}
    for program in PROGRAMS:
        for path in sorted((ROOT / program).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str, path: Path) -> str:
    """The package that a module stands in; two rooms deep at the most."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return ".".join(package.split(".")[:2])


def imported(path: Path, known: Mapping[str, Path]) -> Iterable[str]:
    """The modules of ours that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def arrows(known: Mapping[str, Path]) -> Arrows:
    """Which room imports which."""
    rooms = {module: room_of(module, path) for module, path in known.items()}
    found: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for module, path in known.items():
        for target in imported(path, known):
            if target in rooms and rooms[target] != rooms[module]:
                found[rooms[module]].add(rooms[target])
    return {room: frozenset(targets) for room, targets in found.items()}


def reduced(graph: Arrows) -> Arrows:
    """The same without arrows that a longer way implies."""
    return {
        room: frozenset(
            target
            for target in targets
            if not any(target in reached(graph, other) for other in targets - {target})
        )
        for room, targets in graph.items()
    }


def reached(graph: Arrows, start: str) -> frozenset[str]:
    """Every room that arrows lead to from here."""
    seen: set[str] = set()
    ahead = [*graph.get(start, ())]
    while ahead:
        if (room := ahead.pop()) not in seen:
            seen.add(room)
            ahead += graph.get(room, ())
    return frozenset(seen)


def picture(graph: Arrows) -> str:
    """Mermaid: one box per room, boxes of a program together."""
    lines = ["```mermaid", "flowchart TD"]
    for program in PROGRAMS:
        rooms = [room for room in sorted(graph) if room.split(".")[0] == program and "." in room]
        lines.append(f"  subgraph {program}")
        lines += [f"    {room.replace('.', '_')}[{room.split('.')[1]}]" for room in rooms]
        lines.append("  end")
    for room, targets in sorted(reduced(within_rooms(graph)).items()):
        lines += [
            f"  {room.replace('.', '_')} --> {target.replace('.', '_')}"
            for target in sorted(targets)
        ]
    return "\n".join([*lines, "```"])


def within_rooms(graph: Arrows) -> Arrows:
    """Only rooms: what stands at the top of a program (commands, wiring) points everywhere."""
    return {
        room: frozenset(target for target in targets if "." in target)
        for room, targets in graph.items()
        if "." in room
    }


def table(known: Mapping[str, Path]) -> str:
    """Each room and its sentence."""
    lines = ["| room | what comes in, what goes out |", "|---|---|"]
    for module, path in sorted(known.items()):
        if path.name == "__init__.py" and module.count(".") >= 1:
            said = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
            lines.append(f"| `{module.replace('.', '/')}` | {said} |")
    return "\n".join(lines)


def filled(page: str, name: str, content: str) -> str:
    """The page with this part drawn anew. Raises ValueError where its marker is missing."""
    begin = BEGIN.format(name)
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} has no part between {begin!r} and {END!r}")
    return f"{before}{begin}\n\n{content}\n\n{END}{after}"


def main() -> int:
    """Write or compare; 1 when the page differs."""
    known = modules()
    drawn = filled(PAGE.read_text(encoding="utf-8"), "picture", picture(arrows(known)))
    return write_or_check("hack.rooms", {PAGE: filled(drawn, "rooms", table(known))})


if __name__ == "__main__":
    sys.exit(main())
