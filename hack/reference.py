"""Write docs/reference.md: flags, names on objects and reasons, read from the code.

`python -m hack.reference` writes it, `--check` compares. A flag, label or reason without a line in
the docs cannot exist, because the docs are made from them.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent.cli import COMMANDS
from agent.commands import check, decode, explain, reset_gpu, restart_node
from agent.daemon import run
from hack.generated import write_or_check
from remediator.kubectl import command as kubectl_command
from remediator.kubectl import parser as kubectl_parser
from remediator.settings import make_parser
from rules.api import names
from rules.catalog.reason import ClosesKind, ClosesOn
from rules.catalog.reasons import REASONS
from rules.policy.reader import policy_schema
from rules.text.user_input import CommandParser

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"

MEANINGS = {
    "LABEL_HEALTH": "`healthy`, `degraded`, `unhealthy` or `unknown` (agent; "
    "`unknown` also by the remediator when the agent is gone)",
    "LABEL_GPUS": "expected GPUs (agent)",
    "LABEL_GPUS_HEALTHY": "usable GPUs: healthy or degraded (agent)",
    "LABEL_INTERCONNECT": "`nvswitch`, `nvlink-mesh`, `nvlink-partial`, `pcie` or "
    "`single`: the design, not its present state (agent)",
    "LABEL_NVLINK_DOMAIN": "cluster UUID and clique of the NVLink domain (agent)",
    "LABEL_NUMA": "GPUs per NUMA node that has CPUs, as in `4-4` (agent)",
    "LABEL_MIG": "`none`, `mixed` or `all` (agent)",
    "LABEL_PRODUCT": "product name, or `mixed` (agent)",
    "LABEL_DRIVER": "driver version (agent)",
    "CONDITION_HEALTHY": "node condition: False only while a Fatal incident is active "
    "(agent; Unknown also by the remediator when the agent is gone)",
    "CONDITION_DEGRADED": "node condition: True while a Degraded incident is active (agent)",
    "TAINT_QUARANTINE": "taint `NoSchedule` with the reason at open, and label `true` "
    "(remediator)",
    "ANNOTATION_SESSION": "the session and the previous state of the node, as JSON (remediator)",
    "ANNOTATION_REPAIR": "on the object of a repair request: request, step and adapter "
    "(remediator)",
    "ANNOTATION_DRAIN_AT": "on a pod: when a drain evicts it at the earliest (remediator)",
    "CONDITION_DRAIN_PLANNED": "pod condition: True until the eviction; False if the drain leaves "
    "the pod (remediator)",
    "CONDITION_MAINTENANCE_PLANNED": "node condition of Kubernetes, with `drain.nodeConditions`: "
    "True from the quarantine until the repair ends (remediator)",
    "CONDITION_DRAIN_IN_PROGRESS": "node condition of Kubernetes, with `drain.nodeConditions`: "
    "True while pods are evicted (remediator)",
    "CONDITION_DRAINED": "node condition of Kubernetes, with `drain.nodeConditions`: True from "
    "the end of the drain until the release (remediator)",
    "ANNOTATION_MOVED": "labels that moved pods off the GPUs before a reset, to be "
    "restored (remediator)",
    "ANNOTATION_SCALE_DOWN_DISABLED": "set with the taint and cordon; the release "
    "restores its value (remediator)",
    "ANNOTATION_DO_NOT_DISRUPT": "set with the taint and cordon; the release restores its "
    "value (remediator)",
    "CONDITION_NEEDS_RESET": "node condition: True requests a reset of GPUs of a drained "
    "node (remediator)",
    "CONDITION_NEEDS_RESTART": "node condition: True requests a reboot of a drained node "
    "(remediator)",
    "CONDITION_NEEDS_REPLACE": "node condition: True requests a replacement of a drained "
    "node (remediator)",
    "CONDITION_VALIDATED": "node condition: result of the last test under load (remediator)",
    "ANNOTATION_UNABLE": "on the Lease: since when and why its holder cannot act (remediator)",
    "ANNOTATION_POLICY_UNREAD": "on the Lease: no policy could be read since the start, "
    "and why (remediator)",
    "ANNOTATION_POLICY_LAST_GOOD": "on the Lease: the last good policy is used; what is "
    "wrong with the present one (remediator)",
    "ANNOTATION_HOLD": "do not release, and why (operators)",
    "ANNOTATION_REPAIRED": "time and reason: closes incidents that need an operator, if "
    "the readings agree (operators)",
    "ANNOTATION_EXPECTED_GPUS": "how many GPUs the node should have (operators)",
    "ANNOTATION_RELEASE_GPU": "the agent closes NVML, and why (operators)",
    "ANNOTATION_FABRIC_MODE": "`shared`: the NVSwitch fabric has partitions "
    "(`FABRIC_MODE=1`), so some GPUs are not registered by design (operators)",
    "LABEL_OPT_OUT": "`true`: report only; other values have no effect, and `why`, the "
    "page and `preflight` report them (operators)",
}
FORMER_NAMES = {one.formerly for one in kubectl_command.COMMANDS if one.formerly}


def page() -> str:
    """Return the page."""
    return "\n".join(
        [
            "# Reference",
            "",
            (
                "<!-- Generated from the code by `python -m hack.reference`. Do not edit. -->\n\n"
                "This page is generated. See also [metrics](metrics.md), "
                "[Xids](xid.md), [custom resources](crds.md) and [commands](cli.md)."
            ),
            "",
            *_agent(),
            *_remediator(),
            *_kubectl(),
            *_names(),
            *_policy(),
            *_reasons(),
        ]
    )


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(header)
    lines = [f"|{'|'.join(titles)}|", f"|{'---|' * len(titles)}"]
    cells = ("|".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return [*lines, *(f"|{row}|" for row in cells), ""]


def _agent() -> list[str]:
    return [
        "## gpuward-agent",
        "",
        (
            f"Commands: {', '.join(f'`{name}`' for name in COMMANDS)}. A flag of `run` and "
            "`check` is also a variable: `--boot-id` is `GPUWARD_BOOT_ID`."
        ),
        "",
        *_table(("flag", "commands", "meaning"), _flags(_agent_parser())),
    ]


def _agent_parser() -> CommandParser:
    """The agent's commands."""
    parser = CommandParser()
    added = parser.add_subparsers()
    for command in (run, check, decode, explain, reset_gpu, restart_node):
        command.add_parser(added)
    return parser


