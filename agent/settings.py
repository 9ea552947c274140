"""The agent's settings: flags, each also as a `GPUWARD_*` variable, checked once at start.

Read by `agent.daemon.run` and `agent.commands.check`; the files they name are read where they are
used.
"""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


class SettingsError(Exception):
    """Wrong use, which `agent.cli` reports; the text is one sentence that names the remedy."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent was reported. Strings as given, except where a type says more."""

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
    parser: argparse.ArgumentParser, environ: Mapping[str, str], *, collectors_only: bool
) -> None:
    """Add the flags to a command, or those alone that concern the collectors; a variable of the
    environment is a flag's default.
    """

    def add(name: str, default: str, metavar: str, text: str, **more: Any) -> None:
        variable = "GPUWARD_" + name.upper().replace("-", "_")
        shown = f"default: {default}; " if default else ""
        parser.add_argument(
            f"--{name}",
            metavar=metavar,
            default=environ.get(variable, default),
            help=f"{text} [{shown}{variable}]",
            **more,
        )

    add(
        "kmsg", "/dev/kmsg", "PATH|syslog|off",
        "where kernel records come from: a device like /dev/kmsg, a file or FIFO that is followed"
        " (one /dev/kmsg record per line), syslog(2), or nowhere; /dev/kmsg falls back to"
        " syslog(2) when it cannot be opened",
    )  # fmt: skip
    add(
        "accept-user-kmsg", "no", "yes|no",
        "also believe records that user space wrote to the kernel log: for tests and drills,"
        " since any privileged pod can write one",
        type=_truth, nargs="?", const="yes",
    )  # fmt: skip
    add(
        "nvml", "real", "real|sim:FILE|off",
        "where NVML comes from: the driver's library, a simulated node described by FILE (in a"
        " checkout only), or nowhere",
        type=_nvml,
    )  # fmt: skip
    add(
        "poll", "15", "SECONDS",
        "how often the fast readings are taken (recovery action, temperature, presence,"
        " dcgm-exporter); the slower ones keep their ratio to it: 4 times and 240 times as long",
        type=seconds(1.0, 300.0), dest="poll_s",
    )  # fmt: skip
    add(
        "dcgm", "off", "URL|off",
        "a dcgm-exporter of this node to read, such as http://127.0.0.1:9400/metrics",
        type=_url_or_off,
    )  # fmt: skip
    add("rules", "", "FILE", "thresholds and reasons that replace those built in")
    add(
        "expected-gpus", "", "COUNT",
        "how many GPUs this node should have; default: the node's annotation"
        " gpuward.io/expected-gpus, else the most that were ever seen",
        type=count_of_gpus,
    )  # fmt: skip
    add(
        "boot-id", "/proc/sys/kernel/random/boot_id", "FILE",
        "the file that names this boot; replaced in drills and tests that play a reboot",
    )  # fmt: skip
    if collectors_only:
        return
    add(
        "udev", "auto", "auto|off",
        "whether to listen for PCI devices coming and going; auto: where udev is available",
        type=_one_of("auto", "off"),
    )  # fmt: skip
    add(
        "kubeconfig", "", "FILE",
        "how to reach the API server; default: $KUBECONFIG, else the pod's service account, else"
        " ~/.kube/config",
    )  # fmt: skip
    add(
        "node-name", "", "NAME",
        "the Node to publish on; default: $NODE_NAME, else this machine's host name",
    )  # fmt: skip
    add(
        "listen",
        ":9412",
        "ADDRESS",
        "where /metrics, /healthz and /readyz are served; off: nowhere",
    )
    add(
        "metrics", "basic", "basic|full",
        "which series /metrics has: basic leaves out GPU flags that are not raised, counters of"
        " GPUs that are 0, links that are up, and fixed limits; full has all of them",
        type=_one_of("basic", "full"),
    )  # fmt: skip
    add(
        "log", "auto", "auto|json|console",
        "how the agent's own log is written; auto: for people on a terminal, else JSON",
        type=_one_of("auto", "json", "console"),
    )  # fmt: skip


def settings_of(
    arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> AgentSettings:
    """The settings in parsed arguments."""
    fields = AgentSettings.__struct_fields__
    given = {name: value for name, value in vars(arguments).items() if name in fields}
    given["node_name"] = given.get("node_name") or environ.get("NODE_NAME", "") or host_name()
    return AgentSettings(**given)


def host_name() -> str:
    """What the kubelet calls its node unless told otherwise."""
    return socket.gethostname().lower()


# What follows reads the text of a flag or variable; ArgumentTypeError becomes wrong use.


def count_of_gpus(text: str) -> int | None:
    """What `--expected-gpus` says; None where nobody said."""
    if not text:
        return None
    if not text.isdecimal() or not 0 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 64")
    return int(text)


def seconds(least: float, most: float) -> Callable[[str], float]:
    """What reads a number of seconds within these bounds."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not least <= found <= most:
            bounds = f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds {bounds}")
        return found

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    """As `choices` of argparse, which do not bind a variable of the environment."""

    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def _nvml(text: str) -> str:
    return text if text.startswith("sim:") else _one_of("real", "sim:FILE", "off")(text)


def _url_or_off(text: str) -> str:
    if text != "off" and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is neither off nor an http address")
    return text


def _truth(text: str) -> bool:
    if text.lower() in ("", "0", "false", "no"):
        return False
    if text.lower() in ("1", "true", "yes"):
        return True
    raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
