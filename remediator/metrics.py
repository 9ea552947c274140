"""Every metric the remediator exports, declared once.

The loop, gateway, elector and transport set them; `server` serves them. Those about sessions and
what people asked for are set at every scrape from the caches, by every replica: series of open
sessions name their node, ended ones are only counted. Names, help texts and labels are a contract
with alerts and dashboards: a golden file guards them. Label values come from closed lists or from
validated names of the cluster, never from free text.
"""

import collections
from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from remediator.kube import isolation
from remediator.kube.clock import CallQueue
from rules.api import names, quarantine
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.policy.policy import OverlappingPolicy
from rules.session import exclusions, history, observation
from rules.session.causes import worst
from rules.session.observation import FleetSnapshot
from rules.session.status import is_true

# From one push through the watch (tens of milliseconds) to a fleet-wide storm or an outage.
_FAULT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 300, 3600)
_LOST_KINDS = ("GPUQuarantine", "GPUWardPause", "GPUEvidence")
_CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The registry and its series."""

    def __init__(self) -> None:
        # Without a second series per counter for its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # unannotated upstream
        self.registry = CollectorRegistry()
        self._call_series: dict[tuple[str, CallQueue, int], tuple[Counter, Histogram]] = {}
        self._sessions()
        self._fleet()
        self._drain()
        self._calls()
        self._process()

    def _gauge(self, name: str, text: str, labels: str = "") -> Gauge:
        return Gauge(name, text, labels.split(), registry=self.registry)

    def _counter(self, name: str, text: str, labels: str = "") -> Counter:
        return Counter(name, text, labels.split(), registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], labels: str = ""
    ) -> Histogram:
        return Histogram(name, text, labels.split(), buckets=buckets, registry=self.registry)

    def _sessions(self) -> None:
        self.sessions = self._gauge(
            "gpuward_sessions", "Quarantine sessions kept, by phase and mode.", "phase mode"
        )
        for phase in Phase:
            for mode in Mode:
                self.sessions.labels(phase.value, mode.value).set(0)
        self.open_session = self._gauge(
            "gpuward_open_session",
            "1 for each open session: its node, worst severity and first reason.",
            "node phase mode severity reason",
        )
        self.open_session_condition = self._gauge(
            "gpuward_open_session_condition",
            "1 while a node's session has this condition: an open session, or an ended one "
            "with a taint and cordon that cannot be removed.",
            "node condition reason",
        )
        self.open_session_repair = self._gauge(
            "gpuward_open_session_repair",
            "1 for each repair step of a node's open session, by adapter and state.",
            "node step adapter state",
        )
        self.isolated_devices = self._gauge(
            "gpuward_isolated_devices",
            "Devices that a node's open session isolates instead of the node, by mode.",
            "node mode",
        )
        self.fault_to_unschedulable = self._histogram(
            "gpuward_fault_to_unschedulable_seconds",
            "From the incident's firstSeen to the answer of the patch that made the node "
            "unschedulable.",
            _FAULT_BUCKETS,
        )

    def _fleet(self) -> None:
        self.nodes = self._gauge("gpuward_nodes", "Nodes that the policy's nodeSelector selects.")
        self.agents_silent = self._gauge(
            "gpuward_agents_silent", "Selected nodes whose agent has been silent for too long."
        )
        self.budget_size = self._gauge(
            "gpuward_budget_size_nodes",
            "Nodes that may be unavailable at once, by scope (all, or a node label and value).",
            "scope",
        )
        self.budget_used = self._gauge(
            "gpuward_budget_used_nodes",
            "Nodes unavailable for any reason, by scope (all, or a node label and value).",
            "scope",
        )
        self.breaker_open = self._gauge(
            "gpuward_breaker_open",
            "1 while the circuit breaker is open and new quarantines are paused.",
        )
        self.correlated_cause = self._gauge(
            "gpuward_correlated_cause",
            "Nodes with an open session that share a reason and a driver, rack, switch, instance "
            "type or rollout.",
            "reason shared",
        )
        self.node_common_cause = self._gauge(
            "gpuward_node_common_cause",
            "1 while the node has this fault and shares with others that have it what few nodes "
            "share: a rack, a driver, a switch.",
            "node reason shared",
        )
        self.pause_created = self._gauge(
            "gpuward_pause_created_timestamp_seconds",
            "When a GPUWardPause that is in force was made, Unix time.",
            "pause",
        )
        self.node_held = self._gauge(
            "gpuward_node_held",
            "1 while an operator keeps this node from being released, by annotation or session.",
            "node",
        )
        self.node_left_alone = self._gauge(
            "gpuward_node_left_alone",
            "1 while nothing is done about the faults of this node because policy or an operator "
            "reports it.",
            "node why",
        )
        self.node_policy = self._gauge(
            "gpuward_node_policy",
            "1 for the policy of this node and its mode, where the file has pools.",
            "node policy mode",
        )
        self.policy_overlap = self._gauge(
            "gpuward_policy_overlap_nodes",
            "Nodes in Shadow because these pools select them with equally many requirements.",
            "policy",
        )

    def _drain(self) -> None:
        self.evictions = self._counter(
            "gpuward_evictions_total", "Evictions sent, by what the API server answered.", "result"
        )
        self.blocked_pdbs = self._gauge(
            "gpuward_blocked_pdbs",
            "PodDisruptionBudgets that keep a drain waiting, by whether waiting can help.",
            "permanent",
        )
        for permanent in ("true", "false"):
            self.blocked_pdbs.labels(permanent).set(0)

    def _calls(self) -> None:
        self.api_requests = self._counter(
            "gpuward_api_requests_total",
            "Calls to the API server and watches opened, by method, queue and status code (0: no "
            "answer).",
            "method queue code",
        )
        self.api_duration = self._histogram(
            "gpuward_api_request_duration_seconds",
            "Seconds until the API server's answer was read, by queue.",
            _CALL_BUCKETS,
            "queue",
        )
        self.api_in_flight_limit = self._gauge(
            "gpuward_api_in_flight_limit",
            "Calls of this queue that may be in flight, fewer while the API server is overloaded.",
            "queue",
        )
        self.writes = self._counter(
            "gpuward_writes_total",
            "Writes asked of the gateway, by kind and result.",
            "kind result",
        )
        self.watch_staleness = self._gauge(
            "gpuward_watch_staleness_seconds",
            "Seconds since a watch last heard anything, bookmarks included.",
            "resource",
        )
        self.watch_synced = self._gauge(
            "gpuward_watch_synced", "1 when the cache of this resource is complete.", "resource"
        )
        self.undecodable = self._gauge(
            "gpuward_undecodable_objects",
            "Objects of this resource that could not be decoded since the start.",
            "resource",
        )

    def _process(self) -> None:
        self.unexpected_errors = self._counter(
            "gpuward_unexpected_errors_total",
            "Unexpected errors by part; the other parts continued.",
            "part",
        )
        for part in isolation.PARTS:
            self.unexpected_errors.labels(part)
        self.objects_lost = self._counter(
            "gpuward_objects_lost_total",
            "Objects that vanished with their definition, with others or in a restore.",
            "kind",
        )
        for kind in _LOST_KINDS:
            self.objects_lost.labels(kind)
        self.leader = self._gauge("gpuward_leader", "1 while this replica holds the lease.")
        self.enforcing = self._gauge("gpuward_enforcing", "1 in mode Enforce, 0 in Shadow.")
        self.policy_reload_ok = self._gauge(
            "gpuward_policy_reload_ok", "1 when the policy file was read and valid the last time."
        )
        self.policy_unread = self._gauge(
            "gpuward_policy_unread",
            "1 while the replica has read no policy since it started and runs in Shadow mode.",
        )
        self.clock_skew = self._gauge(
            "gpuward_clock_skew_seconds",
            "API server's clock minus this machine's; 0 when they agree within a second.",
        )
        self.view_too_old = self._gauge(
            "gpuward_view_too_old",
            "1 while no disruption is done because something known of the cluster, or the time, "
            "is too old or uncertain to act on.",
        )
        self._clock_counted = (0, 0)
        self.clock_jumps = self._counter(
            "gpuward_clock_jumps_total",
            "How often most answers of the API server agreed on another time than before.",
        )
        self.clock_contradictions = self._counter(
            "gpuward_clock_contradictions_total",
            "Answers of the API server whose Date contradicts the time the others agree on.",
        )
        self.build_info = self._gauge(
            "gpuward_remediator_build_info", "Always 1; the version as a label.", "version"
        )

    def count_surprise(self, part: str) -> None:
        """Count one unexpected error."""
        self.unexpected_errors.labels(part).inc()

    def observe_call(self, method: str, call_queue: CallQueue, code: int, seconds: float) -> None:
        """Count one call of the transport."""
        known = self._call_series.get((method, call_queue, code))
        if known is None:
            known = self._call_series[method, call_queue, code] = (
                self.api_requests.labels(method, call_queue.value, str(code)),
                self.api_duration.labels(call_queue.value),
            )
        known[0].inc()
        known[1].observe(seconds)

    def count_clock(self, jumps: int, contradictions: int) -> None:
        """Totals of the clock's estimate, which counts without knowing of metrics."""
        self.clock_jumps.inc(jumps - self._clock_counted[0])
        self.clock_contradictions.inc(contradictions - self._clock_counted[1])
        self._clock_counted = (jumps, contradictions)

    def page(self) -> bytes:
        """The text a scrape gets."""
        return generate_latest(self.registry)


