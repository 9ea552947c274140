"""What the adapters of a policy need: components to list, one for its own, rights to check.

Read by `gpuward-remediator policy rbac` and by `kubectl gpuward preflight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rules.policy.policy import Repair
from rules.repair.adapter import ADAPTERS, RepairAction
from rules.repair.component import OWN, actions_of, component, folder_of, needs_component


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairNeeds:
    """What has to be installed for `policy.repair` to work."""

    components: tuple[str, ...]
    """Folders under daemonset/components, of shipped adapters that a step names."""
    own: Mapping[str, str]
    """Files of a component for the policy's own adapters, by name; {} where none needs one."""


def repair_needs(repair: Repair) -> RepairNeeds:
    """For every step that the policy names, and every adapter that it brings."""
    shipped = sorted({each.adapter for each in repair.steps.values() if each.adapter in ADAPTERS})
    actions = tuple(adapter.action for _, adapter in sorted(repair.adapters.items()))
    return RepairNeeds(
        components=tuple(
            folder_of(name) for name in shipped if needs_component(actions_of(ADAPTERS[name]))
        ),
        own=component(OWN, actions) if needs_component(actions) else {},
    )


def actions_in_use(repair: Repair) -> dict[str, list[RepairAction]]:
    """What the steps of the policy do, by the name of the adapter."""
    found: dict[str, list[RepairAction]] = {}
    for step, wanted in sorted(repair.steps.items()):
        action = repair.action(wanted.adapter, step)
        if action is not None:
            found.setdefault(wanted.adapter, []).append(action)
    return found
