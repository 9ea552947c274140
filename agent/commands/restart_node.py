"""`gpuward-agent restart-node`: ask the host's init for a reboot, once, in the boot that it was
meant for.

Run in the Job of repair adapter RestartNodeJob; never by the daemon. docs/repair.md has the Job
and the reason of each privilege. A pod that is started again after the reboot finds another boot
and does nothing, so one request is never two reboots. systemd is asked as an operator would: it
stops services in their order and unmounts.
"""

import argparse
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agent.commands import repair
from agent.commands.repair import Host, HostError, Outcome, RepairResult, TooLateError, tell
from agent.commands.repair import add_parser as add
from agent.settings import SettingsError
from rules.text.printable import printable

PROGRAM: Final = "gpuward-agent restart-node"
ENV_SESSION: Final = "GPUWARD_RESTART_SESSION"
ENV_BOOT: Final = "GPUWARD_RESTART_BOOT_ID"


def add_parser(subparsers: Any) -> None:
    """Add `restart-node` to the program's commands."""
    description = "Ask this machine's init for a reboot, once, in the boot that it is meant for."
    parser = add(subparsers, "restart-node", description)
    parser.add_argument(
        "--session",
        metavar="NAME",
        default="",
        help=f"the quarantine session that asks for it; default: ${ENV_SESSION}",
    )
    parser.add_argument(
        "--boot",
        metavar="ID",
        default="",
        help=f"the boot that it is meant for; in any other nothing is done; default: ${ENV_BOOT}",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, host: Host | None = None) -> int:
    """Ask for it, and say how that ended."""
    session = _given("session", arguments.session, ENV_SESSION)
    boot_id = _given("boot", arguments.boot, ENV_BOOT)
    result = NodeRestart(
        host=host or Host(), boot_id=boot_id, session=printable(session)[:253], tell=repair.say
    ).run()
    return tell(result, arguments, PROGRAM)


def _given(name: str, value: str, variable: str) -> str:
    """SettingsError where nobody said it: without both the node would restart for nobody."""
    found = value or os.environ.get(variable, "")
    if not found:
        raise SettingsError(f"--{name} is missing; only a drained node's session restarts it")
    return found


SYNC_S: Final = 30.0
"""How long file systems may take to write what they hold; a dead one never ends."""
ASK_S: Final = 60.0
_SYSTEMD: Final = "run/systemd/system"
"""Is there exactly where systemd is the init. Source: sd_booted(3)."""
_NOT_RUN: Final = (126, 127)
"""How nsenter ends where there is no such program. Source: nsenter(1)."""
_RUNS: Final = frozenset({"initializing", "starting", "running", "degraded", "maintenance"})
"""What systemd says of a machine that is not on its way down. Source: systemctl(1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRestart:
    """One restart, meant for the boot `boot_id`."""

    host: Host
    boot_id: str
    session: str
    tell: Callable[[str], object]
    sync: Callable[[], object] = os.sync

    def run(self) -> RepairResult:
        """Ask for it, and say how that ended."""
        try:
            return self._run()
        except TooLateError as error:
            # What was asked may be queued: nobody is to believe that nothing happens.
            return _result(Outcome.UNKNOWN, f"The node may be restarting: {error}.")
        except HostError as error:
            return _result(Outcome.FAILED, f"The node was not restarted: {error}.")

    def _run(self) -> RepairResult:
        if not self.host.seen:
            why = "the host's processes are out of sight (hostPID)"
            return _result(Outcome.REFUSED, f"The node was not restarted: {why}.")
        if self.host.boot_id != self.boot_id:
            words = "Nothing was asked: the node has booted since this restart was asked for."
            return _result(Outcome.NEEDLESS, words)
        if not (self.host.root / _SYSTEMD).is_dir():
            why = "its init is not systemd, which is the only one that is known here"
            return _result(Outcome.REFUSED, f"The node was not restarted: {why}.")
        self._write_out()
        self.tell(f"asking systemd for a reboot, for session {self.session}")
        ran = self.host.beside_init("systemctl", "reboot", timeout_s=ASK_S)
        if ran.status < 0 or (ran.status not in {0, *_NOT_RUN} and self._stops()):
            # A reboot that has begun ends whoever asked for it, and what it asks through.
            words = f"systemctl was cut off ({ran.status}) and said: {ran.said}"
            return _result(Outcome.UNKNOWN, f"The node may be restarting: {words}.")
        if ran.status:
            raise HostError(f"systemctl ended with {ran.status} and said: {ran.said}")
        return _result(
            Outcome.DONE, f"systemd was asked for a reboot, for session {self.session}."
        )

    def _stops(self) -> bool:
        """Whether the machine may be on its way down all the same."""
        try:
            ran = self.host.beside_init("systemctl", "is-system-running", timeout_s=ASK_S)
        except HostError:
            return True
        return ran.text.strip() not in _RUNS

    def _write_out(self) -> None:
        writer = threading.Thread(target=self.sync, name="sync", daemon=True)
        writer.start()
        writer.join(SYNC_S)
        if writer.is_alive():
            self.tell(f"file systems are not written out after {SYNC_S:.0f} s, going on")


def _result(outcome: Outcome, message: str) -> RepairResult:
    return RepairResult(outcome=outcome, message=message)
