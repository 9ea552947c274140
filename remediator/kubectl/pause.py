"""`pause` and `resume`: no new quarantines or evictions, on all nodes or some, until a time."""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.kubectl.node_look import existing_node
from remediator.kubectl.policy_in_force import readable_policy
from remediator.view.people import is_paused, pause_line
from rules.api.health import plain
from rules.api.names import API_VERSION
from rules.api.nodes import FreshNode, NodeView, ObjectMeta, PauseView, QuarantineView
from rules.api.object_name import segment
from rules.api.quarantine import MAX_MESSAGE, Mode, PauseEnded, PauseScope, PauseSpec, Phase
from rules.api.requests import Request
from rules.api.selectors import as_object
from rules.api.sentences import some
from rules.api.timestamps import format_time, parse_time, utc_of
from rules.catalog.reason import Level
from rules.policy.durations import parse_duration
from rules.policy.policy import Policy
from rules.policy.shadow import by_accident, shadow_of
from rules.session.causes import has_human, level_in_effect
from rules.session.history import KEEP_S
from rules.session.observation import (
    is_open,
    opted_out,
    pause_covers,
    pause_over,
    selects_node,
)
from rules.session.owners import working_owner
from rules.text.counted import count
from rules.text.printable import printable

_MOST_NAMED: Final = 6
_KEPT: Final = 50
"""So many pauses that are over are kept at most: every rule about a node passes over them."""
_AT_ONCE: Final = 20
"""How many one command deletes at most."""
_OURS: Final = re.compile(r"pause-[0-9a-f]{8}")
"""What `pause` calls them; those of other names are for whoever made them to delete."""
_ON_THE_WAY: Final = frozenset({Phase.MARKED, Phase.DRAINING})
_NOT_YET: Final = frozenset({"", Phase.PENDING})


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
    policy, wrong = await readable_policy(cluster, options.namespace)
    await _forget_outlived(cluster)
    ends = f"until {utc_of(until)}" if until else "until somebody resumes"
    return "\n".join(
        [
            f"paused {where} as {name}, {ends}; marks stay, releases go on",
            *wrong,
            *_in_shadow(policy),
            *await _stopped(cluster, spec, policy, name),
            f"end it with: kubectl gpuward resume {name}",
        ]
    )


async def _stopped(
    cluster: Cluster, spec: PauseSpec, policy: Policy | None, name: str
) -> list[str]:
    """Whose way out stops with it: drains under way, and what a person asked for, too. Nothing
    stops that stood still already, under another pause than `name` or in Shadow.
    """
    pause, now = PauseView(metadata=ObjectMeta(), spec=spec), cluster.now()
    try:
        nodes = {node.name: node for node in await cluster.nodes()}
        sessions = [one for one in await cluster.sessions() if is_open(one)]
        others = [one for one in await cluster.pauses() if one.metadata.name != name]
    except CommandError as error:
        hidden = (
            "you may not list nodes, gpuquarantines and gpuwardpauses: what it stops is not known"
        )
        return [hidden] if error.forbidden else []
    stopped = [
        f"{one.spec.node_name} ({one.status.phase or Phase.PENDING}{_asked_by(one)})"
        for one in sessions
        if (node := nodes.get(one.spec.node_name)) is not None
        and pause_covers(pause, node, now)
        and _goes_out(one, node, others, policy, now)
    ]
    if not stopped:
        return []
    return [printable(f"it stops, too: {some(stopped, _MOST_NAMED)}")]


def _in_shadow(policy: Policy | None) -> list[str]:
    """What a pause is worth while nothing is touched anyway."""
    if shadow_of(policy) is None or by_accident(policy):  # of that the line above says all
        return []
    return ["the policy is Shadow: no node is taken out anyway; it holds once the policy enforces"]


def _asked_by(session: QuarantineView) -> str:
    people = (cause.by or "a person" for cause in session.spec.causes if cause.source == "Human")
    by = next(people, "")
    return f", asked for by {by}" if by else ""


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
        raise CommandError(await _unknown(cluster, missing, existing))
    ending = sorted(named & existing.keys() if named else existing)
    over = [f"{name} was over already" for name in sorted(named - existing.keys())]
    if not ending:
        return "\n".join(over) or "nothing was paused"
    if not named and not options.yes:
        policy, _wrong = await readable_policy(cluster, options.namespace)
        terminal.ask(await _ended_at_once(cluster, [existing[name] for name in ending], policy))
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


