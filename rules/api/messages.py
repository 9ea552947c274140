"""The sentences people read: one each, what was done, what is next, what blocks it.

Stable across cycles (sorted input, clock times instead of ages) and bounded: nothing in a sentence
grows with the number of pods, only counts do. Used for `status.message`, conditions and Events.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rules.api import quarantine, timestamps
from rules.api.quarantine import BlockedBy, Cause, DrainStatus, PodNote, Pods, RepairRequest
from rules.text.printable import printable

_MINUTE_S: Final = 60.0
"""What is distinguished where moments are told to the minute."""
_NAMED: Final = 3
"""How many names a sentence spells out before it counts (as Cluster API does)."""


def name_list(names: Iterable[str], limit: int = _NAMED) -> str:
    """`a, b, c and 4 more`: sorted, at most `limit` spelled out."""
    ordered = sorted(set(names))
    shown = ", ".join(name[:120] for name in ordered[:limit])
    rest = len(ordered) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def pod_list(pods: Pods) -> str:
    """`team/a, team/b (DaemonSet), team/c and 4 more`: a few by name, and how many more."""
    named = pods.named[:_NAMED]
    rest = pods.total - len(named)
    shown = ", ".join(pod_label(note)[:120] for note in named)
    return f"{shown} and {rest} more" if rest > 0 else shown


def pod_label(note: PodNote) -> str:
    """`team/a (DaemonSet)`."""
    return f"{note.name} ({note.why})" if note.why else note.name


def bounded(text: str) -> str:
    """One line of at most `MAX_MESSAGE` characters; what is not printable as its escape, as
    everywhere else.
    """
    line = printable(text)
    return shortened(line, quarantine.MAX_MESSAGE)


def shortened(text: str, most: int) -> str:
    """The text in at most `most` characters: cut after an entire word, with an ellipsis."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    words = head if text[most - 1] == " " else head.rpartition(" ")[0]
    # One word that fills half of it is cut: an address, a list without blanks.
    return (words if len(words) > most // 2 else head).rstrip(" ,;:(") + "…"


def causes_clause(causes: Sequence[Cause]) -> str:
    """`Xid79GPUFallenOffBus (Fatal)` for each cause; an operator's request names the operator."""
    words = [
        f"{cause.reason or 'request'} by {cause.by or 'an operator'}"
        if cause.source == "Human"
        else f"{cause.reason} ({cause.severity})"
        for cause in causes
    ]
    return name_list(words) or "no open cause"


def approved_by(asked: RepairRequest) -> str:
    """`ann let it go at 2026-01-31 12:03 UTC, the vendor is here on Monday`: as a release says
    it, with the time where it is known.
    """
    at = timestamps.parse_time(asked.at)
    when = f" at {timestamps.utc(at)}" if at is not None else ""
    return (
        f"{asked.by or 'an operator'} let it go{when}{f', {asked.reason}' if asked.reason else ''}"
    )


def pending(causes: Sequence[Cause], since: float, why: str) -> str:
    """Wants to act and may not yet."""
    return bounded(
        f"Waiting since {timestamps.utc(since)} to quarantine it for {causes_clause(causes)}: "
        f"{why}; nothing was done to the node so far."
    )


_MARKS: Final = {
    "CordonAndTaint": "Cordoned and tainted",
    "Taint": "Tainted",
    "Cordon": "Cordoned",
}


def tainted(causes: Sequence[Cause], since: float, next_step: str, mark: str) -> str:
    """The taint and cordon is on; `mark` is the policy's word for what it is made of."""
    return bounded(
        f"{_MARKS.get(mark, 'Marked')} since {timestamps.utc(since)} for {causes_clause(causes)}; "
        f"{next_step}."
    )


def shadow(causes: Sequence[Cause], since: float, would: str, nobody: str = "") -> str:
    """The taint and cordon is virtual; `nobody` says that nobody chose that, "" where somebody
    did.
    """
    touched = f"nothing is touched, {nobody}" if nobody else "nothing is touched"
    return bounded(
        f"Shadow since {timestamps.utc(since)}: {causes_clause(causes)} {would}; {touched}."
    )


def would_drain(drain: DrainStatus) -> str:
    """What the dry runs of a Shadow session answered, in counts."""
    blocked = sum(block.pods.total for block in drain.blocked)
    return (
        f"{drain.waiting.total} would leave, {blocked} blocked, "
        f"{drain.left_by_policy.total} left by policy"
    )


def still_terminating(drain: DrainStatus) -> list[PodNote] | None:
    """Of the pods that were evicted those that are not gone yet, so that nobody counts them twice;
    None where not every pod is named.
    """
    waiting = drain.waiting
    if waiting.total and (drain.evicted > len(drain.recent) or waiting.more):
        return None
    return [note for note in waiting.named if note.name in drain.recent]


def draining(
    drain: DrainStatus,
    since: float,
    blocked_by: str,
    *,
    halted: bool = False,
    leaves_by: float | None = None,
) -> str:
    """Where the drain stands, CAPI-shaped; `halted`: where it stood when it was last checked,
    since nobody looks at the pods of a drain that stands still. `leaves_by`: when the last pod
    that was told to go and has a long grace of its own must have gone; others wait for their turn.
    """
    parts = [f"Draining since {timestamps.utc(since)}: {drain.evicted} evicted"]
    then = " when last checked" if halted else ""
    until = (
        f", those with a long grace until {timestamps.utc(leaves_by)}"
        if leaves_by is not None
        else ""
    )
    leaving = still_terminating(drain)
    if leaving is None:
        pods = f"{drain.waiting.total} still on it, leaving or waiting{then}"
        parts.append(f"{pods} ({pod_list(drain.waiting)}){until}")
    else:
        others = quarantine.pods_of(note for note in drain.waiting.named if note not in leaving)
        if leaving:
            which = pod_list(quarantine.pods_of(leaving))
            of_them = f"{len(leaving)} of them still leaving{then} ({which})"
            parts.append(f"{of_them}{until}")
            until = ""
        if others.total:
            parts.append(f"{others.total} leaving or waiting{then} ({pod_list(others)}){until}")
    if drain.left_by_policy.total:
        parts.append(f"{drain.left_by_policy.total} left by policy")
    if drain.left_by_failure.total:
        parts.append(
            f"{drain.left_by_failure.total} left by failure ({pod_list(drain.left_by_failure)})"
        )
    text = ", ".join(parts)
    return bounded(f"{text}; {blocked_by}." if blocked_by else f"{text}.")


def blocked_clause(blocked: Sequence[BlockedBy]) -> str:
    """Who blocks the drain and what to do, the permanent ones first."""
    if not blocked:
        return ""
    first = min(blocked, key=lambda block: (not block.permanent, block.pdb, block.why))
    lasting = "permanent" if first.permanent else "for now"
    what = f"PDB {first.pdb}" if first.pdb else pod_list(first.pods)
    more = f" and {len(blocked) - 1} more" if len(blocked) > 1 else ""
    owner = f", owner {first.owner}" if first.owner else ""
    remedy = f": {first.remedy}" if first.remedy else ""
    return f"blocked by {what}{more} ({lasting}: {first.why}{owner}){remedy}"


def drained(
    causes: Sequence[Cause],
    since: float,
    drain: DrainStatus | None,
    then: str,
    also: Sequence[str] = (),
) -> str:
    """Drained; `then` is what is next: the step of the repair ladder, or whose turn it is. `also`
    are further clauses.
    """
    counts = ""
    if drain is not None:
        counts = (
            f" ({drain.evicted} evicted, {drain.left_by_policy.total} left by policy, "
            f"{drain.left_by_failure.total} left by failure)"
        )
    # No health status closes what an operator asked for.
    people = bool(causes) and all(cause.source == "Human" for cause in causes)
    waits = "waiting for an operator to release the node" if people else then
    clauses = "; ".join(
        [f"Drained at {timestamps.utc(since)}{counts} for {causes_clause(causes)}", waits, *also]
    )
    return bounded(f"{clauses}.")


def unscheduled_pods(pods: Sequence[str]) -> str:
    """Pods that a controller or an operator bound to a drained node by name."""
    came = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    return (
        f"{came} came past the scheduler since ({name_list(pods)}), delete them and make their "
        "owner respect the cordon"
    )


def closed_clause(reported: Sequence[Cause]) -> str:
    """Why nothing asks for the quarantine any more; `reported` hold, and the policy only says
    so.
    """
    return (
        f"the policy only reports {causes_clause(reported)}" if reported else "all causes closed"
    )


def validating(
    since: float,
    until: float,
    blocked_by: str,
    reported: Sequence[Cause] = (),
    closed_at: float | None = None,
    until_then: str = "",
    also: Sequence[str] = (),
) -> str:
    """Nothing asks for the quarantine any more; proving it. `since` is when the healthy time began
    that counts, `closed_at` when the last cause closed: earlier where nobody saw the node then,
    and `until_then` how it was before. `also` are further clauses.
    """
    clause = closed_clause(reported)
    settled = f"{clause[0].upper()}{clause[1:]}"
    if reported or closed_at is not None or not until_then:
        known_at = since if reported or closed_at is None else min(closed_at, since)
        settled += f" {'since' if reported else 'at'} {timestamps.utc(known_at)}"
        later = since - known_at >= _MINUTE_S
    else:
        later = True  # and nobody knows when they closed
    if later:
        why = f" (until then: {until_then})" if until_then else ""
        settled += f", its healthy time counts from {timestamps.utc(since)} on{why}"
    stays = "nothing else comes up" if reported else "the node stays healthy"
    then = (
        f"not released: {blocked_by}"
        if blocked_by
        else f"released at {timestamps.utc(until)} if {stays}"
    )
    return bounded(f"{'; '.join([settled, then, *also])}.")


def ended(phase: str, why: str, left: str, annotations: tuple[str, ...] = ()) -> str:
    """The session is history; `left` says why the cordon stays, `annotations` stay as well."""
    stays = f"; the node stays cordoned because {left}" if left else ""
    if annotations:
        stays += f"; {' and '.join(annotations)} stay on it, take off what nobody else set"
    return bounded(f"{phase}: {why}{stays}.")
