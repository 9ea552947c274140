"""`policy.external`: causes from conditions, annotations, labels and taints of other tools.

Each trigger matches one value that a detector, a provider or a script sets on a Node, and defines
the cause for it. `rules.policy.reader` reads it; `rules.session.external` matches it with nodes.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from rules.api import names, object_name
from rules.catalog.reason import Action, Level, Severity, is_reason_code
from rules.policy.section import Seconds, Section

MAX_TRIGGERS: Final = 32
"""Each trigger is matched with every changed node; a detector has a few conditions."""
MAX_VALUE_CHARS: Final = 256
OWN: Final = frozenset(
    {
        names.CONDITION_DEGRADED,
        names.CONDITION_HEALTHY,
        names.CONDITION_NEEDS_REPLACE,
        names.CONDITION_NEEDS_RESET,
        names.CONDITION_NEEDS_RESTART,
        names.CONDITION_VALIDATED,
        "node.kubernetes.io/unschedulable",
    }
)
"""Conditions and taints of gpuward itself: a cause of them would never close."""
_STATUSES: Final = ("True", "False", "Unknown")
_REASON: Final = re.compile(r"[A-Za-z0-9_,:.-]{1,128}\*?")
_EFFECTS: Final = {
    "taint": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "deviceTaint": ("NoSchedule", "NoExecute", "None"),
}
_SHAPES: Final = (
    "condition TYPE=STATUS:REASON, annotation KEY=VALUE, label KEY=VALUE, "
    "taint KEY=VALUE:EFFECT or deviceTaint DRIVER KEY=VALUE:EFFECT"
)


class Match(str):
    """A match for a Node, in the notation of kubectl: `taint KEY=VALUE:EFFECT`."""

    kind: str
    """condition, annotation, label, taint or deviceTaint."""
    driver: str
    """The DRA driver of a device taint; "" for the others."""
    name: str
    """Type of the condition, else the key. For a device taint, a `*` at the end stands for any
    text."""
    value: str | None
    """None: any value. For a condition, the status; default `True`."""
    effect: str | None
    """For a taint; None: any, for a device taint NoSchedule and NoExecute."""
    reason: str | None
    """For a condition; None: any. A `*` at the end stands for any text."""


def parse_match(text: object) -> Match:
    """Parse `text`; ValueError has the problem and the correct format."""
    match = Match(text)
    match.kind, _, rest = match.partition(" ")
    if match.kind not in {"condition", "annotation", "label", *_EFFECTS}:
        raise ValueError(f"{text!r:.80} is no match; write {_SHAPES}")
    of_device = match.kind == "deviceTaint"
    match.driver, _, rest = rest.strip().partition(" ") if of_device else ("", "", rest)
    if of_device and not object_name.is_object_name(match.driver):
        raise ValueError(f"{match.driver!r:.80} is no DRA driver; write {_SHAPES}")
    has_end = match.kind in {"condition", *_EFFECTS}
    rest, colon, end = rest.partition(":") if has_end else (rest, "", "")
    match.name, given, value = rest.strip().partition("=")
    match.value = value if given else None
    match.effect = (end or None) if match.kind in _EFFECTS else None
    match.reason = end if match.kind == "condition" and colon else None
    example = f"{match.name[:-1]}x" if of_device and match.name.endswith("*") else match.name
    if not object_name.is_label_key(example):
        what = "condition type" if match.kind == "condition" else f"{match.kind} key"
        raise ValueError(f"{match.name!r:.80} is no {what}")
    if match.name in OWN or match.name.startswith(f"{names.PREFIX}/"):
        raise ValueError(f"{match.name} is written by gpuward itself")
    if match.kind == "condition":
        match.value = value or "True"
        if match.value not in _STATUSES:
            raise ValueError(f"{value!r:.80} is no status; write one of {', '.join(_STATUSES)}")
    if match.reason is not None and not _REASON.fullmatch(match.reason):
        raise ValueError(f"{match.reason!r:.80} is no reason of a condition")
    if match.effect and match.effect not in (effects := _EFFECTS[match.kind]):
        raise ValueError(f"{match.effect!r:.80} is no effect; write one of {', '.join(effects)}")
    if len(value) > MAX_VALUE_CHARS:
        raise ValueError(f"the value is longer than {MAX_VALUE_CHARS} characters")
    return match


class ExternalTrigger(Section, frozen=True, kw_only=True):
    """One match on Nodes, and the cause for it."""

    match: Match
    before_s: Seconds | None = msgspec.field(name="before", default=None)
    """The value of the annotation or label is a time (RFC 3339 or Unix seconds), and the cause
    begins this long before it."""
    for_s: Seconds = msgspec.field(name="for", default=Seconds(120))
    """How long the match must hold."""
    reason: str
    severity: Severity = Severity.DEGRADED
    level: Level = Level.CORDON
    action: Action = Action.INVESTIGATE
    """The repair step at which the `repair` ladder begins."""

    @property
    def key(self) -> str:
        """The match as text. It identifies causes in sessions, so its format must not change."""
        match = self.match
        if match.kind == "condition":
            reason = f":{match.reason}" if match.reason else ""
            return f"condition {match.name} {match.value}{reason}"
        value = "" if match.value is None else f"={match.value}"
        kind = f"{match.kind} {match.driver}" if match.driver else match.kind
        return f"{kind} {match.name}{value}{f':{match.effect}' if match.effect else ''}"


def external_problems(
    triggers: tuple[ExternalTrigger, ...], asked: Collection[tuple[str, str]] = ()
) -> Iterator[tuple[str, str]]:
    """Return path and message of every invalid value. `asked`: what the repair steps of the policy
    set on Nodes, as kind and key.
    """
    if len(triggers) > MAX_TRIGGERS:
        yield "external", f"has {len(triggers)} triggers, {MAX_TRIGGERS} are the most"
        return
    times = Counter(trigger.key for trigger in triggers)
    for index, trigger in enumerate(triggers):
        path, match = f"external[{index}]", trigger.match
        if not is_reason_code(trigger.reason):
            yield f"{path}.reason", f"is wrong: {trigger.reason!r:.80} is not CamelCase"
        if times[trigger.key] > 1:
            yield path, "has the same match as another trigger"
        if (match.kind, match.name) in asked:
            message = (
                f"is wrong: gpuward sets {match.name} to request a repair, so the cause would "
                "never close"
            )
            yield f"{path}.match", message
        if trigger.before_s is not None and (
            match.kind not in {"annotation", "label"} or match.value is not None
        ):
            yield f"{path}.before", "needs an annotation or label without a value in match"
