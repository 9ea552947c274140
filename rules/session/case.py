"""The input of one decision about a session: the object, the observation, the policy, the time.

Shared by `rules.session.decide` and the phase rules. It turns an updated status into a `Decision`
that contains only writes that change something.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from rules.api import messages, names, quarantine_taint, timestamps
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import Cause, DrainStatus, Mode, Phase, QuarantineStatus
from rules.api.quarantine_taint import QuarantineState
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import DeleteTestJob
from rules.api.writes import (
    Decision,
    EmitEvent,
    Evicting,
    RelabelNode,
    RemoveTaint,
    Write,
    node_event,
)
from rules.catalog.reason import Level
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Policy, session_mode
from rules.session import external, first_evidence, observation, override
from rules.session import status as st
from rules.session.causes import (
    CauseContext,
    level_in_effect,
    open_causes,
    reported_causes,
    worst,
)
from rules.session.observation import NodeObservation, Staleness

RECHECK_S: Final = 60.0
"""Every open session is reconciled at least this often, without any watch event."""
_EVENT_KIND: Final = {
    Phase.PENDING: "Normal",
    Phase.MARKED: "Warning",
    Phase.QUARANTINED: "Warning",
    Phase.REPAIRING: "Warning",
    Phase.RELEASED: "Normal",
    Phase.CANCELLED: "Normal",
    Phase.NODE_GONE: "Normal",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """The input of one decision about an existing session."""

    session: QuarantineView
    seen: NodeObservation
    now: float
    policy: Policy

    @cached_property
    def status(self) -> QuarantineStatus:
        """The stored status with current drain progress and raised severities; Pending if the
        session is new.
        """
        return st.with_more_severe(self._stored, self.session.spec.causes, self.now)

    @property
    def _stored(self) -> QuarantineStatus:
        stored = self.session.status
        if stored.phase == Phase.DRAINING and self.seen.plan is not None:
            return touched(stored, drain=self.seen.plan.status(stored.drain or DrainStatus()))
        if stored.phase:
            external_incidents = self.seen.external.incidents
            evidence = override.level_evidence(self.session, self.seen.health, external_incidents)
            return touched(stored, evidence=evidence)
        boot = self.seen.node.boot_id if self.seen.node else ""
        begun = QuarantineStatus(
            mode=str(session_mode(self.policy)),
            phase=str(Phase.PENDING),
            phase_since=timestamps.format_time(self.now),
            boot_id=self.session.spec.boot_id or boot,
            evidence={
                **first_evidence.evidence_of(
                    self.seen.health, self.session.spec.causes, self.seen.external.incidents
                ),
                override.EVIDENCE_LEVEL: self.session.spec.level,
            },
        )
        return st.noted(begun, "Pending", self._opening(), self.now)

    def _opening(self) -> str:
        """Return the first timeline message: with what is new if an operator ended an earlier
        session for the same fault.
        """
        incidents = self.seen.health.status.incidents if self.seen.health is not None else ()
        ids = {cause.incident for cause in self.session.spec.causes}
        mine = (each for each in incidents if each.active and each.id in ids)
        new = next(
            filter(None, (override.since_override(each, self.seen.siblings) for each in mine)), ""
        )
        return f"session opened: {new}" if new else "session opened"

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return Phase(self.status.phase)

    @property
    def phase_since(self) -> float:
        """When the phase began."""
        return timestamps.parse_time(self.status.phase_since) or self.now

    @property
    def shadow(self) -> bool:
        """Whether this session only reports what it would do."""
        return self.status.mode == Mode.SHADOW

    @property
    def node(self) -> NodeView:
        """The node; rules that may run without one check `seen.node` first."""
        if self.seen.node is None:
            raise ValueError(f"session {self.session.name} has no node")
        return self.seen.node

    @cached_property
    def taint_state(self) -> QuarantineState:
        """Which parts of the session's taint and cordon are on the node."""
        return quarantine_taint.quarantine_state(self.node, self.session.name)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """The active causes with a level above Report."""
        return open_causes(self.session, self._context)

    @property
    def asked_for(self) -> str:
        """A clause with the active causes, else with all of the session."""
        if self.causes:
            return messages.causes_clause(self.causes)
        return f"{messages.causes_clause(self.session.spec.causes)}, now closed"

    @cached_property
    def reported(self) -> tuple[Cause, ...]:
        """The active causes that the current policy only reports."""
        return reported_causes(self.session, self._context)

    @property
    def _context(self) -> CauseContext:
        return CauseContext(
            node=self.seen.node,
            health=self.seen.health,
            stale=self.seen.stale,
            policy=self.policy,
            now=self.now,
            device_taints=self.seen.device_taints,
        )

    @property
    def without_agent(self) -> bool:
        """Whether only external findings opened the session and no agent ever reported on the
        node.
        """
        return (
            {cause.source for cause in self.session.spec.causes} == {external.SOURCE}
            and self.seen.stale == Staleness.NO_HEALTH_STATUS
            and names.LABEL_HEALTH not in self.node.labels
        )

    @property
    def no_data(self) -> str:
        """Why the health of the node is unknown; "" if it is known or the node has no agent."""
        return "" if self.without_agent else self.seen.stale

    @property
    def settled(self) -> bool:
        """Whether no cause requires the quarantine: all are closed or only reported.

        A stale health status closes no cause. The policy applies without a health status.
        """
        return not self.causes and (not self.no_data or bool(self.reported))

    @property
    def drains(self) -> bool:
        """Whether the current level and policy require a drain."""
        return level_in_effect(self.session, self.causes, self.policy) == Level.DRAIN

    @property
    def severity(self) -> str:
        """The highest severity of the active causes, else of all."""
        return worst(self.causes or self.session.spec.causes)

    @property
    def primary(self) -> QuarantineView:
        """The oldest open session of this node; the others are merged into it."""
        uid = self.node.uid
        others_open = [
            other
            for other in self.seen.siblings
            if observation.is_open(other) and other.spec.node_uid in {"", uid}
        ]
        return min((self.session, *others_open), key=lambda s: (s.metadata.created_at, s.name))

    def decision(
        self,
        step: str,
        status: QuarantineStatus,
        *,
        because: str,
        blocked_by: WhyNot | None = None,
        before: tuple[Write, ...] = (),
        after: tuple[Write, ...] = (),
        evicting: Evicting = Evicting.NO,
        hand_over: bool = False,
        wake_at: float | None = None,
    ) -> Decision:
        """Return the writes: `before`, a missing or old label, a changed status, Events, `after`.

        Writes that the API server refused a moment ago are left out, and the status
        reports the refusal.
        """
        node_written = any(not isinstance(write, DeleteTestJob) for write in before)
        label = self._label(status, node_written)
        wanted = (*before, label) if label is not None else before
        writes = [write for write in wanted if self.refusal(write) is None]
        refusal = next(filter(None, map(self.refusal, wanted)), None)
        refusal = refusal or self.seen.refused.get(NodeWrite.SPEC)
        if refusal is not None:
            status = st.with_refused_write(status, refusal, self.now)
            again_at = refusal.until or self.now
            wake_at = min(wake_at or again_at, again_at)
        else:
            status = st.without_refused_write(status, self.now)
        status = st.named(status, self.session.spec.causes)
        status = st.steady(status, self.session.status)
        if status != self.session.status:
            writes.append(st.write_of(self.session, status))
            writes.extend(self._events(status))
        return Decision(
            step=step,
            because=because,
            blocked_by=blocked_by,
            message=status.message,
            writes=(*writes, *(write for write in after if self.refusal(write) is None)),
            status=status,
            evicting=evicting,
            hand_over=hand_over,
            wake_at=min(wake_at or self.now + RECHECK_S, self.now + RECHECK_S),
        )

    def refusal(self, write: Write) -> Refusal | None:
        """Return the API server's recent refusal of such a write on this node; None without."""
        kind = st.kind_of(write)
        return self.seen.refused.get(kind) if kind is not None else None

    def _label(self, status: QuarantineStatus, node_written: bool) -> RelabelNode | None:
        node = self.seen.node
        if node is None or node_written or Phase(status.phase).ended:
            return None
        if self.shadow or self.policy.mode == Mode.SHADOW:
            return None
        note = quarantine_taint.read_note(node)
        if note is None or note.session != self.session.name:
            return None
        if node.labels.get(names.LABEL_QUARANTINE) == quarantine_taint.LABELLED:
            return None
        return RelabelNode(
            node=node.name,
            node_uid=node.uid,
            session=self.session.name,
            patch=quarantine_taint.relabel_patch(node),
        )

    def _events(self, status: QuarantineStatus) -> tuple[EmitEvent, ...]:
        """Return the Event of a new phase, and one when operator action becomes necessary."""
        events = []
        phase = Phase(status.phase)
        if phase in _EVENT_KIND and phase != self.session.status.phase:
            events.append(self._event(_EVENT_KIND[phase], f"Quarantine{phase}", status))
        if st.is_true(status, "NeedsHuman") and not st.is_true(self.session.status, "NeedsHuman"):
            events.append(self._event("Warning", st.NEEDS_HUMAN, status))
        return tuple(events)

    def _event(self, kind: str, reason: str, status: QuarantineStatus) -> EmitEvent:
        node = self.seen.node
        uid = self.session.spec.node_uid or (node.uid if node else "")
        shadow = "Shadow, no changes were made: " if self.shadow else ""
        message = f"{shadow}{status.message}"
        key = f"{self.session.metadata.uid}/{reason}/{status.phase_since}"
        return node_event(self.seen.name, uid, reason, message, self.now, key, kind)


def remove_taint(node: NodeView, session: str, *, orphan: bool = False) -> RemoveTaint:
    """Return the write that removes the taint and cordon from `node`."""
    return RemoveTaint(
        node=node.name,
        node_uid=node.uid,
        session=session,
        patch=quarantine_taint.release_patch(node),
        orphan=orphan,
    )


def is_fresh(node: NodeView) -> bool:
    """Return whether the node was read for this decision, managed fields included."""
    return isinstance(node, FreshNode)


def touched(status: QuarantineStatus, **changes: object) -> QuarantineStatus:
    """Return `status` with some fields replaced."""
    return msgspec.structs.replace(status, **changes)
