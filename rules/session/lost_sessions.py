"""Create sessions again whose objects vanished: open, ended by a person, or deleted by one.

Called by `rules.session.absent`, which decides when. A deleted definition, a restored backup and
the deletion of many sessions are no request; the deletion of one session ends its quarantine.
"""

from __future__ import annotations

import msgspec

from rules.api.health import IncidentStatus
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import QuarantineSpec, ReleaseRequest
from rules.api.timestamps import format_time
from rules.api.writes import CreateSession, Decision, EmitEvent
from rules.catalog.reason import level_rank
from rules.policy.policy import Policy
from rules.session.causes import DELETED_BY, actionable, appended, cause_of, level_of
from rules.session.observation import NodeObservation
from rules.session.override import overridden_until, override_ends_at

STEP_CREATE_AGAIN = "CreateAgain"
"""A session that nobody deleted is created again."""


def named(seen: NodeObservation, name: str) -> bool:
    """Whether the node has a session of this name."""
    return any(session.name == name for session in seen.siblings)


def acting(seen: NodeObservation, policy: Policy) -> tuple[IncidentStatus, ...]:
    """What asks for more than a report, by the last verdict there is."""
    return actionable(seen.health, seen.external.incidents, policy)


def asks_for_a_session(seen: NodeObservation, policy: Policy, now: float) -> bool:
    """Whether a fault is active that no person overrode."""
    faults = acting(seen, policy)
    overridden = overridden_until(faults, seen.siblings, policy, now)
    return any(i.id not in overridden for i in faults)


def ended_by_people(
    seen: NodeObservation, now: float, policy: Policy
) -> tuple[QuarantineView, ...]:
    """Sessions of this machine that people ended and that are gone, while their request counts."""
    uids = {"", seen.node.uid} if seen.node is not None else set()
    return tuple(
        each
        for each in seen.vanished.ended
        if each.spec.node_uid in uids
        and not named(seen, each.name)
        and override_ends_at(each, policy) > now
    )


def opened_again(
    name: str,
    spec: QuarantineSpec | None,
    node: NodeView,
    seen: NodeObservation,
    policy: Policy,
    now: float,
) -> Decision:
    """Open a session again that nobody deleted; its taint and cordon are on the node.

    `spec` None: nobody knows what it was, it rests on what holds now.
    """
    faults = acting(seen, policy)
    causes = tuple(cause_of(incident) for incident in faults)
    if spec is None:
        level = max((level_of(i, policy) for i in faults), key=level_rank)
        spec = QuarantineSpec(
            node_name=node.name, node_uid=node.uid, boot_id=node.boot_id, level=level
        )
    then = (
        "The taint and cordon stay and the session is opened again; to end it: kubectl gpuward "
        f"release {node.name}."
    )
    spec = msgspec.structs.replace(spec, causes=appended(spec.causes, causes))
    return _created(name, spec, "", then, node, seen, now)


def ended_again(
    gone: QuarantineView, node: NodeView, seen: NodeObservation, now: float
) -> Decision:
    """Create a session again that a person ended, so that their request goes on to cover its
    faults.
    """
    then = (
        "It is created again and released, so the node stays in service; to quarantine it: "
        f"kubectl gpuward quarantine {node.name}."
    )
    asked = gone.spec.release or ReleaseRequest(reason="a person ended it before it was lost")
    spec = msgspec.structs.replace(gone.spec, release=asked)
    return _created(gone.name, spec, ", which a person ended,", then, node, seen, now)


def _created(
    name: str,
    spec: QuarantineSpec,
    which: str,
    then: str,
    node: NodeView,
    seen: NodeObservation,
    now: float,
) -> Decision:
    why = seen.vanished.lost or "it was deleted while no gpuward-remediator led"
    message = (
        f"Session {name}{which} is gone and nobody is known to have asked for that: {why}. {then}"
    )
    event = EmitEvent(
        node=node.name,
        node_uid=node.uid,
        kind="Warning",
        reason="QuarantineSessionLost",
        message=message[:1024],
        at=now,
        key=f"{node.uid}/{name}/{format_time(now)[:13]}/SessionLost",
    )
    return Decision(
        step=STEP_CREATE_AGAIN,
        because=why,
        writes=(CreateSession(name=name, spec=spec), event),
        # A refused create must not let this process forget what the session was.
        unfinished=True,
    )


def recorded_deletion(
    name: str, node: NodeView, seen: NodeObservation, policy: Policy
) -> Decision:
    """Write the deleted session again as a released one, so that its incidents stay quiet.

    A session that does exist answers 409: a lagging cache does no damage here. What its causes
    had been is remembered as long as this process saw them.
    """
    gone = next((session.spec.causes for session in seen.deleted if session.name == name), ())
    spec = QuarantineSpec(
        node_name=node.name,
        node_uid=node.uid,
        boot_id=node.boot_id,
        causes=appended(gone, (cause_of(i) for i in acting(seen, policy))),
        release=ReleaseRequest(by=DELETED_BY, reason="deleting the object cancels the session"),
    )
    return Decision(
        step="RecordDeletion",
        because="its session was deleted",
        writes=(CreateSession(name=name, spec=spec),),
        unfinished=True,
    )