_OF_A_TAINT_THAT_STAYS = frozenset({"Blocked", "NeedsHuman"})
"""Conditions of an ended session: its taint and cordon cannot be removed."""


def set_gauges(metrics: Metrics, snapshot: FleetSnapshot) -> None:
    """Set every gauge about sessions, pauses, held nodes and nodes that are left alone again."""
    sessions = snapshot.quarantines.values()
    _sessions(metrics, sessions)
    metrics.pause_created.clear()
    for pause in snapshot.pauses.values():
        if not exclusions.pause_over(pause, snapshot.now):
            metrics.pause_created.labels(pause.metadata.name).set(pause.metadata.created_at)
    metrics.node_held.clear()
    held = {
        node.name for node in snapshot.nodes.values() if names.ANNOTATION_HOLD in node.annotations
    }
    held |= {one.spec.node_name for one in sessions if one.spec.hold and observation.is_open(one)}
    for name in held:
        metrics.node_held.labels(name).set(1)
    # Sick nodes that are left as they are by a decision: nobody is to be woken for them.
    metrics.node_left_alone.clear()
    by_node: dict[str, list[QuarantineView]] = {}
    for session in sessions:
        by_node.setdefault(session.spec.node_name, []).append(session)
    pauses = snapshot.pauses.values()
    metrics.node_policy.clear()
    metrics.policy_overlap.clear()
    for name, each in snapshot.nodes.items() if len(snapshot.policy.policies) > 1 else ():
        in_force = snapshot.policy_of(each)
        metrics.node_policy.labels(name, in_force.name, str(in_force.mode)).set(1)
        if isinstance(in_force, OverlappingPolicy):
            metrics.policy_overlap.labels(in_force.name).inc()
    for name, health in snapshot.healths.items():
        if (node := snapshot.nodes.get(name)) is not None:
            past, policy = by_node.get(name, ()), snapshot.policy_of(node)
            why = history.left_alone(node, health, past, pauses, policy, snapshot.now)
            if why:
                metrics.node_left_alone.labels(name, why).set(1)


