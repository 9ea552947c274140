"""Kubernetes' `Status`, the body of a refused call: decoded once, and its words read once.

Some things the API server tells in the message alone, with no field for them. Each phrase that has
to be known stands here with where it comes from; what is passed on is a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from rules.text.tolerant import understand

_MAX_BODY: Final = 64 * 1024


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause inside a Status, for example DisruptionBudget."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The machine-readable part of a Status."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class KubeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a refused call says."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None

    @property
    def about(self) -> str:
        """The kind of object it is about; "" where it does not say."""
        return self.details.kind if self.details is not None else ""

    @property
    def causes(self) -> Mapping[str, str]:
        """The message of each cause, by its reason."""
        causes = self.details.causes if self.details is not None else ()
        return {cause.reason: cause.message for cause in causes}


def read_status(body: bytes) -> KubeStatus | None:
    """The Status in `body`; None for text, HTML and anything else."""
    return understand(body[:_MAX_BODY], KubeStatus).value


class Told(StrEnum):
    """What only the words of an answer tell."""

    BY_ADMISSION = "ByAdmission"
    """A 403 of a webhook or policy: granting a verb would not help."""
    IMPERSONATION = "Impersonation"
    """A 403 for acting as somebody else: what that one may do was not looked at."""
    WEBHOOK_AWAY = "WebhookAway"
    """A 500 for a webhook that must answer and does not."""
    SEVERAL_BUDGETS = "SeveralBudgets"
    """A 500 of the eviction registry."""
    BUDGET_NEGATIVE = "BudgetNegative"
    """A 403 of the eviction registry: a PDB with an impossible status."""
    OTHER_UID = "OtherUid"
    """A 409: another object has that name now."""
    BUSY = "Busy"
    """A 429 of the API server itself."""
    UNKNOWN_FIELD = "UnknownField"
    """A 400 or 422 of strict field validation: the served definition has no such field."""


_PHRASES: Final[Mapping[Told, tuple[str, ...]]] = {
    Told.BY_ADMISSION: ("admission webhook", "ValidatingAdmissionPolicy", "denied the request"),
    Told.IMPERSONATION: ("cannot impersonate",),
    Told.WEBHOOK_AWAY: ("failed calling webhook",),
    Told.SEVERAL_BUDGETS: ("more than one PodDisruptionBudget",),
    Told.BUDGET_NEGATIVE: ("disruptions allowed is negative",),
    Told.OTHER_UID: ("UID in precondition", "UID in the precondition"),
    Told.BUSY: ("Too many requests",),
    Told.UNKNOWN_FIELD: ("strict decoding error: unknown field",),
}


def told(message: str) -> frozenset[Told]:
    """All that the message tells."""
    return frozenset(
        what for what, phrases in _PHRASES.items() if any(phrase in message for phrase in phrases)
    )
