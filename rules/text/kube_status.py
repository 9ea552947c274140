"""Kubernetes' `Status`, the body of a refused call: decoded once, and its words read once.

Some things the API server tells in the message alone, with no field for them. Each phrase that has
to be known stands here with where it comes from; what is passed on is a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from rules.text.tolerant import understand

_MAX_BODY: Final = 64 * 1024
NAMESPACE_ENDING: Final = "NamespaceTerminating"
"""The cause in a 403 of a namespace that is being deleted: nothing new may be made in it."""


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
    """A 403 of a webhook, policy or quota: granting a verb would not help."""
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


_PHRASES: Final[Mapping[Told, tuple[str, ...]]] = {
    Told.BY_ADMISSION: (
        "admission webhook",
        "ValidatingAdmissionPolicy",
        "denied the request",
        "exceeded quota",
    ),
    Told.IMPERSONATION: ("cannot impersonate",),
    Told.WEBHOOK_AWAY: ("failed calling webhook",),
    Told.SEVERAL_BUDGETS: ("more than one PodDisruptionBudget",),
    Told.BUDGET_NEGATIVE: ("disruptions allowed is negative",),
    Told.OTHER_UID: ("UID in precondition", "UID in the precondition"),
    Told.BUSY: ("Too many requests",),
}


_STRICT: Final = b"strict decoding error: "
_REFUSED_FIELD: Final = re.compile(rb'unknown field \\*"([A-Za-z0-9_.\[\]-]{1,200})\\*"')


def refused_fields(body: bytes) -> tuple[str, ...]:
    """Fields that strict field validation (a 400 or 422) found in no served definition. Read from
    the body: to a patch the API server answers with the whole object before it comes to them.
    """
    at = body.rfind(_STRICT)
    found = _REFUSED_FIELD.findall(body, at) if at >= 0 else []
    return tuple(dict.fromkeys(field.decode("ascii") for field in found))


def told(message: str) -> frozenset[Told]:
    """All that the message tells."""
    return frozenset(
        what for what, phrases in _PHRASES.items() if any(phrase in message for phrase in phrases)
    )


def lacks_right(code: int, message: str) -> bool:
    """Whether a refused call would go through with another right: not so of one that a webhook,
    policy or quota refused for what stood in it.
    """
    return code == 403 and Told.BY_ADMISSION not in told(message)
