"""`gpuward-agent reset-gpu`: reset GPUs with nvidia-smi when no process has them open.

Runs in the Job of the repair adapter ResetGPUJob, or by hand as root; never in the daemon.
docs/repair.md has the Job and the reason for each privilege. The command waits for processes that
are ending, refuses the reset if one stays, and stops waiting for a tool that hangs. It turns
persistence mode off for the reset, because nvidia-persistenced keeps the GPU open, and always
turns it on again.
"""

import argparse
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent import settings
from agent.commands import repair
from agent.commands.repair import Host, HostError, Outcome, ProgramResult, RepairResult
from agent.settings import SettingsError
from rules.repair import reset
from rules.repair.reset import Holder, ListedGpu, NotListedError
from rules.text import printable

PROGRAM: Final = "gpuward-agent reset-gpu"
ENV_GPUS: Final = "GPUWARD_RESET_GPUS"
ENV_BOOT: Final = "GPUWARD_RESET_BOOT_ID"


def add_parser(subparsers: Any) -> None:
    """Add `reset-gpu` to the program's commands."""
    parser = repair.add_parser(
        subparsers,
        "reset-gpu",
        "Reset GPUs of this machine that no process has open",
        " Needs root and nvidia-smi.\n\nExamples:\n"
        "  gpuward-agent reset-gpu --gpus GPU-5a2f3c1e-0d1b-4a6e-9f00-1c2d3e4f5a6b\n"
        "  gpuward-agent reset-gpu --gpus UUID,UUID --wait 60",
    )
    parser.add_argument(
        "--gpus",
        metavar="UUIDS",
        default="",
        help=f"UUIDs of the GPUs, separated by commas [default: ${ENV_GPUS}]",
    )
    parser.add_argument(
        "--boot",
        metavar="ID",
        default="",
        help="boot ID at the request; do nothing if the current one differs"
        f" [default: ${ENV_BOOT}, else the current boot]",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        default="0",
        type=settings.seconds(0.0, 3600.0),
        help="seconds to wait until all processes have closed the GPUs [default: 0]",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, host: Host | None = None) -> int:
    """Reset the GPUs and return the exit status. Raises SettingsError if no GPU is named."""
    try:
        uuids = reset.uuids_of(arguments.gpus or os.environ.get(ENV_GPUS, ""))
    except ValueError as error:
        raise SettingsError(f"--gpus {error}") from error
    stop = threading.Event()
    # SIGTERM never interrupts a reset: the GPU would be left in an undefined state.
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        result = GpuReset(
            host=host or Host(),
            uuids=uuids,
            boot_id=arguments.boot or os.environ.get(ENV_BOOT, ""),
            wait_s=arguments.wait,
            log_line=repair.log_line,
            stop=stop,
        ).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    return repair.print_result(result, arguments, PROGRAM)


_DEVICE: Final = re.compile(r".*/dev/nvidia(\d{1,4})( \(deleted\))?", re.DOTALL)
"""With any prefix: for a process in a chroot, such as a driver container, the kernel reports the
full path.
"""
_MINOR: Final = re.compile(r"^Device Minor:\s+(\d{1,4})\s*$", re.MULTILINE)


class UnknownError(Exception):
    """The open files of a process cannot be read; the text is a clause."""


def minor_of(proc: Path, pci: str) -> int | None:
    """Return the number N of `/dev/nvidia<N>` of the GPU at a PCI address; None if unknown."""
    try:
        text = (proc / "driver/nvidia/gpus" / pci / "information").read_text(errors="replace")
    except OSError:
        return None
    found = _MINOR.search(text)
    return int(found[1]) if found is not None else None


def holders(proc: Path, minors: Collection[int]) -> tuple[Holder, ...]:
    """Return the processes that have one of these GPUs open, except this one.

    Raises UnknownError if the files of a process cannot be read: it may have a GPU open.
    """
    numbers = sorted(int(name) for name in _names(proc) if name.isdecimal())
    found = (pid for pid in numbers if pid != os.getpid() and _holds(proc, pid, minors))
    return tuple(Holder(pid=pid, name=_name(proc, pid)) for pid in found)


