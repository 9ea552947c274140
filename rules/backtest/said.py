"""What others said on Nodes (`policy.external`), as sessions remember it, and said again in a
replay.

A policy hears of it only where it has a trigger for it: the same one by its id, else one that
makes the same reason. Under any other policy nobody listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause
from rules.api.timestamps import format_time, parse_time
from rules.backtest.faults import closed_in
from rules.policy.external import ConditionMatch, ExternalTrigger, KeyMatch, TaintMatch
from rules.policy.policy import Policy
from rules.session.external import SOURCE, trigger_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSaid:
    """One thing that others said on a node; `ended` None: it stands there still."""

    node: str
    node_uid: str
    cause: Cause
    began: float
    ended: float | None

    @property
    def key(self) -> str:
        """What it is known by."""
        return f"{self.node}/{self.cause.incident}"


def said_of(sessions: Iterable[QuarantineView]) -> tuple[PastSaid, ...]:
    """Each once per session that rests on it, oldest first."""
    found = [said for session in sessions for said in _of(session)]
    return tuple(sorted(found, key=lambda said: (said.began, said.key)))


def _of(session: QuarantineView) -> Iterator[PastSaid]:
    kept: Any = session.status.evidence.get("incidents")
    seen = {
        str(one.get("id")): parse_time(str(one.get("firstSeen", "")))
        for one in (kept if isinstance(kept, list) else ())
        if isinstance(one, dict)
    }
    for cause in session.spec.causes:
        if cause.source == SOURCE:
            began = seen.get(cause.incident)
            yield PastSaid(
                node=session.spec.node_name,
                node_uid=session.spec.node_uid,
                cause=cause,
                began=session.metadata.created_at if began is None else began,
                ended=closed_in(session),
            )


def heard_by(said: PastSaid, policy: Policy) -> ExternalTrigger | None:
    """The trigger of the policy that looks for it; None where it has none."""
    same = trigger_of(said.cause, said.node_uid, policy)
    alike = (t for t in policy.external if t.reason == said.cause.reason)
    return same or next(alike, None)


def with_said(
    raw: Mapping[str, Any], trigger: ExternalTrigger, at: float, *, stands: bool
) -> dict[str, Any]:
    """The Node's JSON with what the trigger looks for put on it, or taken off."""
    kind, match = trigger.match
    meta, spec = dict(raw.get("metadata") or {}), dict(raw.get("spec") or {})
    status = dict(raw.get("status") or {})
    if isinstance(match, ConditionMatch):
        others = [c for c in status.get("conditions", ()) if c.get("type") != match.type]
        other = "False" if match.status == "True" else "True"
        word = match.status if stands else other
        mine = {"type": match.type, "status": word, "lastTransitionTime": format_time(at)}
        status["conditions"] = [*others, mine]
    elif isinstance(match, KeyMatch):
        where = "annotations" if kind == "annotation" else "labels"
        known = {k: v for k, v in (meta.get(where) or {}).items() if k != match.key}
        value = match.value if match.value is not None else "true"
        if match.before_s is not None:
            value = f"{at + match.before_s:.0f}"
        meta[where] = {**known, match.key: value} if stands else known
    elif isinstance(match, TaintMatch):
        known_taints = [t for t in spec.get("taints", ()) if t.get("key") != match.key]
        mine = {
            "key": match.key,
            "value": match.value or "",
            "effect": match.effect or "NoSchedule",
            "timeAdded": format_time(at),
        }
        spec["taints"] = [*known_taints, mine] if stands else known_taints
    return {**raw, "metadata": meta, "spec": spec, "status": status}
