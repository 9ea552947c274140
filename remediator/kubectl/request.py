"""What a request to quarantine a node changes: an open session that it joins, and the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.policy_in_force import policy_of
from rules.api.health import plain
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Cause, Mode
from rules.fleet.budget import BudgetBook
from rules.fleet.turns import budget_book, over_budget
from rules.policy.policy import Budget, Policy
from rules.session.causes import MAX_CAUSES
from rules.session.observation import is_open
from rules.session.snapshot import FleetSnapshot

_TRIES: Final = 5
"""How often a write is tried that others outrun."""


async def join(
    cluster: Cluster,
    session: QuarantineView,
    cause: Cause,
    level: str,
    *,
    stops: bool,
    at_once: bool = True,
) -> str:
    """Add the cause; `stops`: the session evicts nothing as things are, which a person's word of
    no more than Cordon must not change; `at_once`: nothing stands in the way of what is asked.
    """
    deeper = await _added(cluster, session, cause, level, stops=stops)
    drains = f"; its pods are {'' if at_once else 'to be '}evicted, too" if deeper else ""
    return (
        f"{session.spec.node_name}: your reason was added to session {session.name}, which is "
        f"open already{drains}"
    )


async def _added(
    cluster: Cluster, session: QuarantineView, cause: Cause, level: str, *, stops: bool
) -> bool:
    """Write the cause; whether the level became deeper by it.

    The list of causes is written whole, so it must be the newest: the remediator writes to a
    session that opens every few hundred milliseconds, and a person is not to be told of that.
    """
    for last in (*[False] * (_TRIES - 1), True):
        if len(session.spec.causes) >= MAX_CAUSES:
            raise CommandError(
                f"session {session.name} holds {MAX_CAUSES} causes already, no more fit"
            )
        causes = [plain(one) for one in (*session.spec.causes, cause)]
        deeper = level == "Drain" and (stops or session.spec.level != "Drain")
        body = {
            "metadata": {"resourceVersion": session.metadata.resource_version},
            "spec": {"causes": causes, **({"level": level} if deeper or stops else {})},
        }
        try:
            await cluster.patch(f"{GROUP_PATH}/gpuquarantines/{session.name}", body)
        except CommandError as error:
            if not error.outrun or last:
                raise
        else:
            return deeper
        session = await _open_still(cluster, session)
    raise AssertionError("the last try ends it")


async def _open_still(cluster: Cluster, session: QuarantineView) -> QuarantineView:
    newest = await cluster.session(session.name)
    if newest is None or not is_open(newest) or newest.spec.release is not None:
        raise CommandError(
            f"session {session.name} ended, or is being given back, at this very moment: what is "
            "added to it now ends with it; ask again"
        )
    if _asked_of(newest) != _asked_of(session):
        raise CommandError(
            f"somebody else asked something of session {session.name} at this very moment: "
            f"kubectl get gpuquarantine {session.name} -o yaml says what; ask again"
        )
    return newest


def _asked_of(session: QuarantineView) -> tuple[object, ...]:
    """What the asker was shown and said yes to: how far it goes, and what other people want."""
    spec = session.spec
    return spec.level, spec.hold, [cause for cause in spec.causes if cause.source == "Human"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many nodes are unavailable, those that one command asks for included."""

    unknown: str = ""
    """Why nobody can tell; "" where it is known."""
    selected: Mapping[str, NodeView] = field(default_factory=dict)
    book: BudgetBook = field(default_factory=lambda: BudgetBook(Budget()))

    def warning(self, node: str) -> str:
        """A sentence where the budget is exceeded, or cannot be told; "" where there is room."""
        if self.unknown:
            return f"Whether the budget has room is not known: {self.unknown}."
        over = over_budget(node, self.selected, self.book)
        if not over:
            return ""
        return (
            f"It exceeds the budget ({over}): a person may, and detectors wait until nodes are "
            "back."
        )

    def take(self, node: str) -> None:
        """Count a node that was asked for: the next one finds that much less room."""
        if node in self.selected:
            self.book.take(self.selected[node])


async def capacity(cluster: Cluster, namespace: str) -> Capacity:
    """Read once, for all nodes that a command is about."""
    return await cluster.once("capacity", lambda: _read(cluster, namespace))


async def _read(cluster: Cluster, namespace: str) -> Capacity:
    try:
        found = await policy_of(cluster, namespace)
        policy = found or Policy()
        nodes = await cluster.nodes(policy.node_selector)
        sessions = await cluster.sessions()
    except CommandError as error:
        return Capacity(unknown=str(error))
    if found is not None and found.mode == Mode.SHADOW:
        return Capacity()  # what is only played makes no node unavailable
    snapshot = FleetSnapshot(
        now=cluster.now(),
        policy=policy,
        nodes={one.name: one for one in nodes},
        quarantines={one.name: one for one in sessions},
    )
    selected, book = budget_book(snapshot)
    return Capacity(selected=selected, book=book)
