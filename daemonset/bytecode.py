"""Compile Python files for an image: bytecode without docstrings that is never checked again.

    python -X no_debug_ranges daemonset/bytecode.py PLACE...

Each PLACE is a file or a folder; folders named `test` or `tests` are skipped. Python's option to
drop docstrings (`-OO`) would also drop assertions. Classes keep their docstrings, because
`dataclasses` would generate a missing one with a module that nothing else needs. Files that do not
compile (templates, tests of errors) are skipped, as in `compileall`.
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
"""Flags of a bytecode file that is never compared with its source. Source: PEP 552."""
_LEFT_OUT: Final = frozenset({"test", "tests"})


def sources(place: Path) -> Iterator[Path]:
    """Yield the source files to compile in a place."""
    if place.is_file():
        yield place
        return
    for path in sorted(place.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(place).parts[:-1]):
            yield path


def lean(tree: ast.Module) -> ast.Module:
    """Return the module without its docstring and those of its functions."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body.pop(0)
            if not node.body:
                node.body = [ast.copy_location(ast.Pass(), docstring)]
    return tree


def compiled(path: Path) -> bytes:
    """Return the content of the bytecode file. Raises SyntaxError and ValueError as `compile`."""
    source = path.read_bytes()
    code = compile(lean(ast.parse(source)), path, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + UNCHECKED_HASH + source_hash(source) + marshal.dumps(code)


def main(places: list[str]) -> int:
    """Compile all places; return 1 if there was no file."""
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
