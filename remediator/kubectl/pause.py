"""`pause` and `resume`: no new harm within a second, on all nodes or some, until a time."""

from __future__ import annotations

import argparse
import secrets
from typing import Any

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.look import existing_node
from remediator.kubectl.terminal import Terminal
from remediator.kubectl.typed.pause_words import EQUAL
from rules.api.health import plain
from rules.api.names import API_VERSION
from rules.api.nodes import ObjectMeta, PauseView
from rules.api.quarantine import MAX_MESSAGE, PauseScope, PauseSpec
from rules.api.timestamps import format_time, parse_time
from rules.policy.durations import parse_duration
from rules.session.observation import pause_covers
from rules.text.printable import printable


async def pause(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Create a GPUWardPause."""
    if options.nodes and options.selector:
        raise CommandError("name nodes or give --selector, not both", exit_code=64)
    for node in options.nodes:
        await existing_node(cluster, node)
    by = await cluster.who()
    until = _until(options.until, cluster.now())
    spec = PauseSpec(
        scope=_scope(options.nodes, options.selector),
        reason=options.reason[:MAX_MESSAGE],
        by=by,
        until=until,
    )
    name = f"pause-{secrets.token_hex(4)}"
    await cluster.create(
        "gpuwardpauses",
        {
            "apiVersion": API_VERSION,
            "kind": "GPUWardPause",
            "metadata": {"name": name},
            "spec": plain(spec),
        },
    )
    where = await _covered(cluster, options, spec)
    ends = f"until {until}" if until else "until somebody resumes"
    return (
        f"paused {where} as {name}, {ends}; marks stay, releases go on\n"
        f"end it with: kubectl gpuward resume {name}"
    )


async def _covered(cluster: Cluster, options: argparse.Namespace, spec: PauseSpec) -> str:
    if options.nodes:
        return f"on {', '.join(sorted(options.nodes))}"
    if not options.selector:
        return "on every node"
    nodes = await cluster.nodes()
    pause = PauseView(metadata=ObjectMeta(), spec=spec)
    covered = sum(pause_covers(pause, node, cluster.now()) for node in nodes)
    return f"on {covered} of {len(nodes)} nodes ({options.selector})"


def _scope(nodes: list[str], labels: str | None) -> PauseScope:
    if nodes:
        return PauseScope(nodes=tuple(sorted(set(nodes))))
    if not labels:
        return PauseScope(all=True)
    pairs: dict[str, Any] = {}
    for part in labels.split(","):
        found = EQUAL.fullmatch(part)
        if found:
            pairs[found[1]] = found[2]
    return PauseScope(node_selector={"matchLabels": pairs})


def _until(text: str | None, now: float) -> str:
    """The moment; one that is over is a mistake, not a pause."""
    if not text:
        return ""
    at = parse_time(text)
    if at is None:
        at = now + parse_duration(text)
    if at <= now:
        raise CommandError(f"--until {text} is over already; give a later time", exit_code=64)
    return format_time(at)


async def resume(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """End the named pauses, or all of them."""
    existing = {pause.metadata.name: pause for pause in await cluster.pauses()}
    missing = sorted(set(options.pauses) - existing.keys())
    if missing:
        known = f"there are {', '.join(sorted(existing))}" if existing else "nothing is paused"
        raise CommandError(f"there is no pause {', '.join(missing)}; {known}")
    ending = sorted(set(options.pauses) or existing)
    for name in ending:
        await cluster.delete(f"{GROUP_PATH}/gpuwardpauses/{name}")
    if not ending:
        return "nothing was paused"
    return "\n".join(
        printable(
            f"ended {name}, paused by {existing[name].spec.by or '?'}: "
            f"{existing[name].spec.reason}"
        )
        for name in ending
    )
