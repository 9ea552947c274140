"""What the daemon must not load: it runs on every GPU node for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import PurePath

import pytest

from agent.daemon import log

HEAVY = (
    *("asyncio", "kubernetes", "pynvml", "pyudev", "rich", "yaml", "structlog"),
    *("hack", "agent.nvml.life", "html.entities", "typing_extensions"),
    *("inspect", "decimal", "fractions", "importlib.metadata", "urllib.request", "wsgiref"),
    *("psutil", "dataclasses", "agent.kernel_log.past"),
    *("calendar", "locale", "mimetypes", "shutil", "tempfile", "zipfile", "msgspec.inspect"),
)


def test_the_daemon_starts_without_what_only_others_need() -> None:
    code = (
        "from agent.memory import *; stay_small(*OF_DAEMON); import agent.daemon.run, json, sys; "
        "loaded = [n for n, it in sys.modules.items() if getattr(it, '__spec__', None)];"
        "print(json.dumps(loaded))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not set(HEAVY) & set(json.loads(run.stdout))


def test_what_was_kept_out_comes_whole_when_somebody_uses_it() -> None:
    code = """
from agent import memory
memory.stay_small(*memory.OF_DAEMON)
import agent.daemon.run, sys
from threading import Thread
import inspect, shutil
assert isinstance(shutil, memory.LaterModule)
seen = []
ready = [Thread(target=lambda: seen.append(shutil.which("sh"))) for _ in range(8)]
[one.start() for one in ready], [one.join() for one in ready]
assert len(seen) == 8 and all(seen)
assert not isinstance(sys.modules["shutil"], memory.LaterModule)
assert str(inspect.signature(lambda one, two: None)) == "(one, two)"
from decimal import Decimal
from urllib.request import Request
from wsgiref.simple_server import WSGIServer
import ctypes.util, importlib.metadata, statistics, uuid
assert Decimal("0.1") + Decimal("0.2") == Decimal("0.3")
assert Request("http://a/").host == "a" and WSGIServer.application is None
assert uuid.UUID(int=0).hex == "0" * 32 and importlib.metadata.version("msgspec")
assert statistics.median([1.0, 4.0, 2.0]) == 2.0 and statistics.fmean([1.0, 2.0]) == 1.5
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


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
