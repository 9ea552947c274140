"""The agent's settings: flags, each also as a `GPUWARD_*` variable, checked once at start.

Built by `agent.cli`, read by `agent.daemon.run` and `agent.commands.check`. Reading the files they
name happens where they are used.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping, Sequence

import msgspec

from rules.api.names import COMPONENT_AGENT


def version_in(folders: Sequence[str]) -> str:
    """The version that stands in the name of the installed package's own folder.

    Not importlib.metadata, which opens archives and mail: a megabyte of every agent.
    """
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names alone, at every start
        except OSError:
            continue
        for name in names:
            if name.startswith("gpuward-") and name.endswith(".dist-info"):
                return name.removeprefix("gpuward-").removesuffix(".dist-info")
    # A checkout put on the path without being installed.
    return "0.0.0"


VERSION = version_in(sys.path)
USER_AGENT = f"{COMPONENT_AGENT}/{VERSION}"


USAGE_ERROR = 64
"""Exit status for wrong use or configuration: 2 would read as an unhealthy node (EX_USAGE)."""

ENV_PREFIX = "GPUWARD_"


class SettingsError(Exception):
    """Wrong use; the text is one sentence that names the remedy."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One flag of `run`; `check` shares those that concern the senses."""

    name: str
    default: str
    metavar: str
    help: str
    senses: bool = True
    switch: bool = False


