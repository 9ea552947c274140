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
from rules.repair.adapter import RepairAction
from rules.repair.judging import leaves
from rules.repair.template import OWN_NAMESPACE

_VERBS: Final = ("get", "list", "create", "patch", "delete")
_Place = tuple[str, str, bool]
"""Group, resource, and whether in the remediator's namespace alone."""
_JOBS: Final = ("batch", "jobs")
_GRANTED: Final = {
    ("", "nodes"): {"get", "list", "patch"},
    ("", "pods"): {"get", "list"},
    ("", "pods/eviction"): {"create"},
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


def node_keys(actions: Sequence[RepairAction]) -> tuple[str, ...]:
    """Labels and annotations that they set on the Node."""
    cleared = {key for action in actions for key in action.clears}
    if any(action.clears for action in actions):
        cleared |= {ANNOTATION_RELEASE_GPU, ANNOTATION_MOVED}
    return tuple(sorted({*_keys(a for a in actions if a.target is None), *cleared}))


def object_keys(actions: Sequence[RepairAction]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Labels and annotations that they set on other objects, by group and resource."""
    found: defaultdict[tuple[str, str], list[RepairAction]] = defaultdict(list)
    for action in actions:
        if action.target is not None and action.patch is not None:
            found[group_of(action.target.api_version), action.target.resource].append(action)
    return {where: _keys(of_it) for where, of_it in sorted(found.items())}


def conditions_of(actions: Sequence[RepairAction]) -> tuple[str, ...]:
    """Node conditions that they set."""
    return tuple(sorted({action.condition for action in actions if action.condition}))


def makes_jobs(actions: Iterable[RepairAction]) -> bool:
    """Whether any of them makes a Job."""
    return any(
        action.create is not None
        and action.target is not None
        and (group_of(action.target.api_version), action.target.resource) == _JOBS
        for action in actions
    )


def group_of(api_version: str) -> str:
    """API group; "" for the core group."""
    return api_version.rpartition("/")[0]


def _keys(actions: Iterable[RepairAction]) -> tuple[str, ...]:
    paths = (path for action in actions for path in leaves(action.patch or {}))
    return tuple(sorted({p[2] for p in paths if len(p) == 3 and p[0] == "metadata"}))


def _of(action: RepairAction, verbs: defaultdict[_Place, set[str]]) -> None:
    if action.condition:
        return
    if action.target is None or action.clears:
        verbs["", "nodes", False] |= {"get", "patch"}
    if action.target is None:
        return
    group, resource = group_of(action.target.api_version), action.target.resource
    own = action.target.namespace == f"{{{OWN_NAMESPACE}}}"
    mine = verbs[group, resource, own]
    mine.add("get")
    if action.target.search is not None:
        mine.add("list")
    if action.delete and (group, resource) == ("", "pods"):
        verbs["", "pods/eviction", False].add("create")
    elif action.delete:
        mine.add("delete")
    if action.patch is not None:
        mine.add("patch")
    if action.create is not None:
        mine.add("create")
        if action.withdraw.at != "Never":
            mine.add("delete")
    if action.copies:
        verbs[group, action.copies, own].add("get")
    if action.witness is not None:
        rule = action.witness.target
        place = (
            group_of(rule.api_version),
            rule.resource,
            rule.namespace == f"{{{OWN_NAMESPACE}}}",
        )
        verbs[place].add("list" if rule.search is not None else "get")
    if action.pod:
        verbs["", "podtemplates", True].add("get")
