"""`gpuward-agent restart-node`: reboot the host once, through systemd.

Runs in the Job of the repair adapter RestartNodeJob; never in the daemon. docs/repair.md has the
Job and the reason for each privilege. A pod that starts again after the reboot finds another boot
ID and does nothing, so one request never causes two reboots. `systemctl reboot` stops services in
order and unmounts file systems.
"""

import argparse
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agent.commands import repair
from agent.commands.repair import Host, HostError, Outcome, RepairResult, TooLateError
from agent.settings import SettingsError
from rules.text.printable import printable

PROGRAM: Final = "gpuward-agent restart-node"
ENV_SESSION: Final = "GPUWARD_RESTART_SESSION"
ENV_BOOT: Final = "GPUWARD_RESTART_BOOT_ID"


def add_parser(subparsers: Any) -> None:
    """Add `restart-node` to the program's commands."""
    parser = repair.add_parser(
        subparsers,
        "restart-node",
        "Reboot this machine",
        " Does nothing if the machine has rebooted since the request. Needs root and systemd.",
    )
    parser.add_argument(
        "--session",
        metavar="NAME",
        default="",
        help=f"name of the quarantine session that requests the reboot [default: ${ENV_SESSION}]",
    )
    parser.add_argument(
        "--boot",
        metavar="ID",
        default="",
        help="boot ID at the request; do nothing if the current one differs"
        f" [default: ${ENV_BOOT}]",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, host: Host | None = None) -> int:
    """Request the reboot and return the exit status. Raises SettingsError."""
    session = _given("session", arguments.session, ENV_SESSION)
    boot_id = _given("boot", arguments.boot, ENV_BOOT)
    result = NodeRestart(
        host=host or Host(),
        boot_id=boot_id,
        session=printable(session)[:253],
        log_line=repair.log_line,
    ).run()
    return repair.print_result(result, arguments, PROGRAM)


def _given(name: str, value: str, variable: str) -> str:
    """Return the option or its variable. Raises SettingsError if neither is set."""
    found = value or os.environ.get(variable, "")
    if not found:
        raise SettingsError(
            f"--{name} is required: a node is only rebooted for a quarantine session"
        )
    return found


SYNC_S: Final = 30.0
"""Timeout for sync(2): a file system that hangs never returns."""
ASK_S: Final = 60.0
_SYSTEMD: Final = "run/systemd/system"
"""Exists if, and only if, systemd is the init. Source: sd_booted(3)."""
_NOT_RUN: Final = (126, 127)
"""Exit status of nsenter if the program does not exist. Source: nsenter(1)."""
_RUNS: Final = frozenset({"initializing", "starting", "running", "degraded", "maintenance"})
"""States of systemd on a machine that is not shutting down. Source: systemctl(1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRestart:
    """One reboot, requested in the boot `boot_id`."""

    host: Host
    boot_id: str
    session: str
    log_line: Callable[[str], object]
    sync: Callable[[], object] = os.sync
    ask_s: float = ASK_S
    """Timeout of one call of systemctl."""

    def run(self) -> RepairResult:
        """Request the reboot and return the result."""
        try:
            return self._run()
        except TooLateError as error:
            # systemd may have queued the request: the reboot can still happen.
            return _result(Outcome.UNKNOWN, f"The node may be restarting: {error}.")
        except HostError as error:
            return _result(Outcome.FAILED, f"The node was not restarted: {error}.")

    def _run(self) -> RepairResult:
        if not self.host.sees_host:
            why = "the host's processes are not visible: set hostPID"
            return _result(Outcome.REFUSED, f"The node was not restarted: {why}.")
        if self.host.boot_id != self.boot_id:
            done = "No reboot was requested: the node has already rebooted since the request."
            return _result(Outcome.NEEDLESS, done)
        if not (self.host.root / _SYSTEMD).is_dir():
            why = "its init is not systemd, and no other init is supported"
            return _result(Outcome.REFUSED, f"The node was not restarted: {why}.")
        self._write_out()
        self.log_line(f"requesting a reboot from systemd for session {self.session}")
        ran = self.host.in_init_mounts("systemctl", "reboot", timeout_s=self.ask_s)
        if ran.status < 0 or (ran.status not in {0, *_NOT_RUN} and self._stops()):
            # The reboot has started and ended systemctl or its connection.
            cut = f"systemctl was interrupted ({ran.status}): {ran.output}"
            return _result(Outcome.UNKNOWN, f"The node may be restarting: {cut}.")
        if ran.status:
            raise HostError(f"systemctl exited with {ran.status}: {ran.output}")
        return _result(
            Outcome.DONE, f"A reboot was requested from systemd for session {self.session}."
        )

    def _stops(self) -> bool:
        """Whether the machine may be shutting down."""
        try:
            ran = self.host.in_init_mounts("systemctl", "is-system-running", timeout_s=self.ask_s)
        except HostError:
            return True
        return ran.text.strip() not in _RUNS

    def _write_out(self) -> None:
        writer = threading.Thread(target=self.sync, name="sync", daemon=True)
        writer.start()
        writer.join(SYNC_S)
        if writer.is_alive():
            self.log_line(f"sync did not finish within {SYNC_S:.0f} s; continuing")


def _result(outcome: Outcome, message: str) -> RepairResult:
    return RepairResult(outcome=outcome, message=message)
