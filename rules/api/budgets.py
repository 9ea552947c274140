"""A PodDisruptionBudget as the drain rules read it."""

from __future__ import annotations

import msgspec

from rules.api.metadata import LabelSelector, ObjectMeta, View


class PdbCondition(View, frozen=True, kw_only=True):
    """A condition of a PDB; `DisruptionAllowed` carries SyncFailed."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PdbSpec(View, frozen=True, kw_only=True):
    """What the owner asked for; the numbers may be integers or percentages."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PdbStatus(View, frozen=True, kw_only=True):
    """What the disruption controller made of it."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[PdbCondition, ...] = ()
    disrupted_pods: dict[str, str] = msgspec.field(default_factory=dict)
    """When each pod was evicted that the controller has not counted since, by name."""


class PdbView(View, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: PdbSpec = PdbSpec()
    status: PdbStatus = PdbStatus()

    @property
    def key(self) -> str:
        """`namespace/name`: how queues and messages name a PDB."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
