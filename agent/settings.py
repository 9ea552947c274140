"""The agent's settings: flags and `GPUWARD_*` environment variables, validated at start.

Used by `agent.daemon.run` and `agent.commands.check`, which read the files that the flags name.
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
    """Return the version from the name of the installed package's `.dist-info` folder.

    importlib.metadata would cost each agent a megabyte of memory for zip and mail parsers.
    """
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names alone, at every start
        except OSError:
            continue
        for name in names:
            if name.startswith("gpuward-") and name.endswith(".dist-info"):
                return name.removeprefix("gpuward-").removesuffix(".dist-info")
    # A checkout on the path that is not installed.
    return "0.0.0"


VERSION = version_in(sys.path)
USER_AGENT = f"{COMPONENT_AGENT}/{VERSION}"


USAGE_ERROR = 64
"""Exit status for usage and configuration errors (EX_USAGE); 2 means an unhealthy node."""


class SettingsError(Exception):
    """Wrong use or configuration; the text is one sentence with the remedy, for `agent.cli`."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force. Strings are as the user wrote them."""

    kmsg: str
    accept_user_kmsg: bool
    nvml: str
    dcgm: str
    poll_s: float = 15.0
    goe: str = "off"
    udev: str = "off"
    pod_resources: str = "off"
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
    """Add the flags to a command, or only those of the collectors.

    An environment variable is the default of its flag.
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
        "source of kernel records: a device such as /dev/kmsg, a file or FIFO to follow (one"
        " /dev/kmsg record per line), syslog(2), or none; /dev/kmsg falls back to syslog(2) if it"
        " cannot be opened",
    )  # fmt: skip
    add(
        "accept-user-kmsg", "no", "yes|no",
        "also accept kernel log records written by user space; for tests only, since any"
        " privileged pod can write them",
        type=_truth, nargs="?", const="yes",
    )  # fmt: skip
    add(
        "nvml", "real", "real|sim:FILE|off",
        "source of NVML data: the driver's library, a simulated node described by FILE (in a"
        " checkout only), or none",
        type=_nvml,
    )  # fmt: skip
    add(
        "poll", "15", "SECONDS",
        "polling interval of the fast readings (recovery action, temperature, presence,"
        " dcgm-exporter); slower readings use 4 times and 240 times this interval",
        type=seconds(1.0, 300.0), dest="poll_s",
    )  # fmt: skip
    add(
        "dcgm", "off", "URL|off",
        "URL of the dcgm-exporter of this node, such as http://127.0.0.1:9400/metrics",
        type=_url_or_off,
    )  # fmt: skip
    add("rules", "", "FILE", "YAML file that overrides built-in thresholds and reasons")
    add(
        "expected-gpus", "", "COUNT",
        "number of GPUs that this node should have; default: the node's annotation"
        " gpuward.io/expected-gpus, else the highest number seen so far",
        type=count_of_gpus,
    )  # fmt: skip
    add(
        "boot-id", "/proc/sys/kernel/random/boot_id", "FILE",
        "file with the boot ID; for tests that simulate a reboot",
    )  # fmt: skip
    if collectors_only:
        return
    add(
        "goe", "off", "auto|off",
        "GPU Operational Events of NVML, a preview that has not been tested on hardware; auto: if"
        " the driver has them (R615 and later)",
        type=_one_of("auto", "off"),
    )  # fmt: skip
    add(
        "udev", "auto", "auto|off",
        "listen to udev for PCI devices that appear or disappear; auto: if udev is available",
        type=_one_of("auto", "off"),
    )  # fmt: skip
    add(
        "pod-resources", "auto", "auto|PATH|off",
        "socket of the kubelet's PodResources API, which reports the pods that hold GPUs; auto:"
        " /var/lib/kubelet/pod-resources/kubelet.sock if it exists",
        type=_pod_resources,
    )  # fmt: skip
    add(
        "kubeconfig", "", "FILE",
        "kubeconfig file for the API server; default: $KUBECONFIG, else the pod's service account,"
        " else ~/.kube/config",
    )  # fmt: skip
    add(
        "node-name", "", "NAME",
        "name of the Node to publish on; default: $NODE_NAME, else this machine's host name",
    )  # fmt: skip
    add(
        "listen",
        ":9412",
        "ADDRESS",
        "address that serves /metrics, /healthz and /readyz; off: none",
    )
    add(
        "metrics", "basic", "basic|full",
        "series on /metrics: basic omits GPU flags that are not raised, GPU counters at 0, links"
        " that are up, and fixed limits; full has all series",
        type=_one_of("basic", "full"),
    )  # fmt: skip
    add(
        "log", "auto", "auto|json|console",
        "format of the agent's log; auto: console on a terminal, else JSON",
        type=_one_of("auto", "json", "console"),
    )  # fmt: skip


def settings_of(
    arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> AgentSettings:
    """Return the settings in parsed arguments."""
    fields = AgentSettings.__struct_fields__
    given = {name: value for name, value in vars(arguments).items() if name in fields}
    given["node_name"] = given.get("node_name") or environ.get("NODE_NAME", "") or host_name()
    return AgentSettings(**given)


def host_name() -> str:
    """Return the kubelet's default name for this node."""
    return socket.gethostname().lower()


# Parsers of flag and variable values; ArgumentTypeError becomes a usage error.


def count_of_gpus(text: str) -> int | None:
    """Return the value of `--expected-gpus`; None if it is empty."""
    if not text:
        return None
    if not text.isdecimal() or not 0 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 64")
    return int(text)


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Return a parser of seconds within these bounds."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not least <= found <= most:
            bounds = f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds {bounds}")
        return found

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser for `choices`; argparse would not check a default from a variable."""

    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return read


def _nvml(text: str) -> str:
    return text if text.startswith("sim:") else _one_of("real", "sim:FILE", "off")(text)


def _url_or_off(text: str) -> str:
    if text != "off" and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not off or an http(s) URL")
    return text


def _pod_resources(text: str) -> str:
    return text if text.startswith("/") else _one_of("auto", "/PATH", "off")(text)


def _truth(text: str) -> bool:
    if text.lower() in ("", "0", "false", "no"):
        return False
    if text.lower() in ("1", "true", "yes"):
        return True
    raise argparse.ArgumentTypeError(f"{text!r} is not yes or no")
