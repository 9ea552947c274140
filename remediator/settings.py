"""Command line and environment of `gpuward-remediator`: every flag also as `GPUWARD_*`.

`cli` parses with this; `run` takes the result. Wrong use ends with 64 and one sentence.
"""

import argparse
import os
import re
import socket
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from rules.text.user_input import CommandParser

EX_USAGE = 64
"""Usage or configuration error (sysexits.h). The agent uses 2 for an unhealthy node."""

DEFAULT_NAMESPACE = "gpuward"
"""The namespace in the manifests."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TRUE = {"1", "true", "yes", "on"}
_POLICY_FILE = "policy, ConfigMap, or output of kustomize or helm; - for standard input"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediatorSettings:
    """How one replica runs."""

    policy: str | None
    kubeconfig: str | None
    shadow: bool
    builtin_validation: bool
    """Component `validate` is installed: nodes are tested unless the policy disables it."""
    listen: str
    namespace: str
    """Namespace of the lease and of the agent pods."""
    identity: str
    """Holder name on the lease; different for every replica."""
    node_name: str
    """The node this process runs on; empty outside a cluster."""
    page_listen: str
    """Listen address of the review page, or `off`."""
    page_pool_labels: str
    """Comma-separated label keys that name a node's pool; empty for the defaults."""
    page_rack_labels: str
    page_hosts: str
    """Comma-separated public host names of the page, in addition to addresses and cluster
    names.
    """
    grafana_url: str
    """Address of the Grafana that the page links to; empty for no link."""


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps help texts without breaks at hyphens, so that names can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _RemediatorParser(CommandParser):
    """An argument parser that exits with 64 on usage errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _HelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        _, message = self.complaint(message)
        self.exit(EX_USAGE, f"{self.prog}: {message}; see {self.prog} --help.\n")


def make_parser(env: Mapping[str, str]) -> CommandParser:
    """The parser of all commands, with defaults from the environment."""
    parser = _RemediatorParser(
        prog="gpuward-remediator",
        description="Quarantine, drain and repair failing GPU nodes within budgets and PDBs.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the controller")
    _flag(run, env, "--policy", "FILE", "policy file (default: mode Shadow and default limits)")
    _flag(
        run,
        env,
        "--kubeconfig",
        "FILE",
        "kubeconfig of the cluster (default: $KUBECONFIG, else the pod's service account, else "
        "~/.kube/config)",
    )
    run.add_argument(
        "--shadow",
        action="store_true",
        default=env.get("GPUWARD_SHADOW", "").lower() in _TRUE,
        help="only report what would be done and change no node or pod, regardless of the "
        "policy's mode (GPUWARD_SHADOW)",
    )
    run.add_argument(
        "--builtin-validation",
        action="store_true",
        default=env.get("GPUWARD_BUILTIN_VALIDATION", "").lower() in _TRUE,
        help="test drained nodes under load before their release, unless the policy sets another "
        "validate.provider; set by component validate (GPUWARD_BUILTIN_VALIDATION)",
    )
    _flag(
        run,
        env,
        "--listen",
        "HOST:PORT",
        "address of metrics and probes (default: :9413)",
        ":9413",
    )
    _flag(
        run,
        env,
        "--namespace",
        "NAME",
        "namespace of the Lease and of the agent pods (default: this pod's namespace, else "
        "gpuward)",
    )
    _flag(
        run,
        env,
        "--identity",
        "NAME",
        "holder identity in the Lease (default: pod name, else host name)",
    )
    _flag(
        run,
        env,
        "--node-name",
        "NAME",
        "name of the node that this process runs on; it is drained last",
        "",
    )
    _flag(
        run,
        env,
        "--page-listen",
        "HOST:PORT",
        "address of the review page and its JSON, or off (default: :9414)",
        ":9414",
    )
    _flag(
        run,
        env,
        "--page-pool-labels",
        "KEYS",
        "node labels that identify a pool, comma-separated",
        "",
    )
    _flag(run, env, "--page-hosts", "NAMES", "public host names of the page, comma-separated", "")
    _flag(
        run,
        env,
        "--page-rack-labels",
        "KEYS",
        "node labels that identify a rack, comma-separated",
        "",
    )
    _flag(
        run,
        env,
        "--grafana-url",
        "URL",
        "URL of the Grafana with the dashboards of docs/dashboards, to which the page links",
        "",
        kind=_web_address,
    )
    policy = commands.add_parser("policy", help="check or show policy files")
    actions = policy.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="validate a policy file and print its errors")
    rbac = actions.add_parser(
        "rbac",
        help="print a kustomize component with the RBAC rules for the custom repair adapters of a "
        "policy",
    )
    rbac.add_argument("file", metavar="FILE", help=_POLICY_FILE)
    rbac.add_argument(
        "--output", metavar="DIR", help="write the files to this folder instead of printing them"
    )
    check.add_argument("file", metavar="FILE", help=_POLICY_FILE)
    actions.add_parser("schema", help="print the JSON Schema of a policy file, for editors")
    show = actions.add_parser("show", help="print the policy with all defaults")
    show.add_argument("file", metavar="FILE", nargs="?", help=_POLICY_FILE)
    _flag(show, env, "--policy", "FILE", "policy file (default: built-in policy, mode Shadow)")
    return parser


def _flag(
    parser: argparse.ArgumentParser,
    env: Mapping[str, str],
    name: str,
    metavar: str,
    text: str,
    default: str | None = None,
    kind: Callable[[str], str] = str,
) -> None:
    variable = "GPUWARD_" + name.lstrip("-").replace("-", "_").upper()
    parser.add_argument(
        name,
        metavar=metavar,
        default=env.get(variable) or default,
        type=kind,
        help=f"{text} ({variable})",
    )


def _web_address(text: str) -> str:
    """An http or https address without the slash at its end; "" as it is."""
    if text and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", text):
        raise argparse.ArgumentTypeError(f"{text} is not http://HOST or https://HOST")
    return text.rstrip("/")


def run_settings(arguments: argparse.Namespace, env: Mapping[str, str]) -> RemediatorSettings:
    """The settings of `run`."""
    host = socket.gethostname()
    given = {one.name: getattr(arguments, one.name) for one in fields(RemediatorSettings)}
    given["namespace"] = (
        arguments.namespace or env.get("POD_NAMESPACE") or _own_namespace() or DEFAULT_NAMESPACE
    )
    given["identity"] = arguments.identity or env.get("POD_NAME") or f"{host}-{os.getpid()}"
    return RemediatorSettings(**given)


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text("utf-8").strip()
    except OSError:
        return ""


def fail(sentence: str) -> int:
    """Print an error and return the exit status of a usage error."""
    sys.stderr.write(f"gpuward-remediator: {sentence}\n")
    return EX_USAGE
