"""One session: the sentence, what blocks it and the remedy, the evidence, the drain, the
timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remediator.page.layout import page, trouble
from remediator.page.markup import Child, Element, el
from remediator.page.parts import (
    ago,
    bar,
    chip,
    evidence_lines,
    facts,
    live,
    node_link,
    nothing,
    section,
    spelled,
)
from remediator.page.runbook_page import runbook_link
from remediator.view import shapes
from remediator.view.text import duration
from rules.api.object_name import is_object_name
from rules.api.quarantine import (
    BlockedBy,
    Phase,
    RepairRequest,
    TimelineEntry,
    ValidationAttempt,
)
from rules.api.sentences import let_go_by, listed, still_leaving, total
from rules.api.timestamps import utc_of
from rules.session.repair.rungs import PASSED, LadderRung
from rules.session.status import PROPOSED

SHOWN_PODS = 20


def session_page(
    detail: shapes.SessionDetail, replica: shapes.ReplicaShown, now: float
) -> Element:
    """The whole document."""
    row = detail.session
    return page(
        f"{row.node}: {row.phase}",
        "/sessions",
        replica,
        trouble(replica),
        el("h1", node_link(row.node)),
        el("p.under", "session ", el("code", row.name)),
        live("state", "div.state", _state(detail, now)),
        live("blocks", "div", _blocked(detail)),
        section("evidence", "Why", live("why", "div", _why(detail, now))),
        section("drain", "Drain", live("drained", "div", _drain(detail.drain, now))),
        section("marks", "What keeps work off the node", live("marked", "div", marks_list(
            detail.marks, _unmarked(row)))),
        *_ladder(detail, now),
        *_tested(detail, now),
        section("timeline", "Timeline", live("steps", "div",
                                                   timeline_list(detail.timeline, now))),
        section("acts", "What you can do", *commands(row.node, detail.acts)),
    )  # fmt: skip


def _state(detail: shapes.SessionDetail, now: float) -> list[Element]:
    row = detail.session
    chips = [chip(row.phase), chip(row.severity)]
    if row.mode == "Shadow":
        chips.append(chip("Shadow"))
    chips.extend(chip(word) for word in row.conditions)
    held = "yes: it stays out after repair" if detail.hold and row.open else ""
    return [
        el("p.chips", chips),
        el("p.sentence", {"role": "status"}, row.message),
        facts(
            [
                (row.phase + " for", ago(row.phase_since, now)),
                ("Opened", ago(row.opened_at, now, after=" ago")),
                ("Level", row.level),
                ("Hold", held),
                ("Release asked by", detail.release_asked_by),
                ("Let go", _let_go(detail.repair_asked)),
            ]
        ),
    ]


def _let_go(asked: RepairRequest | None) -> str:
    """`RestartNode: ann let it go, the vendor is here on Monday`."""
    return f"{asked.step}: {let_go_by(asked)}" if asked is not None else ""


def _unmarked(row: shapes.SessionRow) -> str:
    gone = row.phase == Phase.NODE_GONE
    return "The node is gone." if gone else "Nothing of ours is on the node."


def _blocked(detail: shapes.SessionDetail) -> list[Element]:
    blocked = detail.drain.blocked if detail.drain else ()
    said = {detail.session.message}
    told = []
    for one in detail.conditions:
        if one.status != "True" or not one.message or one.message in said or blocked:
            continue
        if one.type == PROPOSED and any(one.message in message for message in said):
            continue  # what waits for a person says it with the command
        # What blocks it and what a person is needed for is mostly one sentence: said once.
        said.add(one.message)
        same = [c.type for c in detail.conditions
                if c.status == "True" and c.message == one.message]  # fmt: skip
        kinds = ", ".join(word if at == 0 else spelled(word) for at, word in enumerate(same))
        told.append(
            el("p.banner.warn", el("strong", f"{kinds}: "), one.message, *_runbook(one.reason))
        )
    if not blocked:
        return told
    why = next((one.reason for one in detail.conditions
                if one.type == "Blocked" and one.status == "True"), "")  # fmt: skip
    book = el("p", "What to do: ", *_runbook(why)) if _runbook(why) else None
    return [*told, section("blocked", "What blocks it", book, [_block(one) for one in blocked])]


def _runbook(reason: str) -> list[Child]:
    """A link to the page of a reason, where it has one."""
    link = runbook_link(f"blocked/{reason}.md", f"runbook {reason}")
    return [" ", link] if link is not None else []


def _block(block: BlockedBy) -> Element:
    lasting = "waiting cannot help" if block.permanent else "may clear by itself"
    kind = "bad" if block.permanent else "warn"
    budget: list[Child] = [el("span.quiet-word", "PodDisruptionBudget "), block.pdb]
    return el(
        f"article.block.{kind}",
        el("h3", budget if block.pdb else "Not a budget", " ", el(f"span.chip.{kind}", lasting)),
        el("p", block.why),
        facts(
            [
                ("Remedy", el("strong", block.remedy) if block.remedy else None),
                ("Pods", _pods(block.pods)),
                ("Owner", block.owner),
            ]
        ),
    )


def _pods(pods: Sequence[str]) -> Element | None:
    if not pods:
        return None
    named = listed(pods)[:SHOWN_PODS]
    more = total(pods) - len(named)
    return el(
        "ul.pods",
        [el("li", el("code", pod)) for pod in named],
        el("li", f"and {more} more") if more > 0 else None,
    )


def _why(detail: shapes.SessionDetail, now: float) -> list[Element]:
    asked = [
        el(
            "p",
            el("strong", cause.reason or cause.source),
            f" {'asked by ' + cause.by if cause.by else 'asked by a person'}: {cause.message}",
        )
        for cause in detail.causes
        if cause.source == "Human"
    ]
    told = [_incident(one, now) for one in detail.evidence]
    if not told:
        told = [
            el("article", el("h3", cause.reason, " ", chip(cause.severity)),
               evidence_lines([cause.message]) if cause.message else None)
            for cause in detail.causes
            if cause.source != "Human"
        ]  # fmt: skip
    return [*asked, *told, *_gpu_list(detail.gpus)]


def _incident(incident: shapes.IncidentEvidence, now: float) -> Element:
    return el(
        "article",
        el("h3", incident.reason, " ", chip(incident.severity)),
        facts(
            [
                ("First seen", ago(incident.first_seen, now, after=" ago")),
                ("Repair", incident.recommended_action),
            ]
        ),
        evidence_lines(incident.lines) if incident.lines else nothing("No line was kept."),
    )


def _gpu_list(gpus: Sequence[shapes.GpuIdentity]) -> list[Element]:
    if not gpus:
        return []
    told: list[Child] = []
    for gpu in gpus:
        index = f"GPU {gpu.index} " if gpu.index >= 0 else ""
        serial = f" serial {gpu.serial}" if gpu.serial else ""
        told.append(el("li", index, el("code", gpu.uuid), serial))
    return [el("ul.gpus", {"aria-label": "GPUs"}, told)]


def _drain(drain: shapes.DrainShown | None, now: float) -> list[Element]:
    if drain is None:
        return [nothing("Nothing was evicted: the drain has not begun.")]
    waiting, left = total(drain.waiting), total(drain.left_by_failure)
    stuck = sum(total(block.pods) for block in drain.blocked)
    leaving = still_leaving(drain.evicted, drain.recent, drain.waiting)
    gone = drain.evicted - len(leaving or ())
    whole = max(1, gone + waiting + stuck + left)
    on_it = f"{waiting} leaving or waiting, {stuck} blocked, {left} left by failure"
    words = f"{gone} gone, {on_it}" if leaving is not None else f"{gone} evicted; on it: {on_it}"
    parts = [
        ("ok", gone / whole),
        ("act", waiting / whole),
        ("bad", (stuck + left) / whole),
    ]
    suspended = drain.suspended_seconds
    return [
        el("p.progress", bar(parts, words), " ", words),
        facts(
            [
                ("Began", ago(drain.started_at, now, after=" ago") if drain.started_at else None),
                ("Clock stopped for", duration(suspended) if suspended else None),
                ("Leaving now", _pods(drain.waiting)),
                ("Left by policy", _pods(drain.left_by_policy)),
                ("Left by failure", _pods(drain.left_by_failure)),
                ("Evicted first", _pods(drain.recent)),
            ]
        ),
    ]


def marks_list(marks: Sequence[shapes.NodeMark], none: str) -> list[Element]:
    """Marks with their owners, or the sentence that there is none."""
    if not marks:
        return [nothing(none)]
    return [
        el(
            "ul.marks",
            [
                el("li", el("code", mark.what), " ",
                   el("span.quiet-word", mark.owner))
                for mark in marks
            ],
        )
    ]  # fmt: skip


def _ladder(detail: shapes.SessionDetail, now: float) -> list[Element]:
    """The steps of the repair from the lowest; nothing where there is none."""
    if not detail.ladder:
        return []
    steps = [_rung(rung, now) for rung in detail.ladder]
    return [section("ladder", "Repair", live("rungs", "div", el("ol", steps)))]


def _rung(rung: LadderRung, now: float) -> Element:
    by = f" by {rung.adapter}" if rung.adapter else ""
    times = f", attempt {rung.attempt} on this node" if rung.attempt else ""
    at = rung.ended_at or rung.started_at
    return el(
        "li",
        el("strong", rung.step),
        " ",
        el("span.chip.dim", "passed over") if rung.state == PASSED else chip(rung.state),
        f"{by}{times}",
        [", ", ago(at, now, after=" ago")] if at else None,
        f", {rung.said}" if rung.said else "",
    )


def _tested(detail: shapes.SessionDetail, now: float) -> list[Element]:
    """The tests under load, the last first; nothing where there was none."""
    if not detail.validation:
        return []
    told = [_test(test, now) for test in reversed(detail.validation)]
    return [section("tests", "Tests under load", live("tested", "div", told))]


def _test(test: ValidationAttempt, now: float) -> Element:
    checks: list[Child] = [
        el("li", chip(check.verdict), " ", check.id, " ", el("code", check.gpu),
           f" {check.value:g} {check.unit}" if check.value is not None else "",
           f", at least {check.floor:g}" if check.floor is not None else "",
           f"; {check.note}" if check.note else "")
        for check in test.checks
    ]  # fmt: skip
    return el(
        "article",
        el("h3", f"{test.provider} {test.attempt} ", chip(test.state)),
        el("p", test.message) if test.message else None,
        facts(
            [
                ("Began", ago(test.started_at, now, after=" ago")),
                ("Ended", ago(test.ended_at, now, after=" ago") if test.ended_at else None),
                ("Job", el("code", test.object)),
            ]
        ),
        el("ul.pods", checks) if checks else None,
    )


def timeline_list(timeline: Sequence[TimelineEntry], now: float) -> list[Element]:
    """Steps with their times; shown as they come, a session's own the last first."""
    if not timeline:
        return [nothing("Nothing has happened yet.")]
    return [
        el(
            "ol.timeline",
            [
                el(
                    "li",
                    el("time", {"datetime": step.at}, utc_of(step.at, seconds=True)),
                    el(
                        "div",
                        el("p", chip(step.step), " ", ago(step.at, now, after=" ago"),
                           el("span.quiet-word", f" by {step.by}") if step.by
                           else None),
                        el("p", step.message) if step.message else None,
                    ),
                )
                for step in reversed(timeline)
            ],
        )
    ]  # fmt: skip


def commands(node: str, acts: Iterable[shapes.PersonsAct]) -> list[Element]:
    """What a person types about a node, each to be copied with one click; `acts` what changes
    something now. A session can name what no node can be called: that is nothing to paste.
    """
    if not is_object_name(node):
        return [nothing("No node can be called so: there is nothing to type.")]
    lines = [
        (f"kubectl gpuward why {node}", "the same in the terminal"),
        *((act.command, act.does) for act in acts),
        (f"kubectl gpuward history {node}", "every session of this node"),
        (f"kubectl gpuward bundle {node}", "what support asks for"),
    ]
    return [
        facts([(why, el("code.copy", line)) for line, why in lines], kind="commands"),
        el("p.more", "This page only shows; who acts is known by kubectl and RBAC."),
    ]
