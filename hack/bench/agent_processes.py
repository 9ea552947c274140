"""What the agent's processes use, read from /proc: memory, CPU time, bursts, wake-ups, page
faults; and the bytecode of the image, for agents to run on.

Used by `hack.bench.agent`. Linux only; needs no privilege for one's own processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil

from agent.nvml.link import interpreter

ROOT = Path(__file__).resolve().parents[2]
BURST_WINDOW_S = 0.1


class Memory(NamedTuple):
    """Kilobytes of one process: proportional set size, and what is its alone."""

    name: str
    pss_kib: int
    private_kib: int


def family(pid: int) -> list[psutil.Process]:
    """The process and all its descendants."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def memory(pid: int) -> list[Memory]:
    """The memory of each process of the family."""
    found = []
    for process in family(pid):
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
        )
        private = _kib(fields["Private_Clean"]) + _kib(fields["Private_Dirty"])
        name = "main" if process.pid == pid else "nvml child"
        found.append(Memory(name, _kib(fields["Pss"]), private))
    return found


def simulator_kib(description: Path) -> int:
    """What the simulated driver itself takes in both processes: with it, less without it.

    Each process's imports are made in an interpreter of their own, once with the simulator
    loaded and asked and once without, and their private pages compared.
    """
    path = repr(str(description))
    main = "import agent.daemon.run"
    machine = f"from agent.sources.machine import simulated as s; s({path}).functions()"
    child = "import agent.nvml.life"
    driver = f"from hack.sim.driver import install; install({path})"
    plain = [sys.executable], {**os.environ}
    return sum(
        _private_kib(f"{imports}; {simulator}", how) - _private_kib(imports, how)
        for imports, simulator, how in ((main, machine, plain), (child, driver, interpreter()))
    )


def _private_kib(statements: str, how: tuple[list[str], dict[str, str]]) -> int:
    command, environment = how
    code = f"{statements}; print(open('/proc/self/smaps_rollup').read())"
    rollup = subprocess.run(
        [*command, "-c", code],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    fields = dict(line.split(":", 1) for line in rollup.splitlines()[1:] if ":" in line)
    return _kib(fields["Private_Clean"]) + _kib(fields["Private_Dirty"])


def _kib(field: str) -> int:
    return int(field.split()[0])


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of the family since they began, in nanoseconds."""
    total = 0
    for process in family(pid):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                # The thread ended while it was being counted.
                continue
    return total


class Bursts:
    """Samples the CPU time of a family and keeps the most that was used in one window."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self.longest_ms = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bursts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before = cpu_ns(self._pid)
        while not self._stop.wait(BURST_WINDOW_S):
            now = cpu_ns(self._pid)
            self.longest_ms = max(self.longest_ms, (now - before) / 1e6)
            before = now


class Counts(NamedTuple):
    """Since a family began: how often a thread woke up, and pages that were not there."""

    wake_ups: int
    minor_faults: int
    major_faults: int


def counts(pid: int) -> Counts:
    """Of all threads of the family; a voluntary switch is a wait, and each wait ends in a
    wake-up.
    """
    wake_ups = minor = major = 0
    for process in family(pid):
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        minor, major = minor + int(fields[7]), major + int(fields[9])
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            try:
                status = (task / "status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread ended while it was being counted
            wake_ups += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return Counts(wake_ups, minor, major)


class Use(NamedTuple):
    """Over some time: share of one core, the longest burst, and counts a minute."""

    share: float
    longest_ms: float
    wake_ups: float
    minor_faults: float
    major_faults: float


def used(pid: int, seconds: float) -> Use:
    """What the family used over this time."""
    began, before, counted = time.monotonic(), cpu_ns(pid), counts(pid)
    with Bursts(pid) as bursts:
        time.sleep(seconds)
    took_s = time.monotonic() - began
    share = (cpu_ns(pid) - before) / 1e9 / took_s
    minutes = took_s / 60
    now = zip(counts(pid), counted, strict=True)
    return Use(share, bursts.longest_ms, *((after - first) / minutes for after, first in now))


_LIBRARIES = ("msgspec", "prometheus_client", "psutil", "pynvml.py", "pyudev", "urllib3", "yaml")


@contextmanager
def image_bytecode() -> Iterator[None]:
    """The image's bytecode for all processes that are started within."""
    paths = sysconfig.get_paths()
    installed = [Path(paths["purelib"]) / name for name in _LIBRARIES]
    # The simulator as well: an agent that had to compile it would be a larger one.
    ours = [ROOT / name for name in ("agent", "rules", "hack")]
    places = [*ours, Path(paths["stdlib"]), *installed]
    with TemporaryDirectory(prefix="gpuward-bench-") as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        program = str(ROOT / "daemonset" / "bytecode.py")
        command = [sys.executable, "-X", "no_debug_ranges", program, *map(str, places)]
        subprocess.run(command, check=True)
        try:
            yield
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]


POLL_S = 15.0
SETTLE_S = 10.0
"""The first reading of everything is not counted: it is made once in a life."""
_CLOCK_SAMPLES = 10_000


def simulator_share(description: Path, seconds: float) -> float:
    """The simulated driver's share of one core over so many seconds of a child's life."""
    child = subprocess.Popen(
        [sys.executable, "-m", "hack.bench.agent_processes", str(description)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(SETTLE_S + seconds)
    _, output = child.communicate(timeout=60)
    found = json.loads(output.splitlines()[-1])
    return float(found["simulator_s"] / found["lived_s"])


def _clocked() -> list[int]:
    """Put a clock around every call; the list holds the nanoseconds and the calls so far."""
    from hack.sim.driver.library import WRAPPERS

    spent = [0, 0]
    clock = time.thread_time_ns

    def clocked(entry: Callable[..., int]) -> Callable[..., int]:
        def timed(*arguments: Any) -> int:
            began = clock()
            try:
                return entry(*arguments)
            finally:
                spent[0] += clock() - began
                spent[1] += 1

        return timed

    WRAPPERS.append(clocked)
    return spent


def _clock_ns() -> float:
    """What one check at the clock costs."""
    clock = time.thread_time_ns
    began = clock()
    for _ in range(_CLOCK_SAMPLES):
        clock()
    return (clock() - began) / _CLOCK_SAMPLES


def main() -> int:
    """Live as the child until standard input closes."""
    from agent.nvml import child

    spent, since = _clocked(), [0.0, 0]

    def begin() -> None:
        since[:] = time.monotonic(), time.process_time_ns()
        spent[:] = 0, 0

    threading.Timer(SETTLE_S, begin).start()
    status = child.main(f"sim:{sys.argv[1]}", POLL_S)
    began_s, began_ns = since
    print(
        json.dumps(
            {
                "lived_s": time.monotonic() - began_s,
                "cpu_s": (time.process_time_ns() - began_ns) / 1e9,
                "simulator_s": max(0.0, spent[0] - spent[1] * _clock_ns()) / 1e9,
                "calls": spent[1],
            }
        ),
        file=sys.stderr,
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
