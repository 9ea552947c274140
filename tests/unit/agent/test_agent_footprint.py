"""What the daemon must not load: it runs on every GPU node for ever."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("asyncio", "kubernetes", "pynvml", "pyudev", "rich", "yaml", "hack", "agent.nvml.life")


def test_the_daemon_starts_without_what_only_others_need() -> None:
    code = "import agent.daemon.run, json, sys; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not set(HEAVY) & set(json.loads(run.stdout))


def test_what_was_kept_out_can_be_had_afterwards() -> None:
    code = "import agent.daemon.log, asyncio; print(asyncio.run(asyncio.sleep(0, 'slept')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stdout == b"slept\n"
