"""Which version the agent says it is."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from agent.settings import VERSION, version_in


def test_it_is_what_is_installed() -> None:
    assert version("gpuward") == VERSION


def test_the_first_folder_that_has_it_says_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "gpuward_tools-9.dist-info").mkdir()
    (tmp_path / "b" / "gpuward-1.2.0rc1.dist-info").mkdir(parents=True)
    folders = [str(tmp_path / name) for name in ("none", "a", "b")]
    assert version_in(folders) == "1.2.0rc1"
    assert version_in(folders[:2]) == "0.0.0"
