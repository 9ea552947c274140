"""A person's word added to a session that is open already."""

from __future__ import annotations

from typing import Final

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from rules.api.health import plain
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause
from rules.session.causes import MAX_CAUSES
from rules.session.observation import is_open

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
            f"kubectl gpuward show {session.name} says what; ask again"
        )
    return newest


def _asked_of(session: QuarantineView) -> tuple[object, ...]:
    """What the asker was shown and said yes to: how far it goes, and what other people want."""
    spec = session.spec
    return spec.level, spec.hold, [cause for cause in spec.causes if cause.source == "Human"]
