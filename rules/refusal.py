"""A write on a node that the API server refused: what a session says about it, and the remedy.

The loop's edge calls ``refusal_of`` with the answer and hands the result to the next decision
(``rules.session_observation``), which waits and says so instead of sending the same again.
"""

from dataclasses import dataclass

_ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy", "denied the request")
"""What the API server's admission says in a 403 of its own; everything else there is RBAC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A stable word for the condition and a clause with the remedy."""

    reason: str
    clause: str


def refused_by_admission(message: str) -> bool:
    """Whether a 403 comes from a webhook or policy: granting a verb would not help."""
    return any(word in message for word in _ADMISSION)


def refusal_of(code: int, message: str) -> Refusal | None:
    """What a refused patch of the node means; None for answers that are no refusal."""
    said = " ".join(message.split())[:300]
    if code == 401:
        return Refusal(
            reason="MissingPermission",
            clause=f"the API server does not know the remediator any more ({said}), check its "
            "service account and token",
        )
    if code == 403 and not refused_by_admission(said):
        return Refusal(
            reason="MissingPermission",
            clause=f"the remediator may not mark the node ({said}), grant it patch on nodes",
        )
    if code in {400, 403, 413, 422}:
        return Refusal(
            reason="MarkRefused",
            clause=f"the API server refuses the mark ({said}), ask who runs the admission "
            "policy or webhook",
        )
    return None
