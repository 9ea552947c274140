"""Find out whose process an Xid 13 or 31 named: process, pod, then the pod's controller.

The main loop calls `ask`, which never waits; the answer comes back as a `WorkloadSeen`, seconds
later or never. One thread reads cgroups at once, since a process that faulted ends soon; another
reads the node's pods when one is not known yet, at most every half minute, and on a timer only to
learn whether a missing permission was granted. The text is hostile (a privileged container names
its own cgroups). What cannot be found out stays unknown, which never speaks against the hardware.
"""

from __future__ import annotations

import os
import queue
import random
import re
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from agent.inbox import Item, Log
from agent.kube.client import Kube, KubeError
from agent.senses.host import PROC, sees_host_processes
from rules.judge import observation as facts
from rules.judge.workload import Workload, workload_behind

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


MAX_ASKED = 256
MAX_QUEUED = 64
MAX_WAITING = 64
MAX_PODS = 1024
ASK_AGAIN_S = 60.0
"""One process prints the same line hundreds of times: it is looked at once in this time."""
GATHER_S = 2.0
"""A burst's processes are looked up together, and not on all nodes of a gang in the same moment.
"""
READ_SPACING_S = 30.0
AFTER_FAILURE_S = 300.0
AFTER_REFUSAL_S = 3600.0
"""A permission does not come back by asking; somebody may have granted it within the hour, and
then the source must not stay Down until the next fault."""

_EFFECT = "so the workloads behind Xid 13 and 31 stay unknown"


class WorkloadLookup:
    """Both threads and what they remember. `put` takes facts and sentences for the main loop."""

    def __init__(
        self,
        api: Kube,
        node: str,
        put: Callable[[Item], None],
        *,
        pod_of: Callable[[int, float], str] = pod_of_process,
        host_in_sight: Callable[[], bool] = sees_host_processes,
        clock: Callable[[], float] = time.monotonic,
        gather_s: float = GATHER_S,
    ) -> None:
        self._api = api
        self._node = node
        self._put = put
        self._pod_of = pod_of
        self._host_in_sight = host_in_sight
        self._clock = clock
        self._gather_s = gather_s
        self._asked: dict[tuple[int | None, str | None, int], float] = {}
        self._records: queue.SimpleQueue[facts.KernelLineSeen | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._known: dict[str, Workload] = {}
        self._waiting: list[tuple[str, facts.KernelLineSeen]] = []
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._not_before = 0.0
        self._said = (facts.SourceState.ABSENT, "")
        self._threads = [
            threading.Thread(target=self._read_processes, name="workload-processes", daemon=True),
            threading.Thread(target=self._read_pods, name="workload-pods", daemon=True),
        ]

    def start(self) -> None:
        """Be ready to be asked, if the processes that the kernel names can be seen from here."""
        if not self._host_in_sight():
            remedy = "use component full, or --workloads off"
            self._put(Log(f"the host's processes are out of sight, {_EFFECT}: {remedy}"))
            self._say(facts.SourceState.ABSENT, "NoHostProcesses")
            return
        self._say(facts.SourceState.UP, "")
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ask the threads to end; they are not waited for, since one may sleep in the server."""
        self._stop.set()
        self._wanted.set()
        self._records.put(None)

    def ask(self, seen: facts.KernelLineSeen) -> None:
        """Find out whose process this record named. Called from one thread only."""
        pid, now = seen.line.pid, self._clock()
        if (
            not pid
            or self._said[0] is facts.SourceState.ABSENT
            or self._records.qsize() >= MAX_QUEUED
        ):
            return
        key = (seen.line.xid, seen.line.pci, pid)
        if now - self._asked.get(key, float("-inf")) < ASK_AGAIN_S:
            return
        if len(self._asked) >= MAX_ASKED:
            self._asked.clear()
        self._asked[key] = now
        self._records.put(seen)

    def _read_processes(self) -> None:
        while (seen := self._records.get()) is not None:
            uid = self._pod_of(seen.line.pid or 0, seen.at)
            if uid:
                self._found(uid, seen)

    def _found(self, uid: str, seen: facts.KernelLineSeen) -> None:
        """The pod is known by its UID: tell its workload, or have the pods read."""
        with self._lock:
            workload = self._known.get(uid)
            soon = self._not_before - self._clock() <= READ_SPACING_S
            if workload is None and soon and len(self._waiting) < MAX_WAITING:
                self._waiting.append((uid, seen))
                self._wanted.set()
        if workload is not None:
            self._tell(seen, workload)

    def _read_pods(self) -> None:
        while True:
            refused = self._said[0] is facts.SourceState.DOWN
            again_s = max(0.0, self._not_before - self._clock()) if refused else None
            self._wanted.wait(again_s)
            if self._stop.is_set():
                return
            pause_s = max(0.0, self._not_before - self._clock())
            if self._stop.wait(pause_s + self._gather_s * random.uniform(0.2, 1.0)):
                return
            self._wanted.clear()
            self._read_once(unasked=refused)

    def _read_once(self, *, unasked: bool) -> None:
        with self._lock:
            if not self._waiting and not unasked:
                return
        try:
            pods = self._api.pods_on(self._node)
        except KubeError as error:
            self._failed(error)
            return
        known = {pod.kubelet_uid: workload_behind(pod) for pod in pods[:MAX_PODS]}
        with self._lock:
            self._known = known
            waiting, self._waiting = self._waiting, []
            self._not_before = self._clock() + READ_SPACING_S
        self._say(facts.SourceState.UP, "")
        for uid, seen in waiting:
            if uid in known:
                self._tell(seen, known[uid])

    def _failed(self, error: KubeError) -> None:
        """Who waited stays unknown; only after a refusal is it asked again without another fault.

        A server that does not answer now, or does not take this token now, says nothing about the
        next time, so only a missing permission is a sense that is Down.
        """
        refused = error.status == HTTPStatus.FORBIDDEN
        pause_s = AFTER_REFUSAL_S if refused else max(AFTER_FAILURE_S, error.retry_after_s)
        with self._lock:
            self._waiting = []
            self._not_before = self._clock() + pause_s
        remedy = "apply component workloads" if refused else "it is tried again at a later fault"
        self._put(Log(f"the pods of this node cannot be read ({error}), {_EFFECT}: {remedy}"))
        if refused:
            self._say(facts.SourceState.DOWN, "Forbidden")

    def _tell(self, seen: facts.KernelLineSeen, workload: Workload) -> None:
        self._put(facts.WorkloadSeen(at=time.time(), record=seen, workload=workload))

    def _say(self, state: facts.SourceState, reason: str) -> None:
        """Report the state of this sense if it is news."""
        if (state, reason) == self._said:
            return
        self._said = (state, reason)
        self._put(
            facts.SourceChanged(
                at=time.time(), source=facts.SourceName.WORKLOADS, state=state, reason=reason
            )
        )
