"""`quarantine` and `release`: request the quarantine or release of a node.

Both write only the session, never taint or cordon. They ask for confirmation, add to an open
session, and warn if the budget is exceeded.
"""

import argparse
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from remediator.kubectl import in_force, node_state, why_causes
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.kubectl.node_state import NodeLook
from remediator.view import operators
from rules.api import health, names, quarantine_taint, timestamps
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import MAX_MESSAGE, Cause, Mode, Phase, QuarantineSpec
from rules.catalog.reason import Level
from rules.drain.fate import belongs_to_node
from rules.fleet import turns
from rules.fleet.budget import BudgetBook
from rules.policy.policy import Budget, Policy, by_accident
from rules.session import observation
from rules.session.causes import (
    MAX_CAUSES,
    has_human,
    level_in_effect,
    manual_session_name,
    open_causes,
)
from rules.session.observation import FleetSnapshot
from rules.session.repair import ladder
from rules.text import printable

HUMAN_REASON = "Requested"
STAYS: Final = "and the hold stays for the next session"
_TRIES: Final = 5
"""How often a write is tried that others outrun."""


async def quarantine(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Ask for a session on the node, or add a Human cause to the one that is open."""
    node = await node_state.existing_node(cluster, options.node)
    name = node.name
    look = await node_state.look_at(cluster, name, namespace=options.namespace)
    session = look.session
    if session is not None and (asked := session.spec.release) is not None:
        raise CommandError(
            f"{name} is being released, as {asked.by or 'an operator'} requested: a reason added "
            "now would end with the session; try again after the session has ended"
        )
    room = await capacity(cluster, options.namespace)
    warning = room.warning(name)
    waits = await in_force.blocker_of(cluster, options, node)
    if not options.yes:
        pods = await _pods(cluster, name)
        question = of_quarantine(look, node, options.level, pods, waits)
        terminal.ask(f"{question} {warning}".rstrip())
    by = await cluster.who()
    cause = Cause(
        source="Human",
        reason=HUMAN_REASON,
        message=options.reason[:MAX_MESSAGE],
        by=by,
        at=timestamps.format_time(cluster.now()),
        nvlink_domain=options.nvlink_domain or "",
    )
    room.take(name)  # the next one that this command is about finds less room
    if session is not None:
        stops = look.policy is not None and not drains_now(look, session)
        added = await join(cluster, session, cause, options.level, stops=stops)
        return f"{added}{waits}"
    created = await cluster.create(
        "gpuquarantines",
        {
            "apiVersion": names.API_VERSION,
            "kind": "GPUQuarantine",
            "metadata": {"name": manual_session_name(name, secrets.token_hex(4))},
            "spec": health.plain(
                QuarantineSpec(node_name=name, causes=(cause,), level=options.level)
            ),
        },
    )
    opened = created["metadata"]["name"]
    if options.nvlink_domain:
        return f"{name}: session {opened} opened{waits}"
    return (
        f"{name}: session {opened} opened{waits}\n"
        + (f"{warning}\n" if warning else "")
        + f"to follow: kubectl gpuward why {name}"
    )


async def _pods(cluster: Cluster, name: str) -> str:
    """How many pods a drain would evict, "" for none; "some pods" for an operator who may not list
    them.
    """
    try:
        pods = await cluster.pods_on(name)
        found = sum(not (pod.finished or belongs_to_node(pod)) for pod in pods)
        return printable.count(found, "pod") if found else ""
    except CommandError:
        return "some pods"


async def release(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Ask for release now, after naming what is still wrong."""
    name = options.node
    sessions = await cluster.sessions(name)
    session = node_state.open_session(sessions)
    if session is None:
        node = await node_state.existing_node(cluster, name)
        if quarantine_taint.quarantined(node) or any(map(operators.taint_stays, sessions)):
            raise CommandError(
                f"{name}: its session has ended, and gpuward removes taint and cordon when the "
                f"API server allows it; for the reason: kubectl gpuward why {name}"
            )
        cordoned = f"; its cordon is not set by gpuward: kubectl uncordon {name}"
        raise CommandError(
            f"{name} is not quarantined, there is nothing to release"
            f"{cordoned if node.spec.unschedulable else ''}"
        )
    if not options.yes:
        look = await node_state.look_at(cluster, name, namespace=options.namespace)
        terminal.ask(of_release(look, session))
    by = await cluster.who()
    reason = options.reason[:MAX_MESSAGE]
    asked = {"by": by, "reason": reason, "at": timestamps.format_time(cluster.now())}
    await cluster.patch(
        f"{GROUP_PATH}/gpuquarantines/{session.name}", {"spec": {"release": asked}}
    )
    return f"{name}: release of session {session.name} requested by {asked['by']}"


def of_quarantine(look: NodeLook, node: FreshNode, level: str, pods: str, waits: str) -> str:
    """What to agree to. `level` is what is asked for, `pods` how many there are ("" for none),
    `waits` what blocks it.
    """
    session, name = look.session, look.name
    if look.shadow and (session is not None or not by_accident(look.policy)):
        why = look.shadow_texts.state if look.shadow_texts is not None else "the policy is Shadow"
        return f"This does not change {name}: {why}. The session records the reason."
    evicted = f"gpuward evicts {pods} within the budgets" if pods else "it has no pods to evict"
    if level != Level.DRAIN or (look.policy_is_shadow and not by_accident(look.policy)):
        evicted = "nothing is evicted"
    if session is not None:
        phase = session.status.phase or Phase.PENDING
        yours = "" if has_human(session) else ", and an operator has to release it"
        drained = drains_now(look, session) and phase not in {Phase.PENDING, Phase.MARKED}
        text = f"{name} already has an open session ({phase}): your reason is added to it{yours}"
        return f"{text}{'' if drained else f'; {evicted}'}{waits}."
    cordoned = node.spec.unschedulable and not quarantine_taint.quarantined(node)
    stays = "; its cordon, not set by gpuward, stays after the release" if cordoned else ""
    return f"This takes {name} out of service: {evicted}{stays}{waits}."


def drains_now(look: NodeLook, session: QuarantineView) -> bool:
    """Whether the session's pods are evicted as things are."""
    sight = look.sight
    causes = open_causes(session, sight) or session.spec.causes
    return level_in_effect(session, causes, sight.policy) == Level.DRAIN


def of_release(look: NodeLook, session: QuarantineView) -> str:
    """What a release ends, what it takes back, and the faults that are still there."""
    attempt = ladder.under_way(session.status)
    parts = (
        _comes_off(look),
        f"{attempt.step} of {attempt.adapter or 'another controller'} is in progress: the request "
        "is withdrawn, but a step that has started continues."
        if attempt is not None
        else "",
        _still_wrong(look),
        f"The node is held; the release ignores the hold, {STAYS}."
        if operators.HELD in look.people
        else "",
    )
    return " ".join(filter(None, parts))


def _comes_off(look: NodeLook) -> str:
    name, node = look.name, look.node
    if node is None:
        gone = f"Node {name} no longer exists: this only ends its session."
        return f"This returns {name} to service now." if look.node_hidden else gone
    if not quarantine_taint.quarantined(node):
        return f"This ends the session of {name}; gpuward has not tainted or cordoned it."
    stays = quarantine_taint.cordon_stays(node)
    kept = f"; the cordon stays ({stays}), remove it with kubectl uncordon {name}" if stays else ""
    return f"This returns {name} to service now: gpuward removes its taint and cordon{kept}."


def _still_wrong(look: NodeLook) -> str:
    if look.health is None:
        return "Its health is unknown: it has no health status."
    if not (active := why_causes.named_faults(look)):
        return "No fault is active."
    expiry = look.policy.release.cancel_expiry_s if look.policy is not None else None
    lasts = timestamps.span(expiry) if expiry else "the duration of release.cancelExpiry"
    text = f"Still active: {active}. These faults do not open a new session for {lasts}"
    return f"{text} (release.cancelExpiry)." if expiry else f"{text}."


async def join(
    cluster: Cluster, session: QuarantineView, cause: Cause, level: str, *, stops: bool
) -> str:
    """Add the cause to the open session. `stops`: the session evicts nothing as things are, which
    a request of no more than Cordon must not change.

    The patch replaces the list of causes, so it must be the newest: the remediator writes to a
    session that opens every few hundred milliseconds.
    """
    for tries_left in reversed(range(_TRIES)):
        if len(session.spec.causes) >= MAX_CAUSES:
            raise CommandError(
                f"session {session.name} holds {MAX_CAUSES} causes already, no more fit"
            )
        causes = [health.plain(one) for one in (*session.spec.causes, cause)]
        deeper = level == "Drain" and (stops or session.spec.level != "Drain")
        body = {
            "metadata": {"resourceVersion": session.metadata.resource_version},
            "spec": {"causes": causes, **({"level": level} if deeper or stops else {})},
        }
        try:
            await cluster.patch(f"{GROUP_PATH}/gpuquarantines/{session.name}", body)
            break
        except CommandError as error:
            if not error.outrun or not tries_left:
                raise
        session = await _open_still(cluster, session)
    return (
        f"{session.spec.node_name}: your reason was added to open session {session.name}"
        f"{'; its pods will be evicted, too' if deeper else ''}"
    )


async def _open_still(cluster: Cluster, session: QuarantineView) -> QuarantineView:
    newest = await cluster.session(session.name)
    if newest is None or not observation.is_open(newest) or newest.spec.release is not None:
        raise CommandError(
            f"session {session.name} has just ended or is being released: a reason added now "
            "would end with it; try again"
        )
    if _asked_of(newest) != _asked_of(session):
        raise CommandError(
            f"another client changed session {session.name} at the same time; check it with "
            f"kubectl get gpuquarantine {session.name} -o yaml, then try again"
        )
    return newest


def _asked_of(session: QuarantineView) -> tuple[object, ...]:
    """What the operator confirmed: level, hold, and causes of other operators."""
    spec = session.spec
    return spec.level, spec.hold, [cause for cause in spec.causes if cause.source == "Human"]


class Capacity(NamedTuple):
    """The nodes that the policy selects and how many of them are unavailable, those that one
    command asks for included.
    """

    selected: Mapping[str, NodeView]
    book: BudgetBook
    unknown: str = ""
    """Why nobody can tell; "" where it is known."""

    def warning(self, node: str) -> str:
        """A sentence where the budget is exceeded, or cannot be reported; "" where there is
        room.
        """
        if self.unknown:
            return f"Whether the budget has room is not known: {self.unknown}."
        if not (over := turns.over_budget(node, self.selected, self.book)):
            return ""
        return (
            f"It exceeds the budget ({over}), which an operator may do. Automatic quarantines "
            "wait until nodes return."
        )

    def take(self, node: str) -> None:
        """Count the node as unavailable."""
        if node in self.selected:
            self.book.take(self.selected[node])


async def capacity(cluster: Cluster, namespace: str) -> Capacity:
    """Return the room that the budget has before the first node of a command."""
    return await cluster.once("capacity", lambda: _capacity(cluster, namespace))


async def _capacity(cluster: Cluster, namespace: str) -> Capacity:
    found = await in_force.policy_in_force(cluster, namespace)
    policy = found.policy or Policy()
    nothing = BudgetBook(Budget())
    if found.policy is None and found.doubt:
        return Capacity({}, nothing, found.doubt)
    if found.policy is not None and Mode.ENFORCE not in policy.modes:
        return Capacity({}, nothing)  # what is only played makes no node unavailable
    try:
        nodes = await cluster.nodes(policy.node_selector)
        sessions = await cluster.sessions()
    except CommandError as error:
        return Capacity({}, nothing, str(error))
    snapshot = FleetSnapshot(
        now=cluster.now(),
        policy=policy,
        nodes={one.name: one for one in nodes},
        quarantines={one.name: one for one in sessions},
    )
    return Capacity(*turns.budget_book(snapshot))
