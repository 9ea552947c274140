"""`policy.external`: what others say on a Node, and what it means here.

Each trigger names one thing that a detector, a provider or a script of the site puts on a Node
(condition, annotation, label or taint) and the cause that it makes. Read by `rules.policy.reader`;
`rules.session.external` compares it with nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from rules.api import names
from rules.api.object_name import is_label_key
from rules.catalog.reason import Action, Level, Severity, is_reason_code
from rules.policy.durations import Seconds
from rules.policy.section import Section

MAX_TRIGGERS: Final = 32
"""Each is compared with every node that changes; a detector has a handful of conditions."""
MAX_VALUE_CHARS: Final = 256
OWN_CONDITIONS: Final = frozenset(
    {
        names.CONDITION_DEGRADED,
        names.CONDITION_HEALTHY,
        names.CONDITION_NEEDS_REPLACE,
        names.CONDITION_NEEDS_RESET,
        names.CONDITION_NEEDS_RESTART,
        names.CONDITION_VALIDATED,
    }
)
"""Our own words about a node: a cause made of them would be its own proof."""
_CORDON: Final = "node.kubernetes.io/unschedulable"
"""Our own mark puts this taint on the node: it would never close."""


class ConditionMatch(Section, frozen=True, kw_only=True):
    """A condition of the Node with this status; while it is Unknown, a cause of it holds."""

    type: str
    status: Literal["True", "False", "Unknown"] = "True"


class KeyMatch(Section, frozen=True, kw_only=True):
    """An annotation or label of the Node."""

    key: str
    value: str | None = None
    """Unset: any value."""
    before_s: Seconds | None = msgspec.field(name="before", default=None)
    """The value is a time (RFC 3339 or Unix seconds), and the cause begins this long before it."""


class TaintMatch(Section, frozen=True, kw_only=True):
    """A taint of the Node."""

    key: str
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class ExternalTrigger(Section, frozen=True, kw_only=True):
    """One thing that others say on Nodes, and the cause it makes: exactly one of the four."""

    condition: ConditionMatch | None = None
    annotation: KeyMatch | None = None
    label: KeyMatch | None = None
    taint: TaintMatch | None = None
    for_s: Seconds = msgspec.field(name="for", default=Seconds(120))
    """How long it must have been so."""
    reason: str
    severity: Severity = Severity.DEGRADED
    level: Level = Level.CORDON
    action: Action = Action.INVESTIGATE
    """What would repair it: where the ladder of `repair` begins, if anywhere."""

    @property
    def key(self) -> str:
        """What it looks for, as text: two triggers with the same one are the same. Identifies
        causes in sessions, so it must not change.
        """
        kind, match = self.match
        if isinstance(match, ConditionMatch):
            return f"{kind} {match.type} {match.status}"
        if match is None:
            return kind
        value = "" if match.value is None else f"={match.value}"
        effect = f":{match.effect}" if isinstance(match, TaintMatch) and match.effect else ""
        return f"{kind} {match.key}{value}{effect}"

    @property
    def match(self) -> tuple[str, ConditionMatch | KeyMatch | TaintMatch | None]:
        """Which of the four it is; ("", None) where it is none."""
        kinds = ("condition", "annotation", "label", "taint")
        found = ((kind, getattr(self, kind)) for kind in kinds)
        return next(((kind, each) for kind, each in found if each is not None), ("", None))


def spelled_out(triggers: Any) -> Any:
    """YAML reads an unquoted True or False as a boolean; whoever writes a status means the
    word.
    """
    if not isinstance(triggers, list):
        return triggers
    return [_with_word(each) for each in triggers]


def _with_word(trigger: Any) -> Any:
    condition = trigger.get("condition") if isinstance(trigger, dict) else None
    if isinstance(condition, dict) and isinstance(condition.get("status"), bool):
        return {**trigger, "condition": {**condition, "status": str(condition["status"])}}
    return trigger


def external_problems(
    triggers: tuple[ExternalTrigger, ...], asked: Collection[tuple[str, str]] = ()
) -> Iterator[tuple[str, str]]:
    """Path and message of everything that has the right type and makes no sense. `asked`: what
    the repair steps of the same policy set on Nodes, as kind and key.
    """
    if len(triggers) > MAX_TRIGGERS:
        yield "external", f"has {len(triggers)} triggers, {MAX_TRIGGERS} are the most"
        return
    times = Counter(trigger.key for trigger in triggers)
    for index, trigger in enumerate(triggers):
        path = f"external[{index}]"
        given = [k for k in ("condition", "annotation", "label", "taint") if getattr(trigger, k)]
        if len(given) != 1:
            named = f"names {' and '.join(given)}" if given else "names nothing to look for"
            yield path, f"{named}; write one of condition, annotation, label, taint"
            continue
        if not is_reason_code(trigger.reason):
            yield f"{path}.reason", f"is wrong: {trigger.reason!r:.80} is not CamelCase"
        if times[trigger.key] > 1:
            yield path, "looks for the same as another trigger; one thing has one meaning"
        problems = tuple(_match_problems(trigger))
        yield from ((f"{path}.{given[0]}.{at}", what) for at, what in problems)
        kind, match = trigger.match
        at, name = _named(match)
        if not problems and (kind, name) in asked:
            message = (
                f"is wrong: gpuward itself sets {name} to ask for a repair, so the cause would be "
                "its own proof"
            )
            yield f"{path}.{kind}.{at}", message


def _named(match: ConditionMatch | KeyMatch | TaintMatch | None) -> tuple[str, str]:
    """The field that names what is looked for, and its value."""
    if isinstance(match, ConditionMatch):
        return "type", match.type
    return "key", match.key if match is not None else ""


def _match_problems(trigger: ExternalTrigger) -> Iterator[tuple[str, str]]:
    kind, match = trigger.match
    if isinstance(match, ConditionMatch):
        if not is_label_key(match.type):
            yield "type", f"is wrong: {match.type!r:.80} is no condition type"
        elif match.type in OWN_CONDITIONS:
            yield "type", f"is wrong: {match.type} is written by gpuward itself"
        return
    assert match is not None
    if not is_label_key(match.key):
        yield "key", f"is wrong: {match.key!r:.80} is no {kind} key"
    elif match.key == _CORDON or match.key.startswith(f"{names.PREFIX}/"):
        yield "key", f"is wrong: {match.key} is written by gpuward itself"
    if match.value is not None and len(match.value) > MAX_VALUE_CHARS:
        yield "value", f"is longer than {MAX_VALUE_CHARS} characters"
    if isinstance(match, KeyMatch) and match.value is not None and match.before_s is not None:
        yield "before", "reads the value as a time, so no value can be asked for beside it"


def reasons_of(triggers: Iterable[ExternalTrigger]) -> frozenset[str]:
    """The reasons that this policy brings itself."""
    return frozenset(trigger.reason for trigger in triggers)
