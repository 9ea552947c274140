"""No code replaces parts of a module, a class or `sys.modules`, not even in tests.

Pass what a test needs to the part under test: a parameter, a subclass, a real resource limit.
Ruff forbids private attributes (SLF001) and unittest.mock (TID251). It cannot see what a fixture
does, so this test reads the rest. `EXCEPTIONS` only shrinks: a use less is a failure as well.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("agent", "daemonset", "hack", "remediator", "rules", "tests")
PATCHES = frozenset({"setattr", "setitem", "delattr", "delitem", "syspath_prepend"})
"""Methods of pytest's monkeypatch. Those that change the environment are allowed."""
HOOKS = frozenset({"sys.argv", "sys.stdin", "sys.stdout", "sys.stderr", "threading.excepthook"})
"""Attributes that the standard library documents as replaceable."""

EXCEPTIONS = {
    # The only way to give pynvml a library: it has no parameter for one.
    "hack/sim/driver/__init__.py": 2,
    # Bugs are put back, to see that the explorer and the comparison find them.
    "tests/property/test_exploration.py": 5,
    "tests/scenario/judge/life/test_restart_everywhere.py": 1,
    # Children of a forked program are forked, too.
    "tests/support/run/warm_start.py": 1,
    # Only procfs refuses a readlink or listdir to root.
    "tests/unit/agent/commands/test_gpu_reset.py": 1,
}

PRIVATE = 4
"""Files in which pyproject.toml allows private attributes."""


def patches(text: str) -> Iterator[int]:
    """Yield the line of each replacement in a source file."""
    tree = ast.parse(text)
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for one in ast.walk(tree)
        if isinstance(one, ast.Import | ast.ImportFrom)
        for alias in one.names
    }
    classes = {one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Call):
            if _is_patch(one, imported | classes):
                yield one.lineno
        elif isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
            replaced = ast.unparse(one.value if isinstance(one, ast.Subscript) else one)
            owner = replaced.partition(".")[0]
            if isinstance(one, ast.Subscript):
                found = replaced == "sys.modules" or replaced.startswith(("vars(", "globals("))
                found = found or replaced.endswith(".__dict__")
            else:
                found = owner in imported or replaced.rpartition(".")[0] in classes
            if found and replaced not in HOOKS:
                yield one.lineno


def _files() -> Iterator[Path]:
    return (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def _is_patch(call: ast.Call, named: set[str]) -> bool:
    name = ast.unparse(call.func)
    if name in {"setattr", "delattr"}:
        return ast.unparse(call.args[0]).partition(".")[0] in named
    if name in {"sys.modules.update", "sys.modules.setdefault"}:
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr in PATCHES


@pytest.mark.parametrize(
    "text",
    [
        "monkeypatch.setattr(module, 'LIMIT', 1)",
        "monkeypatch.setattr('module.LIMIT', 1)",
        "with pytest.MonkeyPatch.context() as other:\n    other.setitem(table, 'a', 1)",
        "sys.modules['pynvml'] = fake",
        "sys.modules.setdefault('pynvml', fake)",
        "import agent.daemon.http\nagent.daemon.http.CONNECTION_S = 1.0",
        "from agent.daemon import http\nhttp.CONNECTION_S = 1.0",
        "from agent.daemon import http\nsetattr(http, name, 1.0)",
        "from agent.daemon.http import Server\nServer.close = close",
        "import subprocess\nvars(subprocess)['Popen'] = Other",
        "class One:\n    pass\nOne.method = other",
    ],
)
def test_a_replacement_is_found(text: str) -> None:
    assert len(list(patches(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "monkeypatch.setenv('HOME', 'x')\nmonkeypatch.chdir(path)",
        "import os\nos.environ['HOME'] = 'x'",
        "import sys\nsys.argv = []\nsys.modules.pop('x', None)",
        "world.policy = policy\nself.clock.ahead_s += 1\nsetattr(histogram, field, 1)",
    ],
)
def test_other_changes_are_not_found(text: str) -> None:
    assert not list(patches(text))


def test_the_tree_replaces_nothing_but_the_exceptions() -> None:
    lines = [
        f"{path.relative_to(ROOT).as_posix()}:{line}"
        for path in _files()
        for line in patches(path.read_text("utf-8"))
    ]
    found = Counter(line.rpartition(":")[0] for line in lines)
    assert found == EXCEPTIONS, "\n".join(lines)


def test_private_attributes_are_allowed_in_few_files() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    allowed = [path for path, rules in lint["per-file-ignores"].items() if "SLF001" in rules]
    assert "SLF" in lint["select"]
    assert len(allowed) == PRIVATE, allowed
    assert all((ROOT / path).is_file() for path in allowed), "a file, not a folder"
    lines = [path for path in _files() if "noqa: " + "SLF" in path.read_text("utf-8")]
    assert not lines, "allow a file in pyproject.toml, not a line"