def _flags(
    parser: CommandParser, of_all: CommandParser | None = None
) -> list[tuple[str, str, str]]:
    """Every flag with its meaning and its commands, `all` for all of them and for `of_all`."""
    found: dict[tuple[str, str], list[str]] = {}
    commands = _collect(parser, "", found)
    if of_all is not None:
        _collect(of_all, "all", found)
    return sorted(
        (flag, "all" if len(set(those)) == commands else ", ".join(sorted(set(those))), text)
        for (flag, text), those in found.items()
    )


def _collect(parser: CommandParser, name: str, found: dict[tuple[str, str], list[str]]) -> int:
    """Fill `found`; how many commands without further ones there are."""
    commands = 0
    for action in parser.declared:
        if action.nargs == argparse.PARSER:
            for command, child in dict(action.choices or ()).items():
                if command in FORMER_NAMES:
                    continue
                commands += _collect(child, f"{name} {command}".strip(), found)
        elif action.help == argparse.SUPPRESS:
            continue  # listed once, with the options of all commands
        elif action.option_strings and action.dest != "help" and name:
            flag = next((s for s in action.option_strings if s.startswith("--")), "")
            text = (action.help or "") % {"default": action.default, "prog": parser.prog}
            variable = f"GPUWARD_{flag[2:].upper().replace('-', '_')}"
            text = re.sub(rf"; {variable}| [\[(]{variable}[\])]", "", text)
            key = (f"`{flag or action.option_strings[0]}`", text)
            found.setdefault(key, []).append("all" if name == "all" else f"`{name}`")
    return commands or 1