def _holds(proc: Path, pid: int, minors: Collection[int]) -> bool:
    try:
        return any(
            (device := _DEVICE.fullmatch(target)) is not None and int(device[1]) in minors
            for target in _open_files(proc / str(pid))
        )
    except PermissionError as error:
        name = _name(proc, pid)
        raise UnknownError(f"the open files of {name} (process {pid}) cannot be read") from error


def _open_files(process: Path) -> Iterator[str]:
    """Yield the target of each open file; none for a process that has ended meanwhile.

    Raises PermissionError for a running process.
    """
    folders = [f"{process}/fd"]
    if not _names(folders[0]):
        # The first thread may have ended: the other threads still have the files.
        folders = [f"{process}/task/{thread}/fd" for thread in _names(f"{process}/task")]
    for folder in folders:
        for name in _names(folder):
            try:
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - tens of thousands of them
            except PermissionError:
                # The kernel also refuses for a process that is just ending.
                if os.path.lexists(f"{folder}/{name}"):
                    raise
            except OSError:
                continue


def _names(folder: str | Path) -> list[str]:
    """Return the names in a folder; none for a process that has ended meanwhile."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - thousands of processes, each with many files
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()[:15] or "?"
    except OSError:
        return "?"


DRIVER_ROOTS: Final = ("run/nvidia/driver", ".")
"""Searched in this order below the host's root: the GPU Operator's driver container, the host."""
TOOL: Final = "usr/bin/nvidia-smi"
POLL_S: Final = 2.0
"""How often the open files are read while waiting."""
QUERY_S: Final = 60.0
"""The first query may initialise every GPU."""
RESET_S: Final = 240.0
"""Longer than the driver's own timeouts for a reset."""
_PERSISTENCE_DAEMON: Final = "nvidia-persiste"
"""The process name of nvidia-persistenced; the kernel keeps 15 characters."""


