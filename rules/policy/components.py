"""List the components and rights that policy values and repair adapters need.

Helm refuses a policy without its component (`hack.chart` generates templates from the rows),
`policy check` lists them, `policy rbac` writes a component for custom adapters, and
`kubectl gpuward preflight` looks for them in the cluster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.policy.policy import Policy, Repair, effective_view
from rules.repair.adapter import ADAPTERS, RepairAction
from rules.repair.component import OWN, actions_of, component, folder_of, needs_component

DEVICES: Final = "devices"
FORCE: Final = "force"
LIFECYCLE: Final = "lifecycle-conditions"
NOTICE: Final = "notice"
VALIDATE: Final = "validate"
ANY: Final = "*"
"""In a path: each key of the mapping there. As a value: each one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One path of the policy, and the components that its values need."""

    path: tuple[str, ...]
    components: Mapping[str, str]
    """By the value as YAML writes it."""
    unless: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Paths and values with which no component is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A component that a policy needs, and the path that needs it."""

    path: str
    value: str
    component: str
    """The folder under daemonset/components."""

    @property
    def sentence(self) -> str:
        """`drain.onTimeout: Force needs component force`."""
        return f"{self.path}: {self.value} needs component {self.component}"


_OFF: Final = ((("repair", "mode"), ("Off",)),)
"""No repair is requested."""

NEEDS: Final = (
    Need(path=("isolate",), components={"Device": DEVICES}),
    Need(path=("reasons", ANY, "isolate"), components={"Device": DEVICES}),
    Need(path=("drain", "onTimeout"), components={"Force": FORCE}),
    Need(
        path=("drain", "notice"),
        components={ANY: NOTICE},
        unless=((("drain", "notice"), tuple(f"0{unit}" for unit in ("s", "ms", "m", "h", "d"))),),
    ),
    Need(path=("drain", "nodeConditions"), components={"true": LIFECYCLE}),
    # Auto tests only if the component is installed.
    Need(path=("validate", "provider"), components={"Job": VALIDATE}),
    Need(
        path=("validate", "newNodes"),
        components={"true": VALIDATE},
        unless=((("validate", "provider"), ("None",)),),
    ),
    Need(
        path=("repair", "steps", ANY, "adapter"),
        components={
            name: folder_of(name)
            for name, adapter in sorted(ADAPTERS.items())
            if needs_component(actions_of(adapter))
        },
        unless=_OFF,
    ),
)


def asked_components(policy: Policy) -> tuple[Asked, ...]:
    """Return every component that this policy needs, with its path."""
    view = effective_view(policy)
    return tuple(
        Asked(path=".".join(place), value=found, component=component)
        for need in NEEDS
        if not any(_at(view, place) in values for place, values in need.unless)
        for place in _places(view, need.path)
        for found in [_at(view, place)]
        for value, component in need.components.items()
        if value in {ANY, found}
    )


def asks(policy: Policy, component: str) -> bool:
    """Return whether a value of the policy needs this component."""
    return any(each.component == component for each in asked_components(policy))


def _places(view: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Return the paths with each key in place of the wildcard."""
    if ANY not in path:
        yield path
        return
    at, found = path.index(ANY), view
    for key in path[:at]:
        found = found[key]
    yield from ((*path[:at], str(key), *path[at + 1 :]) for key in found)


def _at(view: Any, place: tuple[str, ...]) -> str:
    """Return the value at `place` as YAML writes it; `null` for none."""
    found = view
    for key in place:
        found = found.get(key) if isinstance(found, dict) else None
    if found is None:
        return "null"
    return str(found).lower() if isinstance(found, bool) else str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairNeeds:
    """What `policy.repair` needs installed."""

    components: tuple[str, ...]
    """Folders under daemonset/components of shipped adapters in use."""
    own: Mapping[str, str]
    """Files of a component for custom adapters, by name; {} if none is needed."""


def repair_needs(*repairs: Repair) -> RepairNeeds:
    """Return the needs of all steps and custom adapters of the policies."""
    steps = (each for repair in repairs for each in repair.steps.values())
    shipped = sorted({each.adapter for each in steps if each.adapter in ADAPTERS})
    own = (repair.adapters.items() for repair in repairs)
    actions = tuple(adapter.action for some in own for _, adapter in sorted(some))
    return RepairNeeds(
        components=tuple(
            folder_of(name) for name in shipped if needs_component(actions_of(ADAPTERS[name]))
        ),
        own=component(OWN, actions) if needs_component(actions) else {},
    )


def actions_in_use(repair: Repair) -> dict[str, list[RepairAction]]:
    """Return the actions of the policy's steps, by adapter."""
    found: dict[str, list[RepairAction]] = {}
    for step, wanted in sorted(repair.steps.items()):
        action = repair.action(wanted.adapter, step)
        if action is not None:
            found.setdefault(wanted.adapter, []).append(action)
    return found
