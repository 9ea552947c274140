"""What a drain plan is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rules.api.pods import ClaimView, OwnerView, PodView, VolumeAttachmentView
from rules.api.quarantine import DrainStatus
from rules.api.workloads import PdbView


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainInput:
    """One uncached look at a node, with what is known about its pods' surroundings."""

    node: str
    session: str
    pods: tuple[PodView, ...]
    pdbs: tuple[PdbView, ...] = ()
    owners: Mapping[str, OwnerView] = field(default_factory=dict)
    """Owners that were read, by UID."""
    missing_owners: frozenset[str] = frozenset()
    """Owner UIDs that a GET answered with 404 or another UID."""
    attachments: tuple[VolumeAttachmentView, ...] = ()
    """VolumeAttachments of this node."""
    claims: Mapping[str, ClaimView] = field(default_factory=dict)
    """PersistentVolumeClaims by `namespace/name`."""
    no_room: frozenset[str] = frozenset()
    """UIDs of pods whose GPUs fit no other node now (asked for Degraded drains only)."""
    severity: str = "Degraded"
    drain: DrainStatus = field(default_factory=DrainStatus)
    last_active_at: float | None = None
    dry_run: bool = False
    own_namespace: str = ""
