"""What the API server answers to a call that it refuses, and what a session says about it.

Some things the API server tells in the message of a `Status` alone, with no field for them. Each
phrase that has to be known stands here with where it comes from; what is passed on is a value.
The loop's edge calls `refusal_of` with the answer and hands the result to the next decisions
(`rules.session.observation`), which wait, report it and leave the write out until `retry_at`.
`rules.session.status` turns it into conditions. Never decides whether something is sent.
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
    return tolerant.understand(body[:_MAX_BODY], KubeStatus).value


class ErrorKind(StrEnum):
    """What only the words of an answer tell."""

    BY_ADMISSION = "ByAdmission"
    """A 403 of a webhook, policy or quota: granting a verb would not help."""
    IMPERSONATION = "Impersonation"
    """A 403 for acting as somebody else: what that one may do was not checked."""
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
    ErrorKind.OTHER_UID: ("UID in precondition", "UID in the precondition"),
    ErrorKind.BUSY: ("Too many requests",),
}


_STRICT: Final = b"strict decoding error: "
_REFUSED_FIELD: Final = re.compile(rb'unknown field \\*"([A-Za-z0-9_.\[\]-]{1,200})\\*"')


def refused_fields(body: bytes) -> tuple[str, ...]:
    """Fields that strict field validation (a 400 or 422) found in no served definition. Read from
    the body: to a patch the API server answers with the entire object before it comes to them.
    """
    at = body.rfind(_STRICT)
    found = _REFUSED_FIELD.findall(body, at) if at >= 0 else []
    return tuple(dict.fromkeys(field.decode("ascii") for field in found))


def error_kinds(message: str) -> frozenset[ErrorKind]:
    """All that the message tells."""
    return frozenset(
        what for what, phrases in _PHRASES.items() if any(phrase in message for phrase in phrases)
    )


def lacks_right(code: int, message: str) -> bool:
    """Whether a refused call would go through with another right: not so of one that a webhook,
    policy or quota refused for what stood in it.
    """
    return code == 403 and ErrorKind.BY_ADMISSION not in error_kinds(message)


_PASSES: Final = frozenset({404, 408, 409, 410})
"""Refusals of the moment: reading again and deciding again answers them."""
_SHOWN: Final = 300
_REPEATED: Final = 5
"""Conflicts in a row are rare (the node is read again before each attempt) and five unheard of."""
_REPEATED_S: Final = 30.0
"""A server that restarts, or an election of etcd, is over by then."""
_PERMANENT_S: Final = 300.0
"""What lasts this long does not end by itself."""


class NodeWrite(StrEnum):
    """What is wanted of a node; the value completes "may not ..."."""

    TAINT = "quarantine the node"
    LABEL = "move the quarantine label of the node"
    REMOVE_TAINT = "take its taint and cordon off the node"
    OPEN = "open a session for the node"
    SPEC = "write the causes of the session"
    STATUS = "write the status of the session"
    REPAIR = "ask for a repair of the node"
    UNREPAIR = "take back what asked for a repair of the node"
    TEST = "make the Job that tests the node"


ON_SESSIONS: Final = {
    NodeWrite.OPEN: "create on gpuquarantines",
    NodeWrite.SPEC: "patch on gpuquarantines",
    NodeWrite.STATUS: "patch on gpuquarantines/status",
}
"""Writes about a node that are not on the node, and the right that each needs."""
_OWN_POLICY: Final = f"ValidatingAdmissionPolicy '{names.COMPONENT_REMEDIATOR}-"
"""How a refusal by one of base's policies begins, which know the adapters that are installed."""
_REPAIRS: Final = {NodeWrite.REPAIR, NodeWrite.UNREPAIR}
"""They need the component of their adapter, and the object of a provider may say no."""
_RIGHTS: Final = {**ON_SESSIONS, NodeWrite.TEST: "create on jobs of its namespace"}


