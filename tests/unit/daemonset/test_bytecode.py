"""The image's bytecode: without docstrings, with assertions, not compared with the source."""

import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from daemonset import bytecode

PROGRAM = Path(bytecode.__file__)
MODULE = '''"""A module."""

from __future__ import annotations

from dataclasses import dataclass


def silent():
    """Only a docstring."""


class Kind:
    """A class."""

    async def method(self):
        """A docstring and a statement."""
        return f"{self!r}"


@dataclass
class Value:
    """A value."""

    number: int


def checked(number: int) -> int:
    "Small."
    assert number < 10, "too much"
    return number
'''
LOOK = """
import module
from module import Kind, Value, checked, silent
print([each.__doc__ for each in (module, silent, Kind, Kind.method, Value, checked)])
print(silent(), Value(3), checked(3))
try:
    checked(11)
except AssertionError as error:
    print(error, error.__traceback__.tb_next.tb_lineno)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "template.py").write_text("def {name}(): ...")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "broken.py").write_text(MODULE)
    return tmp_path


def run(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_a_module_works_without_its_docstrings(place: Path) -> None:
    run("-X", "no_debug_ranges", str(PROGRAM), str(place), cwd=place)
    docs, results, failure = run("-c", LOOK, cwd=place).splitlines()
    assert docs == "[None, None, 'A class.', None, 'A value.', None]"
    assert results == "None Value(number=3) 3"
    line = MODULE.splitlines().index('    assert number < 10, "too much"') + 1
    assert failure == f"too much {line}"


def test_bytecode_is_used_without_checking_the_source(place: Path) -> None:
    run(str(PROGRAM), str(place / "module.py"), cwd=place)
    (place / "module.py").write_text("silent = None")
    assert "Value(number=3)" in run("-c", LOOK, cwd=place)


def test_templates_and_tests_stay_source(place: Path) -> None:
    assert bytecode.main([str(place)]) == 0
    assert [path.name.split(".")[0] for path in place.rglob("*.pyc")] == ["module"]
    assert Path(cache_from_source(str(place / "module.py"))).exists()


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    assert bytecode.main([str(tmp_path)]) == 1
