"""The commands that steer: repair, repaired, hold and unhold of one node; pause and resume, which
stop new quarantines and evictions on all nodes or some, until a time.

Each states who acted and why, and touches one object or two. They never touch a node's taints or
cordon themselves: they tell the remediator, which owns the taint and cordon and respects budget
and PodDisruptionBudgets.
"""

import argparse
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Final

from remediator.kubectl import in_force, node_state, quarantine, why_causes
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.view import operators
from rules.api import health, names, selectors, timestamps
from rules.api.metadata import ObjectMeta
from rules.api.nodes import PauseView, QuarantineView
from rules.api.quarantine import (
    MAX_MESSAGE,
    Mode,
    PauseEnded,
    PauseScope,
    PauseSpec,
    Phase,
    RepairRequest,
)
from rules.api.timestamps import TimeFormat
from rules.policy import section
from rules.policy.policy import Policy, by_accident
from rules.session import exclusions
from rules.session.repair import ladder, readiness
from rules.text.printable import count, printable


async def approve(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Let the proposed repair step go, or another one that the policy has an adapter for."""
    name = options.node
    session = node_state.open_session(await cluster.sessions(name))
    if session is None:
        raise CommandError(f"{name} is not quarantined, there is nothing to repair")
    if session.status.mode == Mode.SHADOW:
        raise CommandError(
            f"the session of {name} is in Shadow mode: gpuward does not repair the node"
        )
    if (given := session.spec.release) is not None:
        by = given.by or "an operator"
        raise CommandError(
            f"{name} is being released, as {by} requested: gpuward does not repair it"
        )
    if operators.faults_over(session, await cluster.health(name)):
        raise CommandError(
            f"the faults of {name} are closed, so there is nothing to repair; to return it to "
            f'service: kubectl gpuward release {name} --reason "..."'
        )
    step = options.step or operators.proposed_step(session.status.conditions)
    if not step:
        phase = session.status.phase or "new"
        early = phase in {"new", Phase.PENDING, Phase.MARKED, Phase.DRAINING}
        then = "repair starts after the drain" if early else "name one with --step"
        raise CommandError(f"no repair step is proposed for {name} (phase {phase}); {then}")
    if any(attempt.step == step and attempt.counts for attempt in session.status.repair):
        raise CommandError(
            f"{step} was already tried in session {session.name}, and a session tries each step "
            "once; name another step with --step, or repair the node by hand"
        )
    policy = (await in_force.policy_in_force(cluster, options.namespace)).policy
    node = await cluster.readable(cluster.node(name))
    policy = policy.of(node.labels) if policy is not None and node is not None else policy
    if policy is not None and not by_accident(policy):  # of that one nobody knows what it repairs
        if policy.repair.mode == "Off":
            raise CommandError("the policy switches repair off (repair.mode is Off)")
        if step not in policy.repair.steps:
            known = ", ".join(sorted(policy.repair.steps))
            raise CommandError(f"the policy has no adapter for {step}, only for {known}")
        why = ladder.unfit(session, await cluster.health(name), policy).get(step)
        if why is not None:
            raise CommandError(f"{step} {why}; name another step with --step")
    begins = repair_begins(session, step)
    waits = await in_force.blocker_of(cluster, options, node) if node is not None else ""
    held = session.spec.hold or (node is not None and names.ANNOTATION_HOLD in node.annotations)
    if held and not waits:
        waits = f"; the node is held, and repair waits until: kubectl gpuward unhold {name}"
    terminal.ask(f"{name}: {step} starts {begins}{waits}.")
    by = await cluster.who()
    reason = (options.reason or "")[:MAX_MESSAGE]
    request = RepairRequest(step=step, by=by, at=timestamps.format_time(cluster.now()))
    await cluster.patch(
        f"{GROUP_PATH}/gpuquarantines/{session.name}",
        # Without a reason of its own a request must not keep that of the one before.
        {"spec": {"repair": health.plain(request) | {"reason": reason or None}}},
    )
    return (
        f"{name}: {step} approved by {by}, starts {begins}{waits}\n"
        f"to follow: kubectl gpuward why {name}"
    )


def repair_begins(session: QuarantineView, step: str) -> str:
    """Return when an approved step starts, a clause."""
    phase = session.status.phase
    empty = "when no process uses a GPU of the node"
    attempt = ladder.under_way(session.status)
    if attempt is not None and attempt.step != step:
        return f"if the current step {attempt.step} fails, {empty}"
    if phase == Phase.VALIDATING:
        return f"if a cause of the session returns (all are closed), {empty}"
    if phase in readiness.NOT_DRAINED or not phase:
        return "after the drain, when no process uses a GPU of the node"
    return empty


async def report_replaced(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Annotate the node for its agent, and return the faults that the agent still reports."""
    name = options.node
    await node_state.existing_node(cluster, name)
    # Read before the write, so that a failure means that nothing was written.
    look = await node_state.look_at(cluster, name, namespace=options.namespace)
    value = f"{timestamps.format_time(cluster.now())} {options.reason} ({await cluster.who()})"
    await _annotate(cluster, name, names.ANNOTATION_REPAIRED, value[:MAX_MESSAGE])
    if look.health is None:
        return f"{name}: replacement recorded; the node has no health status yet"
    if not (still := why_causes.named_faults(look)):
        return f"{name}: replacement recorded; the agent detects no fault now"
    return (
        f"{name}: replacement recorded; the agent closes {printable(still)}, unless it still "
        f"detects the fault\nto follow: kubectl gpuward why {name}"
    )


async def hold(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Prevent the release of the node, whatever its health status is."""
    name = options.node
    node = await node_state.existing_node(cluster, name)
    session = node_state.open_session(await cluster.sessions(name))
    note = f"{options.reason} ({await cluster.who()})"[:MAX_MESSAGE]
    # The annotation also carries who holds and why; the session's flag survives its removal.
    await _annotate(cluster, name, names.ANNOTATION_HOLD, note)
    before = node.annotations.get(names.ANNOTATION_HOLD, "")
    instead = f"\nreplaces the hold: {printable(before)}" if before else ""
    if session is None:
        return f"{name}: held; no session is open, the hold applies to the next one{instead}"
    with _second_write("the node is held"):
        await _flag(cluster, session, hold=True)
    return f"{name}: session {session.name} held; {_meanwhile(session)}{instead}"


def _meanwhile(session: QuarantineView) -> str:
    """What the hold changes for the session, a clause: nothing where a release was requested."""
    if (asked := session.spec.release) is not None:
        who = printable(asked.by or "an operator")
        return f"{who} requested its release, which ignores the hold, {quarantine.STAYS}"
    return "a drain continues, the node is not released"


async def unhold(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Remove the hold from the node and its session."""
    name = options.node
    node = await node_state.existing_node(cluster, name)
    session = node_state.open_session(await cluster.sessions(name))
    annotated = names.ANNOTATION_HOLD in node.annotations
    flagged = session is not None and session.spec.hold
    if not annotated and not flagged:
        return f"{name}: was not held"
    if annotated:
        await _annotate(cluster, name, names.ANNOTATION_HOLD, None)
    if session is not None and flagged:
        with _second_write("the hold of the node was removed") if annotated else nullcontext():
            await _flag(cluster, session, hold=False)
    return f"{name}: hold removed"


@contextmanager
def _second_write(done: str) -> Iterator[None]:
    """A command that writes twice and fails between must not look as if it had done nothing."""
    try:
        yield
    except CommandError as error:
        raise CommandError(
            f"{done}, but its session could not be updated: {error}; run the command again",
            error.exit_code,
            forbidden=error.forbidden,
        ) from error


async def _flag(cluster: Cluster, session: QuarantineView, *, hold: bool) -> None:
    await cluster.patch(f"{GROUP_PATH}/gpuquarantines/{session.name}", {"spec": {"hold": hold}})


async def _annotate(cluster: Cluster, node: str, key: str, value: str | None) -> None:
    await cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {key: value}}})


