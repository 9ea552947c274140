"""Whether a repair may be asked for through an object, was asked for already, or was given up.

What the edge read comes in as it is, refusals included. Called by `rules.session.repair.asking`.
Whether a step happened is never decided here: `rules.repair.proof` does that, by the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rules.api.names import ANNOTATION_REPAIR
from rules.repair.adapter import RepairAction
from rules.repair.matching import (
    annotation,
    clause,
    first_holding,
    is_deleting,
    said_with,
    uid_of,
)

Json = Mapping[str, Any]
_MARKS: Final = (("metadata", "annotations"), ("metadata", "labels"))


class Sight(StrEnum):
    """What became of reading an object."""

    FOUND = "Found"
    ABSENT = "Absent"
    """The API server itself says that there is none of that name."""
    NOT_SERVED = "NotServed"
    """Nobody serves the kind: its definition is not installed."""
    FORBIDDEN = "Forbidden"
    UNREAD = "Unread"
    """No answer, or one that says nothing about the object."""

    @property
    def passes(self) -> bool:
        """Whether the next try may well say something else."""
        return self is Sight.UNREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSeen:
    """An object or a list as it was read."""

    sight: Sight
    read_at: float
    """When the answer came."""
    found: tuple[Json, ...] = ()
    api_version: str = ""
    """The version that was asked, where the adapter leaves it to the cluster."""
    why: str = ""
    """What the API server said instead, a clause."""
    failing_since: float | None = None
    """Since when reading it says nothing, as far as this process knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskVerdict:
    """What follows for the call: nothing of it set means that it may go."""

    asked: bool = False
    """It stands there already: whoever led before sent it."""
    waits: str = ""
    """A clause: as long as this holds nobody is asked."""
    cannot: str = ""
    """A clause: it cannot be asked for; said, tried again, and failed in the end."""


def note_of(request: str, step: str, adapter: str) -> str:
    """The annotation by which a request is known: its name first."""
    return f"{request} {step} {adapter}"


def is_ours(json: Json, request: str) -> bool:
    """Whether the object carries this very request."""
    return bool(request) and annotation(json, ANNOTATION_REPAIR).startswith(f"{request} ")


def judged(
    action: RepairAction,
    request: str,
    words: str,
    json: Json | None,
    node: Json,
    *,
    uid: str = "",
    patch: Json | None = None,
) -> AskVerdict:
    """`json` is the object as just read, None where it is certainly not there; `uid` is the one on
    record, `patch` what would be set.
    """
    if json is not None and is_ours(json, request):
        return AskVerdict(asked=True)
    if action.delete and uid and (json is None or uid_of(json) != uid or is_deleting(json)):
        # It went after the step was on record: nothing is left to ask for.
        return AskVerdict(asked=True)
    if (refused := first_holding(action.refuse, json or {}, node)) is not None:
        seen = clause(refused, "the Node" if refused.on == "Node" else words)
        return AskVerdict(waits=seen) if refused.then == "Wait" else AskVerdict(cannot=seen)
    if action.create is not None:
        if json is None:
            return AskVerdict()
        return AskVerdict(waits=f"{words} is there and was not made for this step")
    if json is None:
        return AskVerdict(cannot=f"there is no {words}")
    if uid and uid_of(json) != uid:
        return AskVerdict(cannot=f"{words} is another one than when the step was planned")
    if is_deleting(json):
        return AskVerdict(waits=f"{words} is being deleted")
    return _unset(action, json, words, patch or {})


def _unset(action: RepairAction, json: Json, words: str, patch: Json) -> AskVerdict:
    """Nobody else's word is overwritten: what is to be set must not be there."""
    wanted = leaves(patch)
    if wanted and all(_at(json, path) == value for path, value in wanted.items()):
        # The same was asked for before; it is followed and not written again.
        return AskVerdict(asked=True)
    for path in wanted:
        found = _at(json, path)
        mark = path[:1] == ("metadata",)
        if mark and found is not None and found not in action.overwrites:
            return AskVerdict(waits=f"{words} has {path[-1]} from somebody else")
    return AskVerdict()


def given_up(action: RepairAction, words: str, json: Json, node: Json) -> str:
    """Why whoever was asked has given up, a clause; "" while they have not."""
    found = first_holding(action.failed, json, node)
    if found is None:
        return ""
    on_node = found.on == "Node"
    seen = clause(found, "the Node" if on_node else words)
    return seen + said_with(found, node if on_node else json)


def leaves(patch: Json, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value that a merge patch sets, by its path."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in patch.items():
        if isinstance(value, dict) and value:
            found |= leaves(value, (*path, key))
        else:
            found[(*path, key)] = value
    return found


def taken_back(action: RepairAction, request: str, json: Json, patch: Json) -> dict[str, Any]:
    """The merge patch that takes back what of `patch` is still on the object; {} for nothing.

    What somebody else changed since is theirs.
    """
    still = [path for path, value in leaves(patch).items() if _at(json, path) == value]
    back: dict[str, Any] = {}
    if still and action.withdraw.patch is not None:
        back = merged({}, action.withdraw.patch)
    elif still:
        for path in still:
            if len(path) == 3 and path[:2] in _MARKS:
                back = merged(back, {"metadata": {path[1]: {path[2]: None}}})
    if is_ours(json, request):
        back = merged(back, {"metadata": {"annotations": {ANNOTATION_REPAIR: None}}})
    return back


def merged(onto: Json, patch: Json) -> dict[str, Any]:
    """Two merge patches as one; the second wins."""
    result = dict(onto)
    for key, value in patch.items():
        known = result.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        result[key] = merged(known or {}, value) if both else value
    return result


def _at(json: Json, path: tuple[str, ...]) -> Any:
    found: Any = json
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found
