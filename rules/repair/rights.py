"""What an adapter needs to be allowed, derived from what it does: nobody lists rights by hand.

Read by the generator of the components (`rules.repair.component`) and by `kubectl gpuward
preflight`, so that what is granted, what is asked for and what is checked cannot differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rules.api.names import ANNOTATION_MOVED, ANNOTATION_RELEASE_GPU
from rules.repair.adapter import (
    OWN_NAMESPACE,
    NewObject,
    NodeCondition,
    NodeLabel,
    RepairAction,
    Replacement,
)

_VERBS: Final = ("get", "list", "create", "patch", "delete")
_Place = tuple[str, str, bool]
"""Group, resource, and whether in the remediator's namespace alone."""
_JOBS: Final = ("batch", "jobs")
_GRANTED: Final = {
    ("", "nodes"): {"get", "list", "patch"},
}
"""What the remediator may anyway (daemonset/base/remediator-rbac.yaml)."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AdapterRight:
    """Verbs on one resource, everywhere in the cluster or in the remediator's namespace alone."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    own: bool = False
    """Only in the namespace that the remediator lives in."""


def needed(actions: Sequence[RepairAction]) -> tuple[AdapterRight, ...]:
    """All that these actions need."""
    verbs: defaultdict[_Place, set[str]] = defaultdict(set)
    for action in actions:
        _of(action, verbs)
    return tuple(
        AdapterRight(
            group=group, resource=resource, verbs=tuple(v for v in _VERBS if v in found), own=own
        )
        for (group, resource, own), found in sorted(verbs.items())
    )


def to_grant(actions: Sequence[RepairAction]) -> tuple[AdapterRight, ...]:
    """What they need beyond what the remediator may anyway."""
    found = []
    for right in needed(actions):
        had = _GRANTED.get((right.group, right.resource), set())
        if verbs := tuple(verb for verb in right.verbs if verb not in had):
            found.append(replace(right, verbs=verbs))
    return tuple(found)


def node_keys(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    """Labels and annotations that they set on the Node."""
    found: set[str] = set()
    for action in actions:
        if isinstance(action, NodeLabel):
            found.add(action.label)
        elif isinstance(action, NewObject) and action.clears:
            found |= {*action.clears, ANNOTATION_RELEASE_GPU, ANNOTATION_MOVED}
    return tuple(sorted(found))


def object_keys(actions: Iterable[RepairAction]) -> dict[tuple[str, str], str]:
    """The annotation that they set on objects of others, by group and resource."""
    return {
        (group_of(action.api_version), action.resource): action.annotation
        for action in actions
        if isinstance(action, Replacement) and action.annotation
    }


def conditions_of(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    """Node conditions that they set."""
    found = {action.condition for action in actions if isinstance(action, NodeCondition)}
    return tuple(sorted(found))


def makes_job(action: RepairAction) -> bool:
    """Whether it makes a Job."""
    return (
        isinstance(action, NewObject) and (group_of(action.api_version), action.resource) == _JOBS
    )


def group_of(api_version: str) -> str:
    """API group; "" for the core group."""
    return api_version.rpartition("/")[0]


def _of(action: RepairAction, verbs: defaultdict[_Place, set[str]]) -> None:
    match action:
        case NodeCondition():
            pass
        case NodeLabel():
            verbs["", "nodes", False] |= {"get", "patch"}
        case NewObject():
            own = action.meta.get("namespace", "") == f"{{{OWN_NAMESPACE}}}"
            place = (group_of(action.api_version), action.resource, own)
            verbs[place] |= {"get", "create", "delete"}
            if action.clears:
                verbs["", "nodes", False] |= {"get", "patch"}
            if action.pod:
                verbs["", "podtemplates", True].add("get")
        case Replacement():
            verb = "patch" if action.annotation else "delete"
            verbs[group_of(action.api_version), action.resource, False] |= {"get", "list", verb}
