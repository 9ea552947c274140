"""Compiles for an image: bytecode without docstrings, with assertions, never checked again.

    python -X no_debug_ranges daemonset/bytecode.py PLACE...

Each PLACE is a file or a folder with all below it, but for folders named `test` or `tests` of the
standard library. Python's own way to drop docstrings (`-OO`) drops the assertions, too. Classes
keep theirs: without one, `dataclasses` writes it, by a module that nobody else needs. What does
not compile (templates, tests of errors) stays source, as with `compileall`.
"""

from __future__ import annotations

import ast
import marshal
import sys
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from typing import Final

UNCHECKED_HASH: Final = (1).to_bytes(4, "little")
"""Flags of a file that is valid whatever its source says. Source: PEP 552."""
_LEFT_OUT: Final = frozenset({"test", "tests"})


def sources(place: Path) -> Iterator[Path]:
    """The source files to compile there."""
    if place.is_file():
        yield place
        return
    for path in sorted(place.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(place).parts[:-1]):
            yield path


def lean(tree: ast.Module) -> ast.Module:
    """The module without the docstrings of itself and of its functions."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            said = node.body.pop(0)
            if not node.body:
                node.body = [ast.copy_location(ast.Pass(), said)]
    return tree


def compiled(path: Path) -> bytes:
    """The content of its bytecode file. Raises SyntaxError and ValueError as `compile` does."""
    source = path.read_bytes()
    code = compile(lean(ast.parse(source)), path, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + UNCHECKED_HASH + source_hash(source) + marshal.dumps(code)


def main(places: list[str]) -> int:
    """Compile all; 1 where nothing was found."""
    written = 0
    for place in places:
        for path in sources(Path(place)):
            try:
                content = compiled(path)
            except (SyntaxError, ValueError):
                continue
            target = Path(cache_from_source(str(path)))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            written += 1
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
