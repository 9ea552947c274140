"""`pause` and `resume`: no new quarantines or evictions, on all nodes or some, until a time."""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.kubectl.in_force import policy_in_force
from remediator.kubectl.node_look import existing_node
from remediator.view.people import pause_line, pause_scope
from rules.api.health import plain
from rules.api.metadata import ObjectMeta
from rules.api.names import API_VERSION
from rules.api.nodes import PauseView
from rules.api.object_name import segment
from rules.api.quarantine import MAX_MESSAGE, PauseEnded, PauseScope, PauseSpec
from rules.api.requests import Request
from rules.api.selectors import as_object
from rules.api.timestamps import format_time, parse_time, utc_of
from rules.policy.policy import Policy, shadow_of
from rules.policy.section import parse_duration
from rules.session.exclusions import pause_covers, pause_over
from rules.session.history import KEEP_S
from rules.text.printable import count, printable

_MOST_NAMED: Final = 6
_KEPT: Final = 50
"""So many pauses that are over are kept at most: every rule about a node passes over them."""
_AT_ONCE: Final = 20
"""How many one command deletes at most."""
_OURS: Final = re.compile(r"pause-[0-9a-f]{8}")
"""What `pause` calls them; those of other names are for whoever made them to delete."""


async def pause(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Create a GPUWardPause."""
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
    policy = await policy_in_force(cluster, options.namespace)
    await _forget_outlived(cluster)
    ends = f"until {utc_of(until)}" if until else "until somebody resumes"
    return "\n".join(
        [
            f"paused {where} as {name}, {ends}; nodes that are out stay out, releases go on",
            *filter(None, [policy.doubt or _in_shadow(policy.policy)]),
            f"end it with: kubectl gpuward resume {name}",
        ]
    )


def _in_shadow(policy: Policy | None) -> str:
    """What a pause is worth while nothing is touched anyway."""
    if shadow_of(policy) is None:
        return ""
    return "the policy is Shadow: no node is taken out anyway; it holds once the policy enforces"


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
    return PauseScope(node_selector=as_object(labels))


def _until(text: str | None, now: float) -> str:
    """A moment (RFC 3339, or as the commands print it) or the end of a duration such as 2h;
    CommandError for what is neither, and for one that is over: a mistake, not a pause.
    """
    if not text:
        return ""
    printed = text.endswith(" UTC")
    at = parse_time(f"{text.removesuffix(' UTC')}Z" if printed else text)
    if at is None:
        try:
            at = now + parse_duration(text)
        except ValueError as error:
            known = "neither a time (2026-01-31T12:00:00Z) nor a duration (2h, 1h30m)"
            raise CommandError(f"--until {text!r:.80} is {known}", exit_code=64) from error
    if at <= now:
        raise CommandError(f"--until {text} is over already; give a later time", exit_code=64)
    return format_time(at)


async def _forget_outlived(cluster: Cluster) -> None:
    """Delete pauses of ours that are over and too old or too many, as they were seen: one that
    somebody took up again stays. Whoever may not is stopped by nothing.
    """
    with suppress(CommandError):
        now = cluster.now()
        over = [
            (parse_time(one.spec.until) or 0.0, one.metadata.name, one)
            for one in await cluster.pauses()
            if pause_over(one, now) and _OURS.fullmatch(one.metadata.name)
        ]
        over.sort(key=lambda each: each[:2], reverse=True)
        gone = [one for i, (at, _, one) in enumerate(over) if i >= _KEPT or now - at > KEEP_S]
        for pause in gone[-_AT_ONCE:]:
            seen = {"uid": pause.metadata.uid, "resourceVersion": pause.metadata.resource_version}
            path = f"{GROUP_PATH}/gpuwardpauses/{segment(pause.metadata.name)}"
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": seen}
            await cluster.send(Request(method="DELETE", path=path, body=body))


async def resume(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """End the named pauses; all of them only after telling which these are."""
    known = {pause.metadata.name: pause for pause in await cluster.pauses()}
    now = cluster.now()
    existing = {name: pause for name, pause in known.items() if not pause_over(pause, now)}
    named = set(options.pauses)
    if missing := sorted(named - known.keys()):
        raise CommandError(_unknown(missing, existing))
    ending = sorted(named & existing.keys() if named else existing)
    over = [f"{name} was over already" for name in sorted(named - existing.keys())]
    if not ending:
        return "\n".join(over) or "nothing was paused"
    if not named and not options.yes:
        told = [pause_line(existing[name], now) for name in ending[:_MOST_NAMED]]
        more = [f"and {len(ending) - _MOST_NAMED} more"] if len(ending) > _MOST_NAMED else []
        which = "the only pause" if len(ending) == 1 else f"all {count(len(ending), 'pause')}"
        terminal.ask(f"This ends {which}: {'; '.join([*told, *more])}.")
    lost = [await _end(cluster, existing[name]) for name in ending]
    ended = [
        f"ended {name}, paused by {existing[name].spec.by or '?'}: {existing[name].spec.reason}"
        for name in ending
    ]
    return "\n".join(printable(line) for line in (*ended, *filter(None, lost), *over))


async def _end(cluster: Cluster, pause: PauseView) -> str:
    """Its end is now, by `until` alone, which every release understands; who ended it and when it
    would have ended stay with it. Where that cannot be written it goes, since a pause must end;
    then the answer says why, else "".
    """
    path = f"{GROUP_PATH}/gpuwardpauses/{pause.metadata.name}"
    ended = plain(PauseEnded(by=await cluster.who())) | {"until": pause.spec.until or None}
    try:
        now = format_time(cluster.now())
        await cluster.patch(path, {"spec": {"until": now, "ended": ended}})
    except CommandError as error:
        await cluster.delete(path)
        return f"the record of {pause.metadata.name} could not be kept: {error}"
    return ""


def _unknown(missing: list[str], existing: Mapping[str, PauseView]) -> str:
    """What to say of names that are no pauses, such as a node's: which there are, of what."""
    there = [f"{name} ({pause_scope(pause)})" for name, pause in sorted(existing.items())]
    return f"there is no pause {', '.join(missing)}; in force: {'; '.join(there) or 'none'}"
