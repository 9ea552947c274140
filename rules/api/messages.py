"""Format the messages of a session: `status.message`, conditions and Events.

A message states what was done, what blocks the session and what is next. It does not change
between cycles: names are sorted, and the times are in other fields (`phaseSince`, `until`, the
timeline). Its length does not depend on the number of pods.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rules.api import quarantine
from rules.api.quarantine import (
    BlockedBy,
    Cause,
    DrainStatus,
    IsolatedDevice,
    PodNote,
    Pods,
    RepairRequest,
)
from rules.catalog.reason import DrainScope
from rules.catalog.why_not import Refusal
from rules.text.printable import printable

_NAMED: Final = 3
"""How many names a message lists before it counts the rest, as Cluster API does."""


def name_list(names: Iterable[str], limit: int = _NAMED) -> str:
    """Return `a, b, c and 4 more`: the sorted names, at most `limit` of them."""
    ordered = sorted(set(names))
    shown = ", ".join(name[:120] for name in ordered[:limit])
    rest = len(ordered) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def pod_list(pods: Pods) -> str:
    """Return `team/a, team/b (DaemonSet), team/c and 4 more`."""
    named = pods.named[:_NAMED]
    rest = pods.total - len(named)
    shown = ", ".join(pod_label(note)[:120] for note in named)
    return f"{shown} and {rest} more" if rest > 0 else shown


def pod_label(note: PodNote) -> str:
    """Return `team/a (DaemonSet)`: the pod and why it is listed."""
    return f"{note.name} ({note.why})" if note.why else note.name


def bounded(text: str) -> str:
    """Return one line of at most `MAX_MESSAGE` characters, unprintable characters escaped."""
    return shortened(printable(text), quarantine.MAX_MESSAGE)


def shortened(text: str, most: int) -> str:
    """Return the text in at most `most` characters, cut at a space, with an ellipsis."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    at_space = head if text[most - 1] == " " else head.rpartition(" ")[0]
    # An address or a list without spaces is cut anywhere.
    return (at_space if len(at_space) > most // 2 else head).rstrip(" ,;:(") + "…"


def sentence(clause: str) -> str:
    """Return the clause with a capital letter and a full stop; a name keeps its lower case."""
    first, _, _ = clause.partition(" ")
    text = f"{clause[:1].upper()}{clause[1:]}" if first.isalpha() else clause
    return text if not text or text.endswith((".", "…")) else f"{text}."


def causes_clause(causes: Sequence[Cause]) -> str:
    """Return `Xid79GPUFallenOffBus (Fatal)` for each cause, or who requested the quarantine."""
    named = [
        f"{cause.reason or 'request'} by {cause.by or 'an operator'}"
        if cause.source == "Human"
        else f"{cause.reason} ({cause.severity})"
        for cause in causes
    ]
    return name_list(named) or "no open cause"


def approved_by(asked: RepairRequest) -> str:
    """Return `approved by ann: the vendor is here on Monday`."""
    reason = f": {asked.reason}" if asked.reason else ""
    return f"approved by {asked.by or 'an operator'}{reason}"


def pending(causes: Sequence[Cause], why: str) -> str:
    """Return the message of a session that may not quarantine its node yet."""
    clause = causes_clause(causes)
    return bounded(f"Quarantine pending: {clause}. {sentence(why)} The node is unchanged.")


_TAINTED: Final = {
    "CordonAndTaint": "Cordoned and tainted",
    "Taint": "Tainted",
    "Cordon": "Cordoned",
}


def isolated_devices(devices: Sequence[IsolatedDevice]) -> str:
    """Return `device gpu-3 (GPU-8c3...)` for each isolated device; "" if there are none."""
    named = name_list([f"{each.device or 'unpublished'} ({each.uuid})" for each in devices])
    return f"{'device' if len(devices) == 1 else 'devices'} {named}" if named else ""


def tainted(
    causes: Sequence[Cause],
    next_step: str,
    parts: str,
    devices: Sequence[IsolatedDevice] = (),
) -> str:
    """Return the message of a tainted and cordoned node, or of one with isolated `devices`;
    `parts` is the policy's `mark`.
    """
    isolated = f"Isolated {isolated_devices(devices)}" if devices else ""
    done = isolated or _TAINTED.get(parts, "Quarantined")
    return bounded(f"{done} for {causes_clause(causes)}. {sentence(next_step)}")


def shadow(causes: Sequence[Cause], would: str, why: str = "") -> str:
    """Return the message of a Shadow session; `why` explains a Shadow that no policy asks for."""
    unchanged = f"The node is unchanged{f': {why}' if why else ''}."
    return bounded(f"Shadow mode: {causes_clause(causes)}. {sentence(would)} {unchanged}")


def would_drain(drain: DrainStatus) -> str:
    """Return the results of a Shadow session's dry-run evictions, as counts."""
    blocked = sum(block.pods.total for block in drain.blocked)
    return (
        f"{drain.waiting.total} evicted, {blocked} blocked, "
        f"{drain.left_by_policy.total} skipped by policy"
    )


def still_terminating(drain: DrainStatus) -> list[PodNote] | None:
    """Return the evicted pods that still terminate; None if the status does not name all pods."""
    waiting = drain.waiting
    if waiting.total and (drain.evicted > len(drain.recent) or waiting.more):
        return None
    return [note for note in waiting.named if note.name in drain.recent]


def draining(
    drain: DrainStatus, blocked_by: str, *, halted: bool = False, long_grace: bool = False
) -> str:
    """Return the progress of the drain and what blocks it.

    `halted`: the pods are not listed now, so the counts are those of the last list. `long_grace`:
    an evicted pod has a long grace period.
    """
    parts: list[str] = []
    then = " when last checked" if halted else ""
    grace = ", in a long grace period" if long_grace else ""
    terminating = still_terminating(drain)
    of = ""
    if terminating is None:
        pods = f"{drain.waiting.total} terminating or waiting{then}"
        parts.append(f"{pods} ({pod_list(drain.waiting)}){grace}")
    else:
        others = quarantine.pods_of(
            note for note in drain.waiting.named if note not in terminating
        )
        blocked = sum(block.pods.total for block in drain.blocked)
        of = f"/{drain.evicted + others.total + blocked + drain.left_by_failure.total}"
        if terminating:
            which = pod_list(quarantine.pods_of(terminating))
            parts.append(f"{len(terminating)} of them still terminating{then} ({which}){grace}")
            grace = ""
        if others.total:
            listed = pod_list(others)
            parts.append(f"{others.total} terminating or waiting{then} ({listed}){grace}")
    if drain.left_by_policy.total:
        parts.append(f"{drain.left_by_policy.total} skipped by policy")
    if drain.left_by_failure.total:
        parts.append(
            f"{drain.left_by_failure.total} failed to leave ({pod_list(drain.left_by_failure)})"
        )
    pods = "pod" if not of and drain.evicted == 1 else "pods"
    pods = f"{'GPU ' if drain.scope in _GPU_PODS else ''}{pods}"
    evicted = f"Draining: {drain.evicted}{of} {pods} evicted"
    return bounded(f"{', '.join([evicted, *parts])}. {sentence(blocked_by)}".rstrip())


def notice(refused: Refusal | None) -> str:
    """Return that the drain waits for `drain.notice`, and why a pod is not notified."""
    if refused is None:
        return "the pods were notified. Evictions start when drain.notice has passed"
    return f"{refused.why}. Evictions start when drain.notice has passed. {refused.remedy}"


_GPU_PODS: Final = frozenset({DrainScope.GPU_PODS, DrainScope.HOLDERS})


def holders_unknown(pods: Sequence[str]) -> str:
    """Return which pods leave because it is not known which GPUs they use, as a clause."""
    return f"it is not known which GPUs are used by {name_list(pods)}" if pods else ""


def staying_clause(drain: DrainStatus | None) -> str:
    """Return which pods the scope of the drain leaves on the node, as a clause; "" if none."""
    scope = drain.scope if drain is not None else ""
    why = f" ({drain.scope_reason})" if drain is not None and drain.scope_reason else ""
    if scope == DrainScope.GPU_PODS:
        return f"pods without GPUs stay{why}"
    return f"pods that do not use the accused GPUs stay{why}" if scope in _GPU_PODS else ""


def blocked_clause(blocked: Sequence[BlockedBy]) -> str:
    """Return what blocks the drain and the remedy; a block that waiting cannot end comes first."""
    if not blocked:
        return ""
    first = min(blocked, key=lambda block: (not block.permanent, block.pdb, block.why))
    now = "" if first.permanent else " now"
    what = f"PDB {first.pdb} allows no disruption{now}"
    if not first.pdb:
        pods = "Pod" if first.pods.total == 1 else "Pods"
        what = f"{pods} {pod_list(first.pods)} cannot be evicted{now}"
    owner = f" (owner {first.owner})" if first.owner else ""
    more = f" {len(blocked) - 1} more {'blocks' if len(blocked) == 2 else 'block'} the drain."
    more = more if len(blocked) > 1 else ""
    return f"{what}: {first.why}{owner}. {sentence(first.remedy)}{more}".strip().removesuffix(".")


def drained(
    causes: Sequence[Cause],
    drain: DrainStatus | None,
    then: str,
    also: Sequence[str] = (),
) -> str:
    """Return the message of a drained node; `then` is the next step, `also` are more clauses."""
    counts = ""
    if drain is not None:
        counts = (
            f" ({drain.evicted} evicted, {drain.left_by_policy.total} skipped by policy, "
            f"{drain.left_by_failure.total} failed to leave)"
        )
    # No health status closes what an operator requested.
    manual = bool(causes) and all(cause.source == "Human" for cause in causes)
    then = "waiting for an operator to release the node" if manual else then
    first = f"Drained{counts} for {causes_clause(causes)}"
    clauses = (first, staying_clause(drain), then, *also)
    return bounded(" ".join(filter(None, map(sentence, clauses))))


def unscheduled_pods(pods: Sequence[str]) -> str:
    """Return which pods were bound to a drained node by `spec.nodeName`, and what to do."""
    came = "1 pod was" if len(pods) == 1 else f"{len(pods)} pods were"
    return (
        f"{came} bound to the drained node without the scheduler ({name_list(pods)}). Delete "
        f"{'it and make its' if len(pods) == 1 else 'them and make their'} owner respect the "
        "cordon"
    )


def closed_clause(reported: Sequence[Cause]) -> str:
    """Return why the quarantine is not needed any more; the policy only reports `reported`."""
    return (
        f"the policy only reports {causes_clause(reported)}" if reported else "all causes closed"
    )


def validating(
    blocked_by: str,
    reported: Sequence[Cause] = (),
    restarted: str = "",
    also: Sequence[str] = (),
) -> str:
    """Return the message of a node that has to stay healthy until its release.

    `restarted`: why the healthy time restarted. `also` are more clauses.
    """
    settled = [closed_clause(reported)]
    settled += [f"healthy time restarted: {restarted}"] if restarted else []
    stays = "no other cause opens" if reported else "it stays healthy"
    then = f"not released: {blocked_by}" if blocked_by else f"the node is released if {stays}"
    return bounded(" ".join(map(sentence, (*settled, then, *also))))


def ended(phase: str, why: str, left: str, annotations: tuple[str, ...] = ()) -> str:
    """Return the message of an ended session.

    `left` is why the node stays cordoned. `annotations` stay on the node, too.
    """
    stays = f" The node stays cordoned because {left}." if left else ""
    if annotations:
        stays += f" {' and '.join(annotations)} stay on the node. Remove what no other tool set."
    return bounded(f"{phase}: {why}.{stays}")
