"""What sessions and people's words look like in metrics: counted, and one series per open one.

Called by `run` at every scrape with the sessions of the cache, by every replica: sessions are API
objects, so each replica says the same. Series of open sessions name their node, so that an alert
can; ended sessions are only counted, and shown while their mark cannot come off. Reads, never
decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from remediator.metrics import Metrics
from rules.api.gpu_record import GPU_SCOPE, NODE_SCOPE, RecordView
from rules.api.names import ANNOTATION_HOLD
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import Mode, Phase, gravest_reason
from rules.policy.policy import Policy
from rules.session.causes import worst
from rules.session.exclusions import pause_over
from rules.session.history import left_alone
from rules.session.observation import is_open
from rules.session.status import is_true

_OF_A_MARK_THAT_STAYS = frozenset({"Blocked", "NeedsHuman"})
"""What a session may say after its end: that its mark may not be taken off."""


def set_session_gauges(metrics: Metrics, sessions: Iterable[QuarantineView]) -> None:
    """Set every gauge about sessions anew."""
    by_phase: Counter[tuple[str, str]] = Counter()
    conditions: Counter[tuple[str, str]] = Counter()
    budgets: dict[str, bool] = {}
    metrics.open_session.clear()
    metrics.open_session_condition.clear()
    metrics.open_session_repair.clear()
    metrics.repair_steps.clear()
    metrics.session_tests.clear()
    for session in sessions:
        status = session.status
        phase, mode = status.phase or Phase.PENDING.value, status.mode or Mode.SHADOW.value
        by_phase[phase, mode] += 1
        opened, node, causes = is_open(session), session.spec.node_name, session.spec.causes
        for found in status.conditions:
            shown = opened or found.type in _OF_A_MARK_THAT_STAYS
            if shown and is_true(status, found.type):
                conditions[found.type, found.reason] += 1
                metrics.open_session_condition.labels(node, found.type, found.reason).set(1)
        for attempt in status.repair:
            words = attempt.step, attempt.adapter, attempt.state
            metrics.repair_steps.labels(*words).inc()
            if opened:
                metrics.open_session_repair.labels(node, *words).set(1)
        for test in status.validation:
            metrics.session_tests.labels(test.provider, test.state).inc()
        if not opened:
            continue
        reason = gravest_reason(causes)
        metrics.open_session.labels(node, phase, mode, worst(causes), reason).set(1)
        # What a dry run met keeps no drain waiting: in Shadow there is none.
        drain = status.drain if mode == Mode.ENFORCE else None
        for block in drain.blocked if drain else ():
            if block.pdb:
                budgets[block.pdb] = budgets.get(block.pdb, False) or block.permanent
    for known in Phase:
        for made in Mode:
            metrics.sessions.labels(known.value, made.value).set(by_phase[known.value, made.value])
    metrics.session_conditions.clear()
    for (kind, why), count in conditions.items():
        metrics.session_conditions.labels(kind, why).set(count)
    lasting = sum(budgets.values())
    metrics.blocked_pdbs.labels("true").set(lasting)
    metrics.blocked_pdbs.labels("false").set(len(budgets) - lasting)


def set_record_gauges(metrics: Metrics, records: Iterable[RecordView]) -> None:
    """How many records there are."""
    scopes = Counter(record.status.scope for record in records)
    for scope in (GPU_SCOPE, NODE_SCOPE):
        metrics.records.labels(scope).set(scopes[scope])


def set_word_gauges(
    metrics: Metrics,
    pauses: Iterable[PauseView],
    nodes: Iterable[NodeView],
    sessions: Iterable[QuarantineView],
    now: float,
) -> None:
    """What people asked for and may have forgotten: pauses in force at `now`, and held nodes."""
    metrics.pause_created.clear()
    for pause in pauses:
        if not pause_over(pause, now):
            metrics.pause_created.labels(pause.metadata.name).set(pause.metadata.created_at)
    metrics.node_held.clear()
    held = {node.name for node in nodes if ANNOTATION_HOLD in node.annotations}
    held |= {one.spec.node_name for one in sessions if one.spec.hold and is_open(one)}
    for name in held:
        metrics.node_held.labels(name).set(1)


def set_left_alone_gauge(
    metrics: Metrics,
    healths: Iterable[HealthView],
    nodes: Mapping[str, NodeView],
    sessions: Iterable[QuarantineView],
    pauses: Collection[PauseView],
    policy: Policy,
    now: float,
) -> None:
    """Sick nodes that are left as they are by a decision: nobody is to be woken for them."""
    metrics.node_left_alone.clear()
    by_node: dict[str, list[QuarantineView]] = {}
    for session in sessions:
        by_node.setdefault(session.spec.node_name, []).append(session)
    for health in healths:
        name = health.metadata.name
        if (node := nodes.get(name)) is not None:
            why = left_alone(node, health, by_node.get(name, ()), pauses, policy, now)
            if why:
                metrics.node_left_alone.labels(name, why).set(1)
