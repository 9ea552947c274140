"""What to write to the API server, decided from what is wanted and what is there.

Pure: the publishing thread (`agent.publish.publish`) feeds it objects and the time and sends what
it answers. Two lanes, the node's status and its GPUNodeHealth, fail and retry apart from each
other; within a lane there is one write at a time, always of the newest verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from agent.publish.objects import HealthObject, NodeConditionSeen, NodeObject, Owner
from rules.api.health import plain
from rules.api.names import API_VERSION
from rules.api.timestamps import backoff_s, format_time
from rules.judge.health_object import NOTED_S, RIDE_ALONG_S, Difference, Publication, differs
from rules.judge.health_object import PublishedCondition as OurCondition

URGENT_SPACING_S: Final = 0.2
"""Writes of one lane are this far apart, so that a flapping sense cannot flood the API server."""
REPAIR_SPACING_S: Final = 10.0
"""How often somebody else's edit of our words is put right, so that two writers never race."""
REASSERT_EVERY_S: Final = 300.0
"""Everything is said again this often; the server does not store what changes nothing."""
REASSERT_JITTER: Final = 0.2
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 30.0
MISSING_RETRY_S: Final = 40.0
"""A missing CRD or node is waited for patiently: it comes with an installation step."""
EXISTS_EVERY_S: Final = 40.0
"""How often a GPUNodeHealth that was published is looked for, in the server's cache: a definition
that is replaced takes all of them along, and a node without one is a node without data."""
_WITHIN_S: Final = {Difference.SOON: NOTED_S, Difference.RIDES_ALONG: RIDE_ALONG_S}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict as it should stand on the API server; `serial` counts them."""

    serial: int
    publication: Publication


class PublishLane(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of one object's writes, in monotonic seconds."""

    not_before: float = 0.0
    wrote_at: float = 0.0
    reassert_at: float = 0.0
    failures: int = 0

    def accepted(self, now: float, luck: float) -> PublishLane:
        """After a write that the server took; `luck` is uniform in 0 to 1."""
        spread = 1 + REASSERT_JITTER * (2 * luck - 1)
        return PublishLane(
            not_before=now + URGENT_SPACING_S,
            wrote_at=now,
            reassert_at=now + REASSERT_EVERY_S * spread,
        )

    def refused(self, now: float, luck: float, *, at_least_s: float = 0.0) -> PublishLane:
        """After a failure: wait twice as long as the last time, jittered, or as told."""
        backoff = backoff_s(self.failures + 1, FIRST_RETRY_S, LONGEST_RETRY_S)
        wait_s = max(at_least_s, backoff) * (0.5 + luck / 2)
        return replace(self, not_before=now + wait_s, failures=self.failures + 1)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do before `until` (monotonic seconds); `settled` when the verdict stands."""

    until: float
    settled: bool


class PatchNode(msgspec.Struct, frozen=True, kw_only=True):
    """Send `patch` to the node's status."""

    patch: Mapping[str, Any]


class CreateHealth(msgspec.Struct, frozen=True, kw_only=True):
    """There is no GPUNodeHealth: create it."""

    body: Mapping[str, Any]


class AdoptHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUNodeHealth belongs to a node that is gone: make ours its owner."""

    patch: Mapping[str, Any]


class PutHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the status."""

    body: Mapping[str, Any]


def node_step(
    wanted: Publication, node: NodeObject, lane: PublishLane, now: float, wall: float
) -> PatchNode | Wait:
    """The next write to the node's status, or how long there is none."""
    different = _differs(wanted, node)
    due = max(lane.not_before, now if different else lane.reassert_at)
    if due > now:
        return Wait(until=due, settled=not different)
    return PatchNode(patch=_node_patch(wanted, node, wall))


def health_step(
    wanted: Publication,
    health: HealthObject | None,
    accepted: Publication | None,
    node: NodeObject,
    lane: PublishLane,
    now: float,
) -> CreateHealth | AdoptHealth | PutHealth | Wait:
    """The next write to the node's GPUNodeHealth; `health` None says that there is none.

    `accepted` is what this process wrote last: what an old CRD drops from it must not look like
    a difference for ever.
    """
    difference = differs(accepted, wanted)
    settled = health is not None and difference is not Difference.NOW
    due = lane.reassert_at if settled else now
    if settled and difference in _WITHIN_S:
        due = min(due, lane.wrote_at + _WITHIN_S[difference])
    due = max(due, lane.not_before)
    if due > now:
        return Wait(until=due, settled=settled)
    owner = Owner(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)
    if health is None:
        return CreateHealth(body=_health_body(node.metadata.name, owner))
    if health.metadata.owner_references != (owner,):
        version = health.metadata.resource_version
        return AdoptHealth(
            patch={"metadata": {"resourceVersion": version, "ownerReferences": [owner]}}
        )
    body = _health_body(node.metadata.name, owner)
    body["metadata"]["resourceVersion"] = health.metadata.resource_version
    body["status"] = plain(wanted.status)
    return PutHealth(body=body)


def _differs(wanted: Publication, node: NodeObject) -> bool:
    there = {condition.type: condition for condition in node.status.conditions or ()}
    for condition in wanted.conditions:
        found = there.get(condition.type)
        if found is None or _words(found) != _words(condition):
            return True
    labels = node.metadata.labels
    return any(labels.get(name) != value for name, value in wanted.labels.items())


def _words(condition: NodeConditionSeen | OurCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _node_patch(wanted: Publication, node: NodeObject, wall: float) -> dict[str, Any]:
    """Conditions and labels in one patch; identical as long as the words are.

    Times are carried over from the node: the transition's while the status is the same, the
    heartbeat's while nothing is different. A heartbeat of its own would be a stored write each.
    """
    there = {condition.type: condition for condition in node.status.conditions or ()}
    now = format_time(wall)
    conditions = []
    for condition in wanted.conditions:
        found = there.get(condition.type)
        same_status = found is not None and found.status == condition.status
        same_words = found is not None and _words(found) == _words(condition)
        conditions.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": (found.last_transition_time if found and same_status else "")
                or now,
                "lastHeartbeatTime": (found.last_heartbeat_time if found and same_words else "")
                or now,
            }
        )
    return {"metadata": {"labels": dict(wanted.labels)}, "status": {"conditions": conditions}}


def _health_body(name: str, owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNodeHealth",
        "metadata": {"name": name, "ownerReferences": [owner]},
    }