async def _unknown(cluster: Cluster, missing: list[str], existing: Mapping[str, PauseView]) -> str:
    """What to say of names that are no pauses: a node's name leads to the pauses that cover it."""
    if not existing:
        return f"there is no pause {', '.join(missing)}; nothing is paused"
    node = await _meant(cluster, missing)
    if node is None:
        return f"there is no pause {', '.join(missing)}; there are {', '.join(sorted(existing))}"
    now = cluster.now()
    over_it = sorted(n for n, pause in existing.items() if pause_covers(pause, node, now))
    if not over_it:
        return f"{node.name} is a node, and no pause covers it"
    return (
        f"{node.name} is a node, and what covers it may cover others too; end it with: "
        f"kubectl gpuward resume {' '.join(over_it)}"
    )


async def _meant(cluster: Cluster, missing: list[str]) -> FreshNode | None:
    """The node whose name was given for a pause's; None where it is none, or may not be read."""
    try:
        return await cluster.node(missing[0]) if len(missing) == 1 else None
    except CommandError:
        return None


async def _ended_at_once(cluster: Cluster, pauses: list[PauseView], policy: Policy | None) -> str:
    """Which pauses would end together, and what waits for that."""
    now = cluster.now()
    told = [pause_line(pause, now) for pause in pauses[:_MOST_NAMED]]
    more = [f"and {len(pauses) - _MOST_NAMED} more"] if len(pauses) > _MOST_NAMED else []
    which = "the only pause" if len(pauses) == 1 else f"all {count(len(pauses), 'pause')}"
    said = f"This ends {which}: {'; '.join([*told, *more])}."
    try:
        sessions = await cluster.sessions()
    except CommandError:
        return f"{said} Which sessions wait for that is not known."
    waiting = [session for session in sessions if is_open(session) and is_paused(session)]
    return f"{said} {_goes_on(waiting, policy)}"


def _goes_on(waiting: Sequence[QuarantineView], policy: Policy | None) -> str:
    """What happens to those that wait for the end of the pauses: a way out that has begun, or that
    a person asked for, asks for no turn again.
    """
    if not waiting:
        return "No session waits for that now."
    if (words := shadow_of(policy)) is not None:
        names = sorted(session.spec.node_name for session in waiting)
        wait = "waits" if len(names) == 1 else "wait"
        return f"{some(names)} {wait} for that, and nothing is done to them: {words.said}."
    on = [s for s in waiting if s.status.phase in _ON_THE_WAY or has_human(s)]
    afresh = [s for s in waiting if s not in on and s.status.phase in {"", Phase.PENDING}]
    others = [s for s in waiting if s not in on and s not in afresh]
    return " ".join(
        f"{some(sorted(s.spec.node_name for s in found))} {one if len(found) == 1 else many}."
        for found, one, many in (
            (on, "goes on", "go on"),
            (
                afresh,
                "waits for that and is judged afresh, within budget and breaker",
                "wait for that and are judged afresh, within budget and breaker",
            ),
            (others, "is looked at again", "are looked at again"),
        )
        if found
    )


def _goes_out(
    session: QuarantineView,
    node: NodeView,
    pauses: Iterable[PauseView],
    policy: Policy | None,
    now: float,
) -> bool:
    """Whether the node is on its way out of service: its pods leave, or a person asked for it and
    it is quarantined next. Not what waits for its turn, nor what stands still already.

    `pauses` are those in force; `policy` is None where it may not be read.
    """
    if _stands_still(session, node, pauses, policy, now) or session.spec.release is not None:
        return False
    if session.status.phase in _NOT_YET:
        return has_human(session)
    level = level_in_effect(session, session.spec.causes, policy or Policy())
    return session.status.phase in _ON_THE_WAY and level == Level.DRAIN


def _stands_still(
    session: QuarantineView,
    node: NodeView,
    pauses: Iterable[PauseView],
    policy: Policy | None,
    now: float,
) -> bool:
    """Whether nothing more is done to the node as things are, as `rules.session.halts` has it."""
    shadow = Mode.SHADOW in {session.status.mode, policy.mode if policy is not None else ""}
    left_out = policy is not None and not selects_node(policy, node) and not has_human(session)
    return (
        shadow
        or left_out
        or opted_out(node)
        or bool(working_owner(node, None, now))
        or any(pause_covers(pause, node, now) for pause in pauses)
    )