class RefusedError(Exception):
    """A precondition is not met and nothing was started; the text is a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReset:
    """One reset. `stop` is set on SIGTERM."""

    host: Host
    uuids: Sequence[str]
    boot_id: str = ""
    """The boot that the reset is for; "" for the current one."""
    wait_s: float = 0.0
    """Time that processes get to close the GPUs."""
    log_line: Callable[[str], object]
    stop: threading.Event

    def run(self) -> RepairResult:
        """Reset the GPUs and return the result."""
        try:
            return self._run()
        except (RefusedError, NotListedError, UnknownError) as error:
            return self._result(Outcome.REFUSED, f"Nothing was reset: {error}.")
        except HostError as error:
            return self._result(Outcome.FAILED, f"The reset failed: {error}.")

    def _run(self) -> RepairResult:
        if not self.host.sees_host:
            raise RefusedError("the host's processes are not visible: set hostPID")
        if self.boot_id and self.host.boot_id != self.boot_id:
            done = "Nothing was reset: the node has rebooted, which resets every GPU."
            return self._result(Outcome.NEEDLESS, done)
        root = self._driver()
        gpus = self._query(root)
        switches = any((self.host.root / "dev").glob("nvidia-nvswitch[0-9]*"))
        if why := reset.unfit(self.uuids, gpus, switches=switches):
            raise RefusedError(why)
        mine = [gpu for gpu in gpus if gpu.uuid in self.uuids]
        minors = self._minors(mine)
        self._await(minors)
        with self._unpersistent(root, mine):
            if who := reset.held(holders(self.host.proc, minors)):
                raise RefusedError(who)
            self.log_line(f"resetting {', '.join(self.uuids)}")
            ran = self._tool(root, "--gpu-reset", "-i", ",".join(self.uuids), timeout_s=RESET_S)
        if ran.status:
            raise HostError(f"nvidia-smi exited with {ran.status}: {ran.output}")
        return self._result(
            Outcome.DONE,
            f"nvidia-smi reset {printable.count(len(mine), 'GPU')}: {ran.output}",
        )

    def _driver(self) -> Path:
        for each in DRIVER_ROOTS:
            root = self.host.root / each
            # A link may point into that root: it is not followed from here.
            if (root / TOOL).exists() or (root / TOOL).is_symlink():
                return root
        places = " and ".join(f"/{each}/{TOOL}".replace("/./", "/") for each in DRIVER_ROOTS)
        raise RefusedError(f"nvidia-smi was not found at {places} of the host")

    def _query(self, root: Path) -> tuple[ListedGpu, ...]:
        wanted = f"--query-gpu={','.join(reset.QUERY)}"
        try:
            ran = self._tool(root, wanted, "--format=csv,noheader", timeout_s=QUERY_S)
        except HostError as error:
            raise RefusedError(str(error)) from error
        if ran.status:
            raise RefusedError(
                f"nvidia-smi exited with {ran.status} and listed no GPUs: {ran.output}"
            )
        return reset.listed(ran.text)

    def _minors(self, gpus: Sequence[ListedGpu]) -> frozenset[int]:
        found = {gpu.uuid: minor_of(self.host.proc, gpu.pci) for gpu in gpus}
        unknown = next((uuid for uuid, minor in found.items() if minor is None), None)
        if unknown is not None:
            raise RefusedError(f"the device file of GPU {unknown} is unknown")
        return frozenset(minor for minor in found.values() if minor is not None)

    def _await(self, minors: Collection[int]) -> None:
        """Wait until only nvidia-persistenced has the GPUs open. Raises RefusedError."""
        until, reported = time.monotonic() + self.wait_s, ""
        while who := reset.held(others := tuple(self._others(minors))):
            if time.monotonic() >= until:
                remedy = reset.remedy(others)
                more = f"; {remedy}" if remedy else ""
                raise RefusedError(f"{who} after {self.wait_s:.0f} s{more}")
            if who != reported:
                self.log_line(f"waiting: {who}")
                reported = who
            self.stop.wait(min(POLL_S, max(0.05, until - time.monotonic())))
            if self.stop.is_set():
                break
        if self.stop.is_set():
            raise RefusedError("it was stopped by SIGTERM while waiting")

    def _others(self, minors: Collection[int]) -> Iterator[Holder]:
        found = holders(self.host.proc, minors)
        return (each for each in found if each.name != _PERSISTENCE_DAEMON)

    @contextmanager
    def _unpersistent(self, root: Path, gpus: Sequence[ListedGpu]) -> Iterator[None]:
        """Turn persistence mode off inside the context."""
        kept = [gpu.uuid for gpu in gpus if gpu.persistent]
        try:
            for uuid in kept:
                ran = self._tool(root, "-pm", "0", "-i", uuid, timeout_s=QUERY_S)
                if ran.status:
                    raise RefusedError(
                        f"persistence mode of {uuid} cannot be turned off: {ran.output}"
                    )
            yield
        finally:
            for uuid in kept:
                self._persist(root, uuid)

    def _persist(self, root: Path, uuid: str) -> None:
        """Turn persistence mode on again; only log a failure: the driver works without it."""
        try:
            ran = self._tool(root, "-pm", "1", "-i", uuid, timeout_s=QUERY_S)
        except HostError as error:
            self.log_line(f"persistence mode of {uuid} is still off: {error}")
        else:
            if ran.status:
                self.log_line(f"persistence mode of {uuid} is still off: {ran.output}")

    def _tool(self, root: Path, *arguments: str, timeout_s: float) -> ProgramResult:
        return self.host.in_root(root, f"/{TOOL}", *arguments, timeout_s=timeout_s)

    def _result(self, outcome: Outcome, message: str) -> RepairResult:
        return RepairResult(outcome=outcome, message=message, gpus=tuple(self.uuids))