_MOST_NAMED: Final = 6


async def pause(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Create a GPUWardPause."""
    for node in options.nodes:
        await node_state.existing_node(cluster, node)
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
            "apiVersion": names.API_VERSION,
            "kind": "GPUWardPause",
            "metadata": {"name": name},
            "spec": health.plain(spec),
        },
    )
    where = await _covered(cluster, options, spec)
    policy = await in_force.policy_in_force(cluster, options.namespace)
    ends = f"until {timestamps.utc_of(until)}" if until else "until resumed"
    return "\n".join(
        [
            f"paused {where} as {name}, {ends}; taints and cordons stay, releases continue",
            *filter(None, [policy.doubt or _in_shadow(policy.policy)]),
            f"to resume: kubectl gpuward resume {name}",
        ]
    )


def _in_shadow(policy: Policy | None) -> str:
    """What a pause is worth while nothing is touched anyway."""
    if policy is None or Mode.ENFORCE in policy.modes:
        return ""
    return "the policy is Shadow: the pause has an effect only in mode Enforce"


async def _covered(cluster: Cluster, options: argparse.Namespace, spec: PauseSpec) -> str:
    if options.nodes:
        return f"on {', '.join(sorted(options.nodes))}"
    if not options.selector:
        return "on every node"
    nodes = await cluster.nodes()
    pause = PauseView(metadata=ObjectMeta(), spec=spec)
    covered = sum(exclusions.pause_covers(pause, node, cluster.now()) for node in nodes)
    return f"on {covered} of {len(nodes)} nodes ({options.selector})"


def _scope(nodes: list[str], labels: str | None) -> PauseScope:
    if nodes:
        return PauseScope(nodes=tuple(sorted(set(nodes))))
    if not labels:
        return PauseScope(all=True)
    return PauseScope(node_selector=selectors.as_object(labels))


def _until(text: str | None, now: float) -> str:
    """A moment (RFC 3339, or as the commands print it) or the end of a duration such as 2h;
    CommandError for what is neither, and for one that is over: a mistake, not a pause.
    """
    if not text:
        return ""
    printed = text.endswith(" UTC")
    at = timestamps.parse_time(f"{text.removesuffix(' UTC')}Z" if printed else text)
    if at is None:
        try:
            at = now + section.parse_duration(text)
        except ValueError as error:
            known = "neither a time (2026-01-31T12:00:00Z) nor a duration (2h, 1h30m)"
            raise CommandError(f"--until {text!r:.80} is {known}", exit_code=64) from error
    if at <= now:
        raise CommandError(f"--until {text} is in the past; give a later time", exit_code=64)
    return timestamps.format_time(at)


async def resume(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """End the named pauses, or all of them after a confirmation that lists them."""
    known = {pause.metadata.name: pause for pause in await cluster.pauses()}
    now = cluster.now()
    existing = {
        name: pause for name, pause in known.items() if not exclusions.pause_over(pause, now)
    }
    named = set(options.pauses)
    if missing := sorted(named - known.keys()):
        raise CommandError(_unknown(missing, existing))
    ending = sorted(named & existing.keys() if named else existing)
    over = [f"{name} had already ended" for name in sorted(named - existing.keys())]
    if not ending:
        return "\n".join(over) or "no pause is active"
    if not named and not options.yes:
        listed = [
            operators.pause_line(existing[name], TimeFormat(now)) for name in ending[:_MOST_NAMED]
        ]
        more = [f"and {len(ending) - _MOST_NAMED} more"] if len(ending) > _MOST_NAMED else []
        which = "the only pause" if len(ending) == 1 else f"all {count(len(ending), 'pause')}"
        terminal.ask(f"This ends {which}: {'; '.join([*listed, *more])}.")
    lost = [await _end(cluster, existing[name]) for name in ending]
    ended = [
        f"ended {name}, paused by {existing[name].spec.by or '?'}: {existing[name].spec.reason}"
        for name in ending
    ]
    return "\n".join(printable(line) for line in (*ended, *filter(None, lost), *over))


async def _end(cluster: Cluster, pause: PauseView) -> str:
    """Its end is now, by `until` alone, which every release understands; who ended it and when it
    would have ended stay with it. Where that cannot be written it goes, since a pause must end;
    then the error is returned, else "".
    """
    path = f"{GROUP_PATH}/gpuwardpauses/{pause.metadata.name}"
    ended = health.plain(PauseEnded(by=await cluster.who())) | {"until": pause.spec.until or None}
    try:
        now = timestamps.format_time(cluster.now())
        await cluster.patch(path, {"spec": {"until": now, "ended": ended}})
    except CommandError as error:
        await cluster.delete(path)
        return f"{pause.metadata.name} was deleted, because its end could not be recorded: {error}"
    return ""


def _unknown(missing: list[str], existing: Mapping[str, PauseView]) -> str:
    """Return the error for names that are not pauses, with the active pauses."""
    there = [
        f"{name} ({operators.pause_scope(pause)})" for name, pause in sorted(existing.items())
    ]
    return f"no pause named {', '.join(missing)}; active pauses: {'; '.join(there) or 'none'}"
