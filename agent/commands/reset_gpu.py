"""`gpuward-agent reset-gpu`: reset GPUs of this machine with the driver's own tool, once no
process has them open.

Run in the Job of repair adapter ResetGPUJob or by hand as root; never by the daemon.
docs/repair.md has the Job and the reason of each privilege. It waits for processes that are
ending, refuses when one stays, and gives up on a tool that hangs. Persistence, for which a daemon
keeps the GPU open, is taken off for the reset and put back after it, however the reset ended.
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
from agent.commands.repair import Host, HostError, Outcome, Ran, RepairResult, tell
from agent.commands.repair import add_parser as add
from agent.settings import SettingsError
from rules.repair import reset
from rules.repair.reset import Holder, ListedGpu, NotListedError
from rules.text import printable

PROGRAM: Final = "gpuward-agent reset-gpu"
ENV_GPUS: Final = "GPUWARD_RESET_GPUS"
ENV_BOOT: Final = "GPUWARD_RESET_BOOT_ID"


def add_parser(subparsers: Any) -> None:
    """Add `reset-gpu` to the program's commands."""
    description = "Reset GPUs of this machine that nobody has open, with the driver's own tool."
    parser = add(subparsers, "reset-gpu", description)
    parser.add_argument(
        "--gpus",
        metavar="UUIDS",
        default="",
        help=f"which GPUs, by UUID, separated by commas; default: ${ENV_GPUS}",
    )
    parser.add_argument(
        "--boot",
        metavar="ID",
        default="",
        help="the boot that it is meant for; in any other nothing is done; default:"
        f" ${ENV_BOOT}, else whichever this is",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        default="0",
        type=settings.seconds(0.0, 3600.0),
        help="how long those that have a GPU open may take to let go [default: 0]",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, host: Host | None = None) -> int:
    """Reset them, and say how that ended. SettingsError where nobody says which."""
    try:
        uuids = reset.uuids_of(arguments.gpus or os.environ.get(ENV_GPUS, ""))
    except ValueError as error:
        raise SettingsError(f"--gpus {error}") from error
    stop = threading.Event()
    # A reset that has begun is finished: the GPU is left in no state between.
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        result = GpuReset(
            host=host or Host(),
            uuids=uuids,
            boot_id=arguments.boot or os.environ.get(ENV_BOOT, ""),
            wait_s=arguments.wait,
            tell=repair.say,
            stop=stop,
        ).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    return tell(result, arguments, PROGRAM)


_DEVICE: Final = re.compile(r".*/dev/nvidia(\d{1,4})( \(deleted\))?", re.DOTALL)
"""With whatever stands before it: of a process in a chroot, such as that of a driver container,
the kernel says the entire path.
"""
_MINOR: Final = re.compile(r"^Device Minor:\s+(\d{1,4})\s*$", re.MULTILINE)


class UnknownError(Exception):
    """Whether a process has a GPU open cannot be seen; the text is a clause."""


def minor_of(proc: Path, pci: str) -> int | None:
    """The number N of `/dev/nvidia<N>` of the GPU at this address; None where nobody says it."""
    try:
        text = (proc / "driver/nvidia/gpus" / pci / "information").read_text(errors="replace")
    except OSError:
        return None
    found = _MINOR.search(text)
    return int(found[1]) if found is not None else None


def holders(proc: Path, minors: Collection[int]) -> tuple[Holder, ...]:
    """Who has one of these GPUs open, this process left out. UnseenError where that is not known
    of every process: no sight of its files is not the same as no files.
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
    """What each descriptor points to; nothing of a process that has ended meanwhile.
    PermissionError of one that lives.
    """
    folders = [f"{process}/fd"]
    if not _names(folders[0]):
        # Of one whose first thread has ended the others still have them.
        folders = [f"{process}/task/{thread}/fd" for thread in _names(f"{process}/task")]
    for folder in folders:
        for name in _names(folder):
            try:
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - tens of thousands of them
            except PermissionError:
                # The kernel reports it of a process that is just ending, too.
                if os.path.lexists(f"{folder}/{name}"):
                    raise
            except OSError:
                continue


def _names(folder: str | Path) -> list[str]:
    """What is in it; nothing of a process that has ended meanwhile."""
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
"""Below the host's root, in this order: the driver container of the GPU Operator, the host."""
TOOL: Final = "usr/bin/nvidia-smi"
LOOK_S: Final = 2.0
"""How often those that are on their way out are looked for."""
QUERY_S: Final = 60.0
"""A first check may initialise every GPU."""
RESET_S: Final = 240.0
"""The driver's own deadlines of a reset are well within that."""
_PERSISTENCE_DAEMON: Final = "nvidia-persiste"
"""The name of nvidia-persistenced, of which the kernel keeps 15 characters."""