def surprise(where: str) -> Refusal:
    """What a session says when the remediator itself failed over its node, at `where`."""
    return Refusal(
        reason=WhyNot.UNEXPECTED_ERROR,
        why=f"the remediator failed over this node in a way nobody foresaw ({where}), nothing is "
        "done to it and it is tried again, report it with the log of gpuward-remediator",
        permanent=True,
    )


def unread(said: str) -> Refusal:
    """What a session says while what a decision rests on cannot be read; `said` is the answer."""
    return Refusal(
        reason=WhyNot.NO_ANSWER,
        why=f"what decides about this node cannot be read ({said[:_SHOWN]}), nothing is done to "
        "it and it is tried again",
    )


def refusal_of(write: NodeWrite, code: int, message: str) -> Refusal | None:
    """What a refused patch of the node means; None for answers that are no refusal."""
    said = " ".join(message.split())[:_SHOWN]
    # A label that lags keeps neither a drain nor a release up: nobody has to come for it.
    lasting = write is not NodeWrite.LABEL
    not_let = f"the API server does not let the remediator {write} ({said})"
    if code == 429:
        why = f"the API server is too busy to let the remediator {write} ({said})"
        return Refusal(reason=WhyNot.API_BUSY, why=f"{why}, it is tried again")
    if code == 401:
        why = (
            f"the API server does not know the remediator any more, so it cannot {write} "
            f"({said}), check its service account and token"
        )
        return Refusal(reason=WhyNot.MISSING_PERMISSION, permanent=lasting, why=why)
    if lacks_right(code, said):
        remedy = f"grant it {_RIGHTS.get(write, 'patch on nodes')}"
        remedy = "install the component of its adapter" if write in _REPAIRS else remedy
        why = f"the remediator may not {write} ({said}), {remedy}"
        return Refusal(reason=WhyNot.MISSING_PERMISSION, permanent=lasting, why=why)
    refused = 400 <= code < 500
    if refused and write in _REPAIRS and code not in _PASSES - {404}:
        if code == 404 and write is NodeWrite.UNREPAIR:
            return None
        remedy = (
            "install the component of its adapter, kubectl gpuward preflight says what is missing"
            if _OWN_POLICY in said
            else "look at the adapter in the policy, at what it writes to, and at admission "
            "policies and webhooks"
        )
        return Refusal(reason=WhyNot.REPAIR_REFUSED, permanent=True, why=f"{not_let}, {remedy}")
    if refused and code not in _PASSES:
        ask, reason = "ask who runs the admission policy or webhook", WhyNot.TAINT_REFUSED
        if write in ON_SESSIONS:
            ask += ", or update the definitions of gpuward"
            reason = WhyNot.SESSION_REFUSED
        return Refusal(reason=reason, permanent=lasting, why=f"{not_let}, {ask}")
    if code == 500 and ErrorKind.WEBHOOK_AWAY in error_kinds(said):
        why = (
            "an admission webhook that does not answer keeps the remediator from being able to "
            f"{write} ({said}), ask who runs the webhook"
        )
        return Refusal(reason=WhyNot.TAINT_REFUSED, permanent=lasting, why=why)
    if write is NodeWrite.UNREPAIR and code >= 500:
        why = f"the API server fails when the remediator is to {write} ({said})"
        return Refusal(reason=WhyNot.REPAIR_REFUSED, why=f"{why}, it is tried again")
    return None


def repeated(
    write: NodeWrite, code: int, message: str, *, times: int, lasted_s: float
) -> Refusal | None:
    """What any answer but success means once it came `times` times in a row, over `lasted_s`
    seconds: None while trying again may help, then the answer's own words.

    An admission webhook may deny with every code, with those of a conflict or of a server that is
    busy too, and nothing but the repetition tells.
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
    said = " ".join(message.split())[:_SHOWN]
    return Refusal(
        reason=reason,
        permanent=lasted_s >= _PERMANENT_S and write is not NodeWrite.LABEL,
        why=f"the API server answers each attempt to {write} with {said}, it is tried again, look "
        "at admission webhooks and at the API server",
    )