def _remediator() -> list[str]:
    return [
        "## gpuward-remediator",
        "",
        (
            "Commands: `run`, `policy check FILE`, "
            "`policy rbac FILE`, `policy show [FILE]`, `policy schema`. A flag of `run` is also "
            "a variable: `--node-name` is `GPUWARD_NODE_NAME`."
        ),
        "",
        *_table(("flag", "commands", "meaning"), _flags(make_parser({}))),
    ]


def _kubectl() -> list[str]:
    return [
        "## kubectl gpuward",
        "",
        *_table(
            ("flag", "commands", "meaning"),
            _flags(kubectl_parser.make_parser(), kubectl_parser.global_options()),
        ),
    ]


def _names() -> list[str]:
    rows = [
        (f"`{getattr(names, constant)}`", meaning)
        for constant, meaning in sorted(MEANINGS.items())
    ]
    return ["## Names on nodes", "", *_table(("name", "meaning"), rows)]


def _policy() -> list[str]:
    """Every key that a policy may have: made from its types, so that none is missing."""
    rows = [
        (f"`{path}`", f"`{takes}`" if takes else "", meaning)
        for path, takes, meaning in _keys(policy_schema(), "")
    ]
    return [
        "## Keys of the policy",
        "",
        (
            "`[]` means each entry of a list, `NAME` a name of your choice. Durations are "
            "written as `10m` or `1h30m`. More: [policy](policy.md), "
            "[install](install.md#a-policy-of-your-own), [repair](repair.md), "
            "[external](external.md), [validate](validate.md)."
        ),
        "",
        *_table(("key", "takes", "default, or meaning"), rows),
    ]


def _keys(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Path, what it takes, and its default, or of a part what it is."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) > 1 and not any(map(_is_part, choices)):
        yield path, ", ".join(map(_takes, choices)), ""
        return
    for choice in choices:
        yield from _keys(choice, path)
    if "items" in schema and _is_part(schema["items"]):
        yield from _keys(schema["items"], f"{path}[]")
    elif isinstance(inner := schema.get("additionalProperties"), dict) and _is_part(inner):
        yield from _keys(inner, f"{path}.NAME")
    elif "properties" in schema:
        if path:
            yield path, "", schema.get("description", "").replace("|", "/")
        for key, value in schema["properties"].items():
            yield from _keys(value, f"{path}.{key}" if path else key)
    elif "anyOf" not in schema:
        default = json.dumps(schema["default"]) if "default" in schema else ""
        yield path, _takes(schema), f"`{default}`" if default else ""


def _is_part(schema: dict[str, Any]) -> bool:
    return "properties" in schema or "anyOf" in schema or "additionalProperties" in schema


def _takes(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("pattern"):
        return "duration"
    if schema.get("type") == "array":
        return f"list of {_takes(schema['items'])}"
    return str(schema.get("type", "any"))


def _reasons() -> list[str]:
    rows = [
        (
            f"`{name}`",
            str(row.klass),
            str(row.severity),
            str(row.level),
            str(row.action),
            _closes(row.closes_on),
        )
        for name, row in sorted(REASONS.items())
    ]
    header = ("reason", "class", "severity", "level", "action", "closes on")
    text = "`nvlink_states 3/5` means that three of the last five readings are good."
    return ["## Reasons that are not Xids", "", text, "", *_table(header, rows)]


def _closes(on: ClosesOn) -> str:
    """Return what closes an incident: the reading with its counts, or the evidence."""
    return f"{on.signal} {on.count}/{on.window}" if on.kind is ClosesKind.STATE else str(on)


def main() -> int:
    """Write or compare; 1 when the page is stale."""
    return write_or_check("hack.reference", {PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
