"""What is known about a pod that somebody asks for: where it is, what we evicted of its name, and
which sessions name it. Pure.

A pod that a StatefulSet or a Job made again has the name of the one that went, so both are told.
Messages of Events are written by whoever may write Events there: escaped where they are printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remediator.view.session_words import leading_reason, phase_words
from remediator.view.text import age, labelled
from rules.api.metadata import ObjectMeta, View
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.timestamps import utc_of
from rules.drain.owners_told import DELETED, EVICTED
from rules.text.printable import printable

SHOWN: Final = 5
"""So many Events, and sessions, are told: the newest."""
_KEPT: Final = "Events are kept an hour by default"
_UNSAID: Final = "no Event of gpuward is about it, and no session names it"


class About(View, frozen=True, kw_only=True):
    """What an Event is about."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventView(View, frozen=True, kw_only=True):
    """An Event as it is told here."""

    metadata: ObjectMeta
    involved_object: About = About()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLook:
    """One pod, by namespace and name, as one person may see it."""

    namespace: str
    name: str
    now: float
    pod: PodView | None
    """None: it is gone, or may not be seen (`unseen` says so)."""
    events: tuple[EventView, ...] = ()
    """Ours, about this pod and earlier ones of its name; the newest first."""
    sessions: tuple[QuarantineView, ...] = ()
    """Those that name it; the newest first."""
    unseen: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.namespace}/{self.name}"

    @property
    def node(self) -> str:
        """Where it is now; "" where it is nowhere."""
        return self.pod.spec.node_name if self.pod is not None else ""


def of_ours(events: Iterable[EventView]) -> list[EventView]:
    """Those that say that we had a pod go, the newest first."""
    ours = [one for one in events if one.reason in {EVICTED, DELETED}]
    return sorted(ours, key=lambda one: one.last_timestamp or "", reverse=True)


def naming(sessions: Iterable[QuarantineView], pod: str) -> list[QuarantineView]:
    """The sessions whose drain names the pod (`NAMESPACE/NAME`), the newest first."""
    found = [session for session in sessions if pod in pods_named(session)]
    return sorted(found, key=lambda one: one.metadata.creation_timestamp or "", reverse=True)


def pods_named(session: QuarantineView) -> frozenset[str]:
    """The pods that the session's drain names, as `NAMESPACE/NAME`: of many, the last."""
    drain = session.status.drain
    if drain is None:
        return frozenset()
    told = (drain.waiting, drain.left_by_policy, drain.left_by_failure)
    blocked = (block.pods for block in drain.blocked)
    return frozenset(drain.recent).union(*(pods.names for pods in (*told, *blocked)))


def pod_lines(look: PodLook) -> list[str]:
    """The answer about the pod itself; what its node says follows where it is on one."""
    lines = [printable(f"{look.called}: {_where(look)}")]
    told = look.events[:SHOWN]
    lines += labelled("evicted", (_event(look, one) for one in told))
    lines += labelled("session", (_session(look, one) for one in look.sessions[:SHOWN]))
    if not told and not look.sessions and look.pod is None:
        lines += labelled("evicted", [f"{_UNSAID}; {_KEPT}"])
    lines += labelled("unseen", look.unseen)
    lines += labelled("more", _more(look))
    return lines


def _where(look: PodLook) -> str:
    if look.pod is None:
        return "there is no such pod any more" if _is_known(look) else "there is no such pod"
    since = age(look.pod.metadata.creation_timestamp, look.now)
    ending = ", being deleted" if look.pod.metadata.deletion_timestamp else ""
    on = f"on node {look.node}" if look.node else "on no node yet"
    return f"a pod {on}, {look.pod.status.phase}{ending}, made {since} ago"


def _is_known(look: PodLook) -> bool:
    return bool(look.events or look.sessions)


def _event(look: PodLook, event: EventView) -> str:
    earlier = look.pod is not None and event.involved_object.uid != look.pod.metadata.uid
    of = ", an earlier pod of this name" if earlier else ""
    at = utc_of(event.last_timestamp, seconds=True) if event.last_timestamp else "?"
    return f"{at} {event.reason}{of}: {event.message}"


def _session(look: PodLook, session: QuarantineView) -> str:
    since = age(session.status.phase_since or session.metadata.creation_timestamp, look.now)
    drain = session.status.drain
    blocked = drain.blocked if drain is not None else ()
    holds = next((one for one in blocked if look.called in one.pods.names), None)
    kept = f"; it cannot leave: {holds.pdb or holds.owner} ({holds.why})" if holds else ""
    return (
        f"{session.name} of node {session.spec.node_name} names it: {phase_words(session)} for "
        f"{since}, {leading_reason(session)}{kept}"
    )


def _more(look: PodLook) -> Iterator[str]:
    nodes = dict.fromkeys(one.spec.node_name for one in look.sessions[:SHOWN])
    for name in nodes:
        if name != look.node:
            yield f"kubectl gpuward why {name}"
    if look.pod is None and not _is_known(look):
        yield "kubectl gpuward history tells which nodes were emptied of late"
    elif look.pod is not None and not look.node:
        yield f"kubectl -n {look.namespace} describe pod {look.name} says what it waits for"


def several_lines(looks: Sequence[PodLook]) -> list[str]:
    """Pods of one name in several namespaces: a line each, and how to ask for one."""
    return [
        printable(f"{look.called}: {_where(look)}; kubectl gpuward why {look.called}")
        for look in looks
    ]


def pod_document(look: PodLook, node: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All of it for programs; `node`: what is known about the node it is on."""
    return {
        "namespace": look.namespace,
        "pod": look.name,
        "exists": look.pod is not None,
        "phase": look.pod.status.phase if look.pod is not None else None,
        "node": look.node or None,
        "events": [
            {
                "reason": one.reason, "at": one.last_timestamp, "message": one.message,
                "podUID": one.involved_object.uid,
            }
            for one in look.events
        ],
        "sessions": [session.name for session in look.sessions],
        "unseen": list(look.unseen),
        "why": node,
    }  # fmt: skip