OPTIONS: Sequence[Option] = (
    Option(
        name="kmsg",
        default="/dev/kmsg",
        metavar="PATH|syslog|off",
        help="where kernel records come from: a device like /dev/kmsg, a file or FIFO that is"
        " followed (one /dev/kmsg record per line), syslog(2), or nowhere; /dev/kmsg falls back"
        " to syslog(2) when it cannot be opened",
    ),
    Option(
        name="accept-user-kmsg",
        default="",
        metavar="",
        help="also believe records that user space wrote to the kernel log: for tests and drills,"
        " since any privileged pod can write one",
        switch=True,
    ),
    Option(
        name="nvml",
        default="real",
        metavar="real|sim:FILE|off",
        help="where NVML comes from: the driver's library, a simulated node described by FILE"
        " (in a checkout only), or nowhere",
    ),
    Option(
        name="poll",
        default="15",
        metavar="SECONDS",
        help="how often the fast readings are taken (recovery action, temperature, presence,"
        " dcgm-exporter); the"
        " slower ones keep their ratio to it: 4 times and 240 times as long",
    ),
    Option(
        name="dcgm",
        default="off",
        metavar="URL|off",
        help="a dcgm-exporter of this node to read, such as http://127.0.0.1:9400/metrics",
    ),
    Option(
        name="udev",
        default="auto",
        metavar="auto|off",
        help="whether to listen for PCI devices coming and going; auto: where udev is available",
        senses=False,
    ),
    Option(
        name="kubeconfig",
        default="",
        metavar="FILE",
        help="how to reach the API server; default: $KUBECONFIG, else the pod's service account,"
        " else ~/.kube/config",
        senses=False,
    ),
    Option(
        name="node-name",
        default="",
        metavar="NAME",
        help="the Node to publish on; default: $NODE_NAME, else this machine's host name",
        senses=False,
    ),
    Option(
        name="listen",
        default=":9412",
        metavar="ADDRESS",
        help="where /metrics, /healthz and /readyz are served; off: nowhere",
        senses=False,
    ),
    Option(
        name="metrics",
        default="basic",
        metavar="basic|full",
        help="which series /metrics has: basic leaves out GPU flags that are not "
        "raised, counters of GPUs that are 0, links that are up, and fixed limits; full has all "
        "of them",
        senses=False,
    ),
    Option(
        name="rules",
        default="",
        metavar="FILE",
        help="thresholds and reasons that replace those built in",
    ),
    Option(
        name="expected-gpus",
        default="",
        metavar="COUNT",
        help="how many GPUs this node should have; default: the node's annotation"
        " gpuward.io/expected-gpus, else the most that were ever seen",
    ),
    Option(
        name="boot-id",
        default="/proc/sys/kernel/random/boot_id",
        metavar="FILE",
        help="the file that names this boot; replaced in drills and tests that play a reboot",
    ),
    Option(
        name="log",
        default="auto",
        metavar="auto|json|console",
        help="how the agent's own log is written; auto: for people on a terminal, else JSON",
        senses=False,
    ),
)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent was told. Strings as given, except where a type says more."""

    kmsg: str
    accept_user_kmsg: bool
    nvml: str
    dcgm: str
    poll_s: float = 15.0
    udev: str = "off"
    kubeconfig: str = ""
    node_name: str = ""
    listen: str = "off"
    metrics: str = "basic"
    rules: str = ""
    expected_gpus: int | None = None
    boot_id: str = "/proc/sys/kernel/random/boot_id"
    log: str = "auto"


def add_options(
    parser: argparse.ArgumentParser, environ: Mapping[str, str], *, senses_only: bool
) -> None:
    """Add the flags to a command; a variable of the environment is its default."""
    for option in OPTIONS:
        if senses_only and not option.senses:
            continue
        variable = variable_of(option)
        default = environ.get(variable, option.default)
        if option.switch:
            parser.add_argument(
                f"--{option.name}",
                action="store_true",
                default=default,
                help=f"{option.help} [default: no; {variable}]",
            )
            continue
        shown = f"default: {option.default}; " if option.default else ""
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            default=default,
            help=f"{option.help} [{shown}{variable}]",
        )


def variable_of(option: Option) -> str:
    """The environment variable of a flag."""
    return ENV_PREFIX + option.name.upper().replace("-", "_")


def settings_of(
    arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> AgentSettings:
    """The settings in parsed arguments. Raises SettingsError."""
    given = vars(arguments)
    nvml = given["nvml"]
    if nvml not in ("real", "off") and not nvml.startswith("sim:"):
        raise SettingsError(f"--nvml {nvml!r} is none of real, sim:FILE and off")
    dcgm = given["dcgm"]
    if dcgm != "off" and not dcgm.startswith(("http://", "https://")):
        raise SettingsError(f"--dcgm {dcgm!r} is neither off nor an http address")
    udev = given.get("udev", "off")
    if udev not in ("auto", "off"):
        raise SettingsError(f"--udev {udev!r} is neither auto nor off")
    metrics = given.get("metrics", "basic")
    if metrics not in ("basic", "full"):
        raise SettingsError(f"--metrics {metrics!r} is neither basic nor full")
    log = given.get("log", "auto")
    if log not in ("auto", "json", "console"):
        raise SettingsError(f"--log {log!r} is none of auto, json and console")
    return AgentSettings(
        kmsg=given["kmsg"],
        accept_user_kmsg=_truth("accept-user-kmsg", given["accept_user_kmsg"]),
        nvml=nvml,
        dcgm=dcgm,
        poll_s=seconds_between("poll", given["poll"], 1.0, 300.0),
        udev=udev,
        kubeconfig=given.get("kubeconfig", ""),
        node_name=given.get("node_name") or environ.get("NODE_NAME", "") or host_name(),
        listen=given.get("listen", "off"),
        metrics=metrics,
        rules=given["rules"],
        expected_gpus=count_of_gpus(given["expected_gpus"]),
        boot_id=given["boot_id"],
        log=log,
    )


def host_name() -> str:
    """What the kubelet calls its node unless told otherwise."""
    return socket.gethostname().lower()


def count_of_gpus(text: str) -> int | None:
    """What `--expected-gpus` says; None where nobody said. Raises SettingsError."""
    if not text:
        return None
    if not text.isdecimal() or not 0 <= int(text) <= 64:
        raise SettingsError(f"--expected-gpus {text!r} is no number from 0 to 64")
    return int(text)


def seconds_between(name: str, text: str, least: float, most: float) -> float:
    """What `--name` says in seconds. Raises SettingsError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise SettingsError(
            f"--{name} {text!r} is no number of seconds from {least:g} to {most:g}"
        )
    return seconds


def _truth(name: str, given: bool | str) -> bool:
    """A switch: True from its flag, else the text of its variable or default."""
    if isinstance(given, bool):
        return given
    if given.lower() in ("", "0", "false", "no"):
        return False
    if given.lower() in ("1", "true", "yes"):
        return True
    variable = ENV_PREFIX + name.upper().replace("-", "_")
    raise SettingsError(f"{variable}={given!r} is neither true nor false")
