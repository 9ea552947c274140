"""A session, and GPUs, in the few words of a table. Pure; no command waits for its imports."""

from __future__ import annotations

from rules.api.health import HealthStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, gravest_reason
from rules.api.timestamps import utc
from rules.session.observation import is_open
from rules.session.reuse import taken_up_at, wanted_at
from rules.session.status import is_true


def phase_words(session: QuarantineView) -> str:
    """The phase, and whether it is only a shadow."""
    phase = session.status.phase or "Pending"
    return f"{phase} (Shadow)" if session.status.mode == Mode.SHADOW else phase


def mark_stays(session: QuarantineView) -> bool:
    """Whether it has ended and its mark could not be taken off: the node is still out."""
    return not is_open(session) and is_true(session.status, "Blocked")


def leading_reason(session: QuarantineView) -> str:
    """The gravest cause, and how many more there are: what came first may be the least of it."""
    causes = session.spec.causes
    more = f" +{len(causes) - 1}" if len(causes) > 1 else ""
    return f"{gravest_reason(causes)}{more}"


def opened_words(session: QuarantineView, *, seconds: bool = False) -> str:
    """Since when it has been open, or was until its end; `anew` of one that had ended before."""
    again = taken_up_at(session)
    at = utc(wanted_at(session), seconds=seconds) if session.metadata.created_at else ""
    return f"{at}, anew" if again is not None else at


def askers(session: QuarantineView) -> str:
    """Who asked for it: people by name, else gpuward."""
    people = {cause.by or "a person" for cause in session.spec.causes if cause.source == "Human"}
    return ", ".join(sorted(people)) or "gpuward"


def degraded_of(status: HealthStatus) -> str:
    """What follows "8/8 GPUs usable", where the verdict tells how many of them are degraded."""
    degraded = sum(gpu.health == "Degraded" for gpu in status.gpus)
    return f", {degraded} of them degraded" if degraded else ""
