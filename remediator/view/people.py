"""A node and its session in short words: what people decided, what waits for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from remediator.view.times import age, span
from rules.api.health import HealthStatus
from rules.api.metadata import LabelSelector
from rules.api.names import ANNOTATION_HOLD
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView
from rules.api.quarantine import Cause, Mode, Phase
from rules.api.selectors import spelled
from rules.api.sentences import some
from rules.api.timestamps import utc_of
from rules.catalog.reason import Level
from rules.catalog.why_not import WhyNot
from rules.fleet.node_health import apart_s
from rules.session.observation import is_open, opted_out, pause_covers, pause_doubt, pause_over
from rules.session.status import condition, is_true
from rules.text.printable import printable

HELD, PAUSED, OPTED_OUT = "held", "paused", "opted out"
MUST_APPROVE, MUST_ACT, MUST_RELEASE = "must approve", "must act", "must release"
"""Nothing goes on before a person lets it, does something about it, or ends what only people ask
for.
"""
MUSTS: Final = frozenset({MUST_APPROVE, MUST_ACT, MUST_RELEASE})
_AT_REST: Final = frozenset({Phase.MARKED, Phase.QUARANTINED})
_DECIDED: Final = frozenset({WhyNot.HOLD, WhyNot.PAUSED, WhyNot.OPT_OUT})
"""A session that waits for one of these waits for what a person decided: said so already."""


def part_of_people(
    node: NodeView | None,
    session: QuarantineView | None,
    pauses: Iterable[PauseView],
    now: float,
    health: HealthView | None = None,
) -> tuple[str, ...]:
    """What people decided about a node, and what its session, open or not let go of, needs them
    for; of causes by `health`, where it is known and can be believed.
    """
    opened = session if session is not None and is_open(session) else None
    said = decided(node, opened, pauses, now)
    must = must_of(session) if session is not None else ""
    # A pause covers many nodes and ends: it does not answer what one of them needs.
    decided_alone = set(said) - {PAUSED}
    if not must and not decided_alone and opened and _only_people_ask(opened, health):
        must = MUST_RELEASE
    return (*said, *([must] if must else ()))


def _only_people_ask(session: QuarantineView, health: HealthView | None) -> bool:
    """Whether a session that has done all it will do stays for a person's request alone, which no
    verdict closes.
    """
    incidents = health.status.incidents if health is not None else ()
    closed = {incident.id for incident in incidents if not incident.active}
    return _rests_for_people(session) and all(c.incident in closed for c in _of_others(session))


def faults_over(session: QuarantineView, health: HealthView | None) -> bool:
    """Whether its faults are over by that verdict and a person's wish alone keeps the node out."""
    return bool(_of_others(session)) and _only_people_ask(session, health)


def _rests_for_people(session: QuarantineView) -> bool:
    phase, spec = session.status.phase, session.spec
    drains_yet = phase == Phase.MARKED and spec.level == Level.DRAIN
    if phase not in _AT_REST or drains_yet or session.status.mode == Mode.SHADOW:
        return False
    return len(_of_others(session)) < len(spec.causes) and spec.release is None


def _of_others(session: QuarantineView) -> list[Cause]:
    return [cause for cause in session.spec.causes if cause.source != "Human"]


def must_of(session: QuarantineView) -> str:
    """What a person must do before the session goes on; "" where it needs none, or waits for what
    people decided.
    """
    needed = condition(session.status, "NeedsHuman")
    if needed is None or needed.status != "True" or session.spec.release is not None:
        return ""
    if needed.reason in _DECIDED:
        return ""
    return MUST_APPROVE if needed.reason == WhyNot.APPROVAL else MUST_ACT


def decided(
    node: NodeView | None,
    session: QuarantineView | None,
    pauses: Iterable[PauseView],
    now: float,
) -> tuple[str, ...]:
    """What people said about one node; of a node that may not be read what its session shows."""
    held = session is not None and session.spec.hold
    paused = session is not None and is_paused(session)
    if node is not None:
        held = held or ANNOTATION_HOLD in node.annotations
        paused = any(pause_covers(pause, node, now) for pause in pauses)
    out = node is not None and opted_out(node)
    words = ((HELD, held), (PAUSED, paused), (OPTED_OUT, out))
    return tuple(word for word, said in words if said)


def is_paused(session: QuarantineView) -> bool:
    """Of what halts a session only a pause; an opt-out or another owner is not one."""
    said = (condition(session.status, kind) for kind in ("Paused", "Blocked"))
    return any(c is not None and c.status == "True" and c.reason == WhyNot.PAUSED for c in said)


def pause_lines(pauses: Iterable[PauseView], now: float) -> list[str]:
    """The pauses in force, one line each: whoever looks at anything must know of them."""
    return [
        pause_line(pause, now)
        for pause in sorted(pauses, key=lambda one: one.metadata.name)
        if not pause_over(pause, now)
    ]


def pause_line(pause: PauseView, now: float) -> str:
    """`paused for 20m by ann (pause-1a2b3c4d), all nodes, until TIME: reason`."""
    spec = pause.spec
    until = f", until {utc_of(spec.until)}" if spec.until else ""
    since = age(pause.metadata.creation_timestamp, now)
    return printable(
        f"paused for {since} by {spec.by or 'a person'} ({pause.metadata.name}), "
        f"{pause_scope(pause)}{until}: {spec.reason or 'no reason given'}"
    )


def pause_scope(pause: PauseView) -> str:
    """Which nodes a pause covers, in words."""
    scope = pause.spec.scope
    if doubt := pause_doubt(pause):
        return f"all nodes, because {doubt}"
    if scope.all:
        return "all nodes"
    said = [some(scope.nodes)] if scope.nodes else []
    if scope.node_selector is not None:
        selector = msgspec.convert(scope.node_selector, LabelSelector)
        said.append(f"nodes with {spelled(selector)[:200]}" if spelled(selector) else "every node")
    return " and ".join(said)


def mark_stays(session: QuarantineView) -> bool:
    """Whether it has ended and its mark could not be taken off: the node is still out."""
    return not is_open(session) and is_true(session.status, "Blocked")


def degraded_of(status: HealthStatus) -> str:
    """What follows "8/8 GPUs usable", where the verdict tells how many of them are degraded."""
    degraded = sum(gpu.health == "Degraded" for gpu in status.gpus)
    return f", {degraded} of them degraded" if degraded else ""


def clock_said(node: NodeView | None, health: HealthView | None, now: float) -> str:
    """Which way, how far, and what that means; "" of a clock that is right as far as is known."""
    apart = apart_s(node, health, now)
    if not apart:
        return ""
    way = "ahead of" if apart > 0 else "behind"
    return (
        f"the node's clock is {span(abs(apart))} {way} the API server's: the times of its faults "
        f"are, too, while deadlines and healthy time go by the API server's; {_meanwhile(apart)}"
        "see to its NTP"
    )


def _meanwhile(apart: float) -> str:
    """What is believed less."""
    if apart > 0:
        return ""
    return "a reset or boot that it dates before the request proves no repair; "
