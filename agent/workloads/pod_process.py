"""Which pod a process of this node runs in, read from its cgroup the moment it is asked for.

Called by `agent.workloads.workloads` with the process ID that a kernel line names. The text is
hostile (a privileged container names its own cgroups), the process may be gone and its ID used
again: then it is nobody's, which is never an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from agent.senses.host_processes import PROC

MAX_CGROUP_BYTES = 64 * 1024
MAX_STAT_BYTES = 4096
MAX_LINES = 64
CLOCK_SLACK_S = 2.0
"""The time of a kernel line and the start of a process are measured by different clocks."""

# A cgroup directory of a pod, below kubepods or, seen from another pod's cgroup namespace, below
# "..": `pod<uid>` (cgroupfs) or `kubepods-burstable-pod<uid with _>.slice` (systemd), as
# containerd and CRI-O, nested kubelets of kind, cgroup v1 and v2 spell it. A static pod's UID is a
# plain hash.
_POD = re.compile(
    rb"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=\.slice|[/:]|$)"
)
_STARTED_FIELD = 19
"""Of /proc/<pid>/stat behind the name in parentheses: clock ticks after boot (proc(5), field 22).
"""
_BOOTED = re.compile(rb"^btime (\d{1,12})$", re.MULTILINE)


def pod_of_process(pid: int, at: float, proc: Path = PROC) -> str:
    """The UID of the pod of the process that had this ID at wall time `at`; empty when unknown."""
    folder = proc / str(pid)
    try:
        uid = pod_in(_bounded(folder / "cgroup", MAX_CGROUP_BYTES))
        if not uid or _started_at(folder, proc) > at + CLOCK_SLACK_S:
            return ""
    except (OSError, ValueError):
        # Gone, hidden, or not the format that proc(5) describes.
        return ""
    return uid


def pod_in(cgroup: bytes) -> str:
    """The UID of the pod in the text of /proc/<pid>/cgroup; empty where there is none or several.

    The outermost one counts: whatever is below was named from inside the pod.
    """
    found = set()
    for line in cgroup.split(b"\n", MAX_LINES)[:MAX_LINES]:
        path = line.split(b":", 2)[-1]
        if pod := _POD.search(path):
            found.add(pod[1].replace(b"_", b"-").decode("ascii"))
    return found.pop() if len(found) == 1 else ""


def _started_at(folder: Path, proc: Path) -> float:
    """Wall time at which the process started. Raises OSError and ValueError."""
    behind_name = _bounded(folder / "stat", MAX_STAT_BYTES).rpartition(b")")[2].split()
    booted = _BOOTED.search(_bounded(proc / "stat", 1 << 20))
    if len(behind_name) <= _STARTED_FIELD or booted is None:
        raise ValueError("not the stat of a process")
    return int(booted[1]) + int(behind_name[_STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")


def _bounded(path: Path, limit: int) -> bytes:
    """The whole file. Raises ValueError when it is longer: a cut-off text may mean another."""
    with path.open("rb") as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise ValueError("longer than it can be")
    return text
