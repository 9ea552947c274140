"""`gpuward-agent restart-node`: ask this machine's init for a reboot, in one boot and no other.

Called by `agent.cli`, in the Job of repair adapter RestartNodeJob; never by the daemon.
docs/repair.md has the Job and the reason of each privilege.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final

from agent.commands.node_restart import NodeRestart
from agent.commands.repair_host import Host
from agent.commands.repair_telling import TERMINATION_LOG, say, tell
from agent.commands.repair_telling import add_parser as add
from agent.settings import USAGE_ERROR, Option, SettingsError
from rules.text.printable import printable

PROGRAM: Final = "gpuward-agent restart-node"
ENV_SESSION: Final = "GPUWARD_RESTART_SESSION"
ENV_BOOT: Final = "GPUWARD_RESTART_BOOT_ID"
OPTIONS: Final = (
    Option(
        name="session",
        default="",
        metavar="NAME",
        help=f"the quarantine session that asks for it; default: ${ENV_SESSION}",
    ),
    Option(
        name="boot",
        default="",
        metavar="ID",
        help=f"the boot that it is meant for; in any other nothing is done; default: ${ENV_BOOT}",
    ),
    TERMINATION_LOG,
)


def add_parser(subparsers: Any) -> None:
    """Add `restart-node` to the program's commands."""
    description = "Ask this machine's init for a reboot, once, in the boot that it is meant for."
    add(subparsers, "restart-node", description, OPTIONS).set_defaults(run=run)


def run(arguments: argparse.Namespace, host: Host | None = None) -> int:
    """Ask for it, and say how that ended."""
    try:
        session = _given("session", arguments.session, ENV_SESSION)
        boot_id = _given("boot", arguments.boot, ENV_BOOT)
    except SettingsError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return USAGE_ERROR
    result = NodeRestart(
        host=host or Host(), boot_id=boot_id, session=printable(session)[:253], tell=say
    ).run()
    return tell(result, arguments, PROGRAM)


def _given(name: str, value: str, variable: str) -> str:
    """SettingsError where nobody said it: without both the node would restart for nobody."""
    found = value or os.environ.get(variable, "")
    if not found:
        raise SettingsError(f"--{name} is missing; only a drained node's session restarts it")
    return found
