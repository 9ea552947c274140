"""Draw the packages and their imports into docs/architecture.md.

`python -m hack.packages` writes it, `--check` compares. The sentence of a package is the first
of its `__init__`. Arrows that follow from others (A to C where A to B to C) are left out.
"""

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


def package_of(module: str, path: Path) -> str:
    """The package of a module, at most two levels deep."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return ".".join(package.split(".")[:2])


def imported(path: Path, known: Mapping[str, Path]) -> Iterable[str]:
    """The modules of gpuward that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def arrows(known: Mapping[str, Path]) -> Arrows:
    """Which package imports which."""
    packages = {module: package_of(module, path) for module, path in known.items()}
    found: dict[str, set[str]] = {package: set() for package in packages.values()}
    for module, path in known.items():
        for target in imported(path, known):
            if target in packages and packages[target] != packages[module]:
                found[packages[module]].add(packages[target])
    return {package: frozenset(targets) for package, targets in found.items()}


def reduced(graph: Arrows) -> Arrows:
    """The same without arrows that a longer way implies."""
    return {
        package: frozenset(
            target
            for target in targets
            if not any(target in reached(graph, other) for other in targets - {target})
        )
        for package, targets in graph.items()
    }


def reached(graph: Arrows, start: str) -> frozenset[str]:
    """Every package that arrows lead to from here."""
    seen: set[str] = set()
    ahead = [*graph.get(start, ())]
    while ahead:
        if (package := ahead.pop()) not in seen:
            seen.add(package)
            ahead += graph.get(package, ())
    return frozenset(seen)


def picture(graph: Arrows) -> str:
    """Mermaid: one box per package, boxes of a program together."""
    lines = ["```mermaid", "flowchart TD"]
    for program in PROGRAMS:
        packages = [
            package
            for package in sorted(graph)
            if package.split(".")[0] == program and "." in package
        ]
        lines.append(f"  subgraph {program}")
        lines += [
            f"    {package.replace('.', '_')}[{package.split('.')[1]}]" for package in packages
        ]
        lines.append("  end")
    for package, targets in sorted(reduced(within_programs(graph)).items()):
        lines += [
            f"  {package.replace('.', '_')} --> {target.replace('.', '_')}"
            for target in sorted(targets)
        ]
    return "\n".join([*lines, "```"])


def within_programs(graph: Arrows) -> Arrows:
    """Only packages: what stands at the top of a program (commands, wiring) points everywhere."""
    return {
        package: frozenset(target for target in targets if "." in target)
        for package, targets in graph.items()
        if "." in package
    }


def table(known: Mapping[str, Path]) -> str:
    """Each package and its sentence."""
    lines = ["| package | purpose |", "|---|---|"]
    for module, path in sorted(known.items()):
        if path.name == "__init__.py" and module.count(".") >= 1:
            doc = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
            lines.append(f"| `{module.replace('.', '/')}` | {doc} |")
    return "\n".join(lines)


def filled(page: str, name: str, content: str) -> str:
    """The page with this part drawn again. Raises ValueError where its marker is missing."""
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
    return write_or_check("hack.packages", {PAGE: filled(drawn, "packages", table(known))})


if __name__ == "__main__":
    sys.exit(main())
