"""What a call brings along besides its object: who asks, and how it wants to be answered."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated user."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = Caller("kubernetes-admin", ("system:masters", "system:authenticated"))
"""Who everybody is while authorization is AlwaysAllow and no tokens are configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The query of a mutating call."""

    manager: str = "unknown"
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The body (or query) of a DELETE and of an eviction."""

    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    dry_run: bool = False