def _sessions(metrics: Metrics, sessions: Iterable[QuarantineView]) -> None:
    by_phase: collections.Counter[tuple[str, str]] = collections.Counter()
    budgets: dict[str, bool] = {}
    metrics.open_session.clear()
    metrics.open_session_condition.clear()
    metrics.open_session_repair.clear()
    metrics.isolated_devices.clear()
    for session in sessions:
        status = session.status
        phase, mode = status.phase or Phase.PENDING.value, status.mode or Mode.SHADOW.value
        by_phase[phase, mode] += 1
        opened, node, causes = (
            observation.is_open(session),
            session.spec.node_name,
            session.spec.causes,
        )
        for found in status.conditions:
            shown = opened or found.type in _OF_A_TAINT_THAT_STAYS
            if shown and is_true(status, found.type):
                metrics.open_session_condition.labels(node, found.type, found.reason).set(1)
        if not opened:
            continue
        if status.devices:
            metrics.isolated_devices.labels(node, mode).set(len(status.devices))
        for attempt in status.repair:
            labels = attempt.step, attempt.adapter, attempt.state
            metrics.open_session_repair.labels(node, *labels).set(1)
        reason = quarantine.most_severe_reason(causes)
        metrics.open_session.labels(node, phase, mode, worst(causes), reason).set(1)
        # What a dry run met keeps no drain waiting: in Shadow there is none.
        drain = status.drain if mode == Mode.ENFORCE else None
        for block in drain.blocked if drain else ():
            if block.pdb:
                budgets[block.pdb] = budgets.get(block.pdb, False) or block.permanent
    for known in Phase:
        for made in Mode:
            metrics.sessions.labels(known.value, made.value).set(by_phase[known.value, made.value])
    lasting = sum(budgets.values())
    metrics.blocked_pdbs.labels("true").set(lasting)
    metrics.blocked_pdbs.labels("false").set(len(budgets) - lasting)
