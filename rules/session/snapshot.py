"""The whole fleet at one moment, and how old a view of it may be before disruption rests on it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from rules.api.gpu_record import RecordView
from rules.api.nodes import (
    AgentPod,
    HealthView,
    LeaseView,
    NodeView,
    PauseView,
    QuarantineView,
)
from rules.drain.gangs import Gang
from rules.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """Everything the deciding rules may look at, at one moment.

    `now` is wall time corrected to the API server's clock. `observing_since` is when this
    process's caches were last complete after a start or an outage: silence before it proves
    nothing. `reserved` names nodes whose mark was sent but has not come back by watch.
    """

    now: float
    policy: Policy
    nodes: Mapping[str, NodeView]
    healths: Mapping[str, HealthView] = field(default_factory=dict)
    quarantines: Mapping[str, QuarantineView] = field(default_factory=dict)
    """By object name."""
    records: Mapping[str, RecordView] = field(default_factory=dict)
    """What is known of GPUs and nodes from before, by object name; never a cause by itself."""
    counting: Mapping[str, QuarantineView] | None = None
    """Those of `quarantines` that the fleet rules may still count: open ones, and ended ones
    within their windows (`rules.session.history.counts_until`); None where nobody picked them out.
    """
    pauses: Mapping[str, PauseView] = field(default_factory=dict)
    agents: Mapping[str, AgentPod] = field(default_factory=dict)
    """By pod UID."""
    maintenance_leases: Mapping[str, LeaseView] = field(default_factory=dict)
    """Leases of other operators on nodes (medik8s), by node name."""
    external_seen: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Since when this process has seen what others say on a node, by node name and finding
    (`rules.session.external.first_seen`)."""
    observing_since: float = 0.0
    acting_since: float = 0.0
    """When this process took over: waits for what a leader has to find out count from here."""
    doubt: str = ""
    """Why no harm may rest on this snapshot, a clause: a view that is too old
    (`rules.session.snapshot`), a time that is not known; "" when it may."""
    own_node: str = ""
    """The node this process runs on; "" outside the cluster."""
    own_namespace: str = "gpuward"
    """Where the remediator's Deployment lives: fleet findings become Events there."""
    nobody_took_over: bool = False
    """Leadership was handed over for the own node and came back: there is no other replica."""
    reserved: Set[str] = frozenset()
    mark_refused: frozenset[str] = frozenset()
    """Nodes that the API server let nobody mark a moment ago: they get no turn meanwhile."""
    gangs: Mapping[str, tuple[Gang, ...]] = field(default_factory=dict)
    """Gangs with GPU pods on a node (`rules.drain.gangs.gangs_of`), by node name: needed for nodes
    whose session has not begun to drain. Empty says none; a missing node was not read lately."""
    not_kept: Set[str] = frozenset()
    """Fields of a session's status that the API server was lately seen to drop, as `status.repair`
    (`rules.session.status.entries_lost`)."""
    kueue_unhealthy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node names in `status.unhealthyNodes` of a gang's Kueue Workload, by gang key."""
    memo: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What was worked out from this snapshot (`rules.session.causes`): one moment has one answer.
    """

    @property
    def counted(self) -> Mapping[str, QuarantineView]:
        """The sessions that the fleet rules look at."""
        return self.quarantines if self.counting is None else self.counting


QUIET_S: Final = 100.0
"""An API server sends each watch a bookmark about once a minute (kube-apiserver's
`bookmarkFrequency` is 60 s), so a view that heard nothing for this long is not merely quiet."""
UNFOLLOWED_S: Final = 20.0
"""A watch that ends is resumed within milliseconds, after some failures within seconds."""


def too_old(
    name: str,
    *,
    quiet_s: float,
    unfollowed_s: float,
    problem: str,
    longest_quiet_s: float = QUIET_S,
) -> str:
    """Why no harm may rest on the view called `name`, a clause; "" when it may.

    `quiet_s` is since anything of it was heard, `unfollowed_s` since nobody follows it (0 while
    somebody does); `problem` is what keeps that from working, where it is known.
    `longest_quiet_s` is shorter for a view that is listed anew more often.
    """
    if quiet_s <= longest_quiet_s and unfollowed_s <= UNFOLLOWED_S:
        return ""
    why = f" ({problem})" if problem else ""
    return f"what is known of {name} is too old to act on{why}"[:300]
