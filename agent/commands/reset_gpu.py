"""`gpuward-agent reset-gpu`: reset GPUs of this machine that nobody has open.

Called by `agent.cli`, in the Job of repair adapter ResetGPUJob or by hand as root; never by the
daemon. docs/repair.md has the Job and the reason of each privilege.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from typing import Any, Final

from agent.commands.gpu_reset import GpuReset
from agent.commands.repair_host import Host
from agent.commands.repair_telling import TERMINATION_LOG, say, tell
from agent.commands.repair_telling import add_parser as add
from agent.settings import USAGE_ERROR, Option, SettingsError, seconds_between
from rules.repair.reset import uuids_of

PROGRAM: Final = "gpuward-agent reset-gpu"
ENV_GPUS: Final = "GPUWARD_RESET_GPUS"
ENV_BOOT: Final = "GPUWARD_RESET_BOOT_ID"
OPTIONS: Final = (
    Option(
        name="gpus",
        default="",
        metavar="UUIDS",
        help=f"which GPUs, by UUID, separated by commas; default: ${ENV_GPUS}",
    ),
    Option(
        name="boot",
        default="",
        metavar="ID",
        help="the boot that it is meant for; in any other nothing is done; default:"
        f" ${ENV_BOOT}, else whichever this is",
    ),
    Option(
        name="wait",
        default="0",
        metavar="SECONDS",
        help="how long those that have a GPU open may take to let go",
    ),
    TERMINATION_LOG,
)


def add_parser(subparsers: Any) -> None:
    """Add `reset-gpu` to the program's commands."""
    description = "Reset GPUs of this machine that nobody has open, with the driver's own tool."
    add(subparsers, "reset-gpu", description, OPTIONS).set_defaults(run=run)


def run(arguments: argparse.Namespace, host: Host | None = None) -> int:
    """Reset them, and say how that ended."""
    given = arguments.gpus or os.environ.get(ENV_GPUS, "")
    try:
        wait_s = seconds_between("wait", arguments.wait, 0.0, 3600.0)
        uuids = _uuids(given)
    except SettingsError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return USAGE_ERROR
    stop = threading.Event()
    # A reset that has begun is finished: the GPU is left in no state between.
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        result = GpuReset(
            host=host or Host(),
            uuids=uuids,
            boot_id=arguments.boot or os.environ.get(ENV_BOOT, ""),
            wait_s=wait_s,
            tell=say,
            stop=stop,
        ).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    return tell(result, arguments, PROGRAM)


def _uuids(given: str) -> tuple[str, ...]:
    try:
        return uuids_of(given)
    except ValueError as error:
        raise SettingsError(f"--gpus {error}") from error