class RefusedError(Exception):
    """Something stands against the reset, and nothing was begun; the text is a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReset:
    """One reset. `stop` is set when this program is told to end."""

    host: Host
    uuids: Sequence[str]
    boot_id: str = ""
    """Which boot it is meant for; "" for whichever this is."""
    wait_s: float = 0.0
    """How long those that have a GPU open may take to let go."""
    tell: Callable[[str], object]
    stop: threading.Event

    def run(self) -> RepairResult:
        """Do it, and say how it ended."""
        try:
            return self._run()
        except (RefusedError, NotListedError, UnknownError) as error:
            return self._result(Outcome.REFUSED, f"Nothing was reset: {error}.")
        except HostError as error:
            return self._result(Outcome.FAILED, f"The reset failed: {error}.")

    def _run(self) -> RepairResult:
        if not self.host.seen:
            raise RefusedError("the host's processes are out of sight (hostPID)")
        if self.boot_id and self.host.boot_id != self.boot_id:
            words = "Nothing was reset: the node has booted since, which resets every GPU."
            return self._result(Outcome.NEEDLESS, words)
        root = self._driver()
        gpus = self._look(root)
        switches = any((self.host.root / "dev").glob("nvidia-nvswitch[0-9]*"))
        if why := reset.unfit(self.uuids, gpus, switches=switches):
            raise RefusedError(why)
        mine = [gpu for gpu in gpus if gpu.uuid in self.uuids]
        minors = self._minors(mine)
        self._await(minors)
        with self._unpersistent(root, mine):
            if who := reset.held(holders(self.host.proc, minors)):
                raise RefusedError(who)
            self.tell(f"resetting {', '.join(self.uuids)}")
            ran = self._tool(root, "--gpu-reset", "-i", ",".join(self.uuids), timeout_s=RESET_S)
        if ran.status:
            raise HostError(f"nvidia-smi ended with {ran.status} and said: {ran.said}")
        return self._result(
            Outcome.DONE,
            f"nvidia-smi reset {printable.count(len(mine), 'GPU')} and said: {ran.said}",
        )

    def _driver(self) -> Path:
        for each in DRIVER_ROOTS:
            root = self.host.root / each
            # Whatever it links to is meant from inside that root.
            if (root / TOOL).exists() or (root / TOOL).is_symlink():
                return root
        places = " and ".join(f"/{each}/{TOOL}".replace("/./", "/") for each in DRIVER_ROOTS)
        raise RefusedError(f"there is no nvidia-smi on this host, looked for {places}")

    def _look(self, root: Path) -> tuple[ListedGpu, ...]:
        wanted = f"--query-gpu={','.join(reset.QUERY)}"
        try:
            ran = self._tool(root, wanted, "--format=csv,noheader", timeout_s=QUERY_S)
        except HostError as error:
            raise RefusedError(str(error)) from error
        if ran.status:
            raise RefusedError(f"nvidia-smi lists no GPUs ({ran.status}): {ran.said}")
        return reset.listed(ran.text)

    def _minors(self, gpus: Sequence[ListedGpu]) -> frozenset[int]:
        found = {gpu.uuid: minor_of(self.host.proc, gpu.pci) for gpu in gpus}
        unknown = next((uuid for uuid, minor in found.items() if minor is None), None)
        if unknown is not None:
            raise RefusedError(f"nobody says which device file GPU {unknown} has")
        return frozenset(minor for minor in found.values() if minor is not None)

    def _await(self, minors: Collection[int]) -> None:
        """Until nobody has the GPUs open but who keeps them persistent; RefusedError where not."""
        until, said = time.monotonic() + self.wait_s, ""
        while who := reset.held(self._others(minors)):
            if time.monotonic() >= until:
                raise RefusedError(f"{who} after {self.wait_s:.0f} s")
            if who != said:
                self.tell(f"waiting: {who}")
                said = who
            self.stop.wait(min(LOOK_S, max(0.05, until - time.monotonic())))
            if self.stop.is_set():
                break
        if self.stop.is_set():
            raise RefusedError("it was told to stop")

    def _others(self, minors: Collection[int]) -> Iterator[Holder]:
        found = holders(self.host.proc, minors)
        return (each for each in found if each.name != _PERSISTENCE_DAEMON)

    @contextmanager
    def _unpersistent(self, root: Path, gpus: Sequence[ListedGpu]) -> Iterator[None]:
        """Without persistence as long as this lasts."""
        kept = [gpu.uuid for gpu in gpus if gpu.persistent]
        try:
            for uuid in kept:
                ran = self._tool(root, "-pm", "0", "-i", uuid, timeout_s=QUERY_S)
                if ran.status:
                    raise RefusedError(f"its persistence cannot be taken off: {ran.said}")
            yield
        finally:
            for uuid in kept:
                self._persist(root, uuid)

    def _persist(self, root: Path, uuid: str) -> None:
        """Best effort: the driver works without, and only starts slower."""
        try:
            ran = self._tool(root, "-pm", "1", "-i", uuid, timeout_s=QUERY_S)
        except HostError as error:
            self.tell(f"persistence of {uuid} is not back: {error}")
        else:
            if ran.status:
                self.tell(f"persistence of {uuid} is not back: {ran.said}")

    def _tool(self, root: Path, *arguments: str, timeout_s: float) -> Ran:
        return self.host.inside(root, f"/{TOOL}", *arguments, timeout_s=timeout_s)

    def _result(self, outcome: Outcome, message: str) -> RepairResult:
        return RepairResult(outcome=outcome, message=message, gpus=tuple(self.uuids))
