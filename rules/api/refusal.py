"""Classify calls that the API server refused, and describe them for sessions.

Some causes are only in the message of a `Status`, so `_PHRASES` lists the phrases to look for. The
remediator passes the result of `refusal_of` to the next decisions (`rules.session.observation`),
which report it and skip the write until `retry_at`. `rules.session.status` writes the conditions.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from rules.api import names
from rules.catalog.why_not import Refusal, WhyNot
from rules.text import tolerant

_MAX_BODY: Final = 64 * 1024
NAMESPACE_ENDING: Final = "NamespaceTerminating"
"""The cause in a 403 for a namespace that is being deleted."""


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause inside a Status, for example DisruptionBudget."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The machine-readable part of a Status."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()


class KubeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The Status of a refused call."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None

    @property
    def about(self) -> str:
        """The kind of the object; "" if unknown."""
        return self.details.kind if self.details is not None else ""

    @property
    def causes(self) -> Mapping[str, str]:
        """The message of each cause, by its reason."""
        causes = self.details.causes if self.details is not None else ()
        return {cause.reason: cause.message for cause in causes}


def read_status(body: bytes) -> KubeStatus | None:
    """Return the Status in `body`; None for text, HTML and anything else."""
    return tolerant.understand(body[:_MAX_BODY], KubeStatus).value


class ErrorKind(StrEnum):
    """A cause that only the message shows."""

    BY_ADMISSION = "ByAdmission"
    """A 403 of a webhook, policy or quota, not of missing RBAC."""
    IMPERSONATION = "Impersonation"
    """A 403 for the impersonation itself."""
    WEBHOOK_AWAY = "WebhookAway"
    """A 500 because a required webhook does not respond."""
    SEVERAL_BUDGETS = "SeveralBudgets"
    """A 500 of the eviction registry."""
    BUDGET_NEGATIVE = "BudgetNegative"
    """A 403 of the eviction registry: a PDB with an impossible status."""
    OTHER_UID = "OtherUid"
    """A 409, or a 422 for a patch: another object has that name now."""
    BUSY = "Busy"
    """A 429 of the API server itself."""


_PHRASES: Final[Mapping[ErrorKind, tuple[str, ...]]] = {
    ErrorKind.BY_ADMISSION: (
        "admission webhook",
        "ValidatingAdmissionPolicy",
        "denied the request",
        "exceeded quota",
    ),
    ErrorKind.IMPERSONATION: ("cannot impersonate",),
    ErrorKind.WEBHOOK_AWAY: ("failed calling webhook",),
    ErrorKind.SEVERAL_BUDGETS: ("more than one PodDisruptionBudget",),
    ErrorKind.BUDGET_NEGATIVE: ("disruptions allowed is negative",),
    ErrorKind.OTHER_UID: (
        "UID in precondition",
        "UID in the precondition",
        "metadata.uid: Invalid value",
    ),
    ErrorKind.BUSY: ("Too many requests",),
}


_STRICT: Final = b"strict decoding error: "
_REFUSED_FIELD: Final = re.compile(rb'unknown field \\*"([A-Za-z0-9_.\[\]-]{1,200})\\*"')


def refused_fields(body: bytes) -> tuple[str, ...]:
    """Return the fields that strict validation (400 or 422) rejects. They are read from the body,
    because the message of a patch starts with the entire object.
    """
    at = body.rfind(_STRICT)
    found = _REFUSED_FIELD.findall(body, at) if at >= 0 else []
    return tuple(dict.fromkeys(field.decode("ascii") for field in found))


def error_kinds(message: str) -> frozenset[ErrorKind]:
    """Return all kinds of errors in the message."""
    return frozenset(
        what for what, phrases in _PHRASES.items() if any(phrase in message for phrase in phrases)
    )


def lacks_right(code: int, message: str) -> bool:
    """Return whether RBAC refused the call, and not a webhook, policy or quota."""
    return code == 403 and ErrorKind.BY_ADMISSION not in error_kinds(message)


_PASSES: Final = frozenset({404, 408, 409, 410})
"""Temporary refusals, which a new read and decision resolve."""
_SHOWN: Final = 300
_REPEATED: Final = 5
"""Conflicts in a row are rare, because the node is read before each attempt."""
_REPEATED_S: Final = 30.0
"""A restart of the API server or an etcd election takes less time."""
_PERMANENT_S: Final = 300.0
"""Longer refusals do not end by themselves."""


class NodeWrite(StrEnum):
    """A write about a node; the value completes "may not ..."."""

    TAINT = "quarantine the node"
    LABEL = "change the quarantine label of the node"
    REMOVE_TAINT = "remove its taint and cordon from the node"
    DEVICE = "taint a device of the node"
    OPEN = "open a session for the node"
    SPEC = "write the causes of the session"
    STATUS = "write the status of the session"
    REPAIR = "request a repair of the node"
    UNREPAIR = "withdraw the request for a repair of the node"
    TEST = "create the Job that tests the node"


ON_SESSIONS: Final = {
    NodeWrite.OPEN: "create on gpuquarantines",
    NodeWrite.SPEC: "patch on gpuquarantines",
    NodeWrite.STATUS: "patch on gpuquarantines/status",
}
"""Writes to sessions, and the right that each needs."""
_OWN_POLICY: Final = f"ValidatingAdmissionPolicy '{names.COMPONENT_REMEDIATOR}-"
"""The start of a refusal by a policy of base, which lists the installed adapters."""
_REPAIRS: Final = {NodeWrite.REPAIR, NodeWrite.UNREPAIR}
"""They need the component of their adapter, and a provider may refuse its object."""
_RIGHTS: Final = {
    **ON_SESSIONS,
    NodeWrite.TEST: "create on jobs of its namespace",
    NodeWrite.DEVICE: "create and delete on devicetaintrules (component devices)",
}


def surprise(where: str) -> Refusal:
    """Return the refusal for an unexpected error of the remediator at `where`."""
    return Refusal(
        reason=WhyNot.UNEXPECTED_ERROR,
        why=f"unexpected error while handling this node ({where}). The node is unchanged until a "
        "retry succeeds. Report it with the log of gpuward-remediator",
        permanent=True,
    )


def unread(message: str) -> Refusal:
    """Return the refusal while an object for the decision cannot be read."""
    return Refusal(
        reason=WhyNot.NO_ANSWER,
        why=f"objects for the decision about this node cannot be read ({message[:_SHOWN]}). The "
        "node is unchanged until a retry succeeds",
    )


def refusal_of(write: NodeWrite, code: int, message: str) -> Refusal | None:
    """Return what a refused write about a node means; None if it is not a refusal."""
    text = " ".join(message.split())[:_SHOWN]
    # An outdated label delays neither a drain nor a release, so no operator is needed.
    lasting = write is not NodeWrite.LABEL
    not_let = f"the API server does not let the remediator {write} ({text})"
    if code == 429:
        why = f"the API server is too busy to let the remediator {write} ({text})"
        return Refusal(reason=WhyNot.API_BUSY, why=f"{why}. The write is retried")
    if code == 401:
        why = (
            f"the API server does not accept the remediator's credentials, so it cannot {write} "
            f"({text}). Check its service account and token"
        )
        return Refusal(reason=WhyNot.MISSING_PERMISSION, permanent=lasting, why=why)
    if lacks_right(code, text):
        remedy = f"Grant it {_RIGHTS.get(write, 'patch on nodes')}"
        remedy = "Install the component of its adapter" if write in _REPAIRS else remedy
        why = f"the remediator may not {write} ({text}). {remedy}"
        return Refusal(reason=WhyNot.MISSING_PERMISSION, permanent=lasting, why=why)
    refused = 400 <= code < 500
    if refused and write in _REPAIRS and code not in _PASSES - {404}:
        if code == 404 and write is NodeWrite.UNREPAIR:
            return None
        remedy = (
            "Install the component of its adapter; kubectl gpuward preflight shows what is missing"
            if _OWN_POLICY in text
            else "Check the adapter in the policy, the object that it writes, and admission "
            "policies and webhooks"
        )
        return Refusal(reason=WhyNot.REPAIR_REFUSED, permanent=True, why=f"{not_let}. {remedy}")
    if refused and code not in _PASSES:
        ask, reason = "Check the admission policy or webhook", WhyNot.TAINT_REFUSED
        if write in ON_SESSIONS:
            ask += ", or update the CRDs of gpuward"
            reason = WhyNot.SESSION_REFUSED
        return Refusal(reason=reason, permanent=lasting, why=f"{not_let}. {ask}")
    if code == 500 and ErrorKind.WEBHOOK_AWAY in error_kinds(text):
        why = (
            f"an admission webhook does not respond, so the remediator cannot {write} ({text}). "
            "Check the webhook"
        )
        return Refusal(reason=WhyNot.TAINT_REFUSED, permanent=lasting, why=why)
    if write is NodeWrite.UNREPAIR and code >= 500:
        why = f"the API server failed to {write} ({text})"
        return Refusal(reason=WhyNot.REPAIR_REFUSED, why=f"{why}. The write is retried")
    return None


def repeated(
    write: NodeWrite, code: int, message: str, *, times: int, lasted_s: float
) -> Refusal | None:
    """Return the refusal for an error that came `times` times in a row, over `lasted_s` seconds.

    None while a retry may help. An admission webhook may deny with any code, also that of a
    conflict or a busy server, so only the repetition shows it.
    """
    if code == 404 and write is NodeWrite.UNREPAIR:
        return None
    if times < _REPEATED and lasted_s < _REPEATED_S:
        return None
    reason = WhyNot.TAINT_REFUSED
    if write in ON_SESSIONS:
        reason = WhyNot.SESSION_REFUSED
    elif write in _REPAIRS:
        reason = WhyNot.REPAIR_REFUSED
    text = " ".join(message.split())[:_SHOWN]
    return Refusal(
        reason=reason,
        permanent=lasted_s >= _PERMANENT_S and write is not NodeWrite.LABEL,
        why=f"the API server fails each attempt to {write} ({text}). The write is retried. Check "
        "admission webhooks and the API server",
    )
