"""What the daemon must not load: it runs on every GPU node for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import PurePath

import pytest

from agent.daemon import log

HEAVY = ("hack", "kubernetes", "psutil", "pynvml", "pyudev", "rich", "structlog", "yaml")


def test_the_daemon_does_not_import_what_only_commands_and_the_nvml_child_need() -> None:
    code = "import agent.daemon.run, json, sys; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not set(HEAVY) & set(json.loads(run.stdout))


def test_a_line_for_a_terminal_has_its_sentence_and_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure("console")
    log.get().warning("the GPU is lost", pci="0000:3b:00")
    log.configure("json")
    log.get().error("the GPU is lost", pci="0000:3b:00", at=PurePath("x"))
    person, machine = capsys.readouterr().err.splitlines()
    assert "the GPU is lost" in person
    assert "pci=0000:3b:00" in person
    said = json.loads(machine)
    assert said.pop("timestamp").endswith("Z")
    assert said == {
        "pci": "0000:3b:00",
        "at": "PurePosixPath('x')",
        "level": "error",
        "message": "the GPU is lost",
    }
