"""The quarantine policy, strictly decoded from `policy.yaml`.

The remediator decodes it at start and at every reload (`load_policy`). `policy check` prints its
problems, `policy show` the effective policy. An unknown key is an error with path and remedy, so
that a misspelled limit does not silently become the default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from rules.api import names
from rules.api.quarantine import Mode
from rules.catalog.reason import DrainScope, Level, Severity
from rules.catalog.why_not import WhyNot
from rules.policy import section
from rules.policy.external import ExternalTrigger, Match
from rules.policy.section import PositiveSeconds, Seconds, Section
from rules.repair.adapter import ADAPTERS, OwnAdapter, RepairAction
from rules.repair.ladder import Step

MINUTE = 60.0
DAY = 86_400.0
DEGRADED_DRAIN_S: Final = DAY
"""Seconds a drain for a Degraded fault may take: most jobs end within a day, and work still runs
on the node. `drain.fatalTimeout` is the bound of a Fatal one."""
VALIDATE_TEMPLATE: Final = "gpuward-validate"
"""The PodTemplate that component `validate` installs."""


class Isolated(StrEnum):
    """What a session takes out of service."""

    NODE = "Node"
    DEVICE = "Device"
    """Only the accused GPUs, by the taints of their devices; the node if that is not possible."""


class ReasonOverride(Section, frozen=True, kw_only=True):
    """What this cluster wants for one reason; unset means the rules' own default."""

    level: Level | None = None
    drain_scope: DrainScope | None = None
    isolate: Isolated | None = None


class MaxUnavailable(Section, frozen=True, kw_only=True):
    """Nodes that may be unavailable for any reason: the smaller of both, rounded down; one at
    least unless `atMost` is 0.
    """

    percent: Annotated[float, Meta(ge=0, le=100)] = 10
    at_most: Annotated[int, Meta(ge=0)] = 50


class Rate(Section, frozen=True, kw_only=True):
    """So many in a sliding window."""

    count: Annotated[int, Meta(ge=1)]
    window_s: PositiveSeconds = msgspec.field(name="window")


class PerDomain(Section, frozen=True, kw_only=True):
    """What each NVLink domain keeps: a job of 64 GPUs needs 16 of the 18 nodes of NVL72."""

    min_healthy: Annotated[int, Meta(ge=1)]


class Budget(Section, frozen=True, kw_only=True):
    """How much capacity gpuward may take, and how fast."""

    max_unavailable: MaxUnavailable = MaxUnavailable()
    per: tuple[str, ...] = ()
    """Node label keys: the budget also holds for each value of each key."""
    per_domain: PerDomain | None = None
    """Nodes of each NVLink domain that stay available, in addition to the other limits."""
    max_new: Rate = Rate(count=3, window_s=PositiveSeconds(10 * MINUTE))
    per_reason: Rate = Rate(count=5, window_s=PositiveSeconds(DAY))
    cooldown_s: Seconds = msgspec.field(name="cooldown", default=Seconds(15 * MINUTE))


class Drain(Section, frozen=True, kw_only=True):
    """How pods leave, and which ones."""

    scope: DrainScope | None = None
    """Unset: Node where the recommended repair ends the boot of the node, else GPUPods."""
    fatal_timeout_s: Seconds = msgspec.field(name="fatalTimeout", default=Seconds(30 * MINUTE))
    on_timeout: Literal["Report", "Force"] = "Report"
    settle_s: Seconds = msgspec.field(name="settle", default=Seconds(5))
    gang_window_s: Seconds = msgspec.field(name="gangWindow", default=Seconds(30))
    notice_s: Seconds = msgspec.field(name="notice", default=Seconds(0))
    """How long before the first eviction each pod that leaves is notified; 0: not at all."""
    node_conditions: bool = False
    """Report the drain as Node conditions MaintenancePlanned, DrainInProgress and Drained."""
    unmanaged: Literal["Report", "Evict"] = "Report"


class PodRule(Section, frozen=True, kw_only=True):
    """How the pods of some namespaces, or with some labels, leave. The first match wins."""

    namespaces: tuple[str, ...] = ()
    """Empty: every namespace."""
    selector: str = ""
    """A label selector as kubectl takes it; empty: every pod."""
    strategy: Literal["Evict", "WaitCompleted", "Skip"] = "Evict"
    max_wait_s: Seconds | None = msgspec.field(name="maxWait", default=None)


class Release(Section, frozen=True, kw_only=True):
    """When a node comes back."""

    approval: Literal["Auto", "Manual"] = "Auto"
    healthy_for_s: Seconds = msgspec.field(name="healthyFor", default=Seconds(10 * MINUTE))
    cancel_expiry_s: Seconds = msgspec.field(name="cancelExpiry", default=Seconds(DAY))
    replace_after: Annotated[int, Meta(ge=2)] = 3
    """From this session of a node within a week on, an operator is asked to replace it; with 1 no
    node would be released by itself."""


class RepairStep(Section, frozen=True, kw_only=True):
    """Who is asked for one step of the ladder, and how long it may take to be proven."""

    adapter: str
    timeout_s: Seconds = msgspec.field(name="timeout", default=Seconds(3600))


class Repair(Section, frozen=True, kw_only=True):
    """Whether drained nodes are repaired, by whom, how often and how many at once."""

    mode: Literal["Off", "Ask", "Auto"] = "Off"
    adapters: dict[str, OwnAdapter] = msgspec.field(default_factory=dict)
    """Custom adapters, in addition to those that gpuward ships."""
    steps: dict[Step, RepairStep] = msgspec.field(default_factory=dict)
    """Steps that are not named here have nobody to do them, and the ladder climbs over them."""
    attempts: Annotated[int, Meta(ge=1)] = 2
    """How often one step is tried on one node within `window`, over all its sessions."""
    window_s: Seconds = msgspec.field(name="window", default=Seconds(7 * DAY))
    concurrent: Annotated[int, Meta(ge=1)] = 2
    """How many nodes are under repair at once, besides the budget for quarantines."""
    per: tuple[str, ...] = (names.LABEL_NVLINK_DOMAIN,)
    """Node label keys: no two nodes with the same value of one are under repair at once."""

    def action(self, adapter: str, step: str) -> RepairAction | None:
        """How an adapter asks for a step; None where it cannot, or nobody knows it."""
        if adapter in self.adapters:
            return self.adapters[adapter].action
        shipped = ADAPTERS.get(adapter)
        found = {str(each): action for each, action in shipped.steps.items()} if shipped else {}
        return found.get(step)


class Validation(Section, frozen=True, kw_only=True):
    """Whether a drained node runs a test Job before it comes back."""

    provider: Literal["Auto", "None", "Job"] = "Auto"
    """Auto: Job where component `validate` is installed, else None."""
    timeout_s: Seconds = msgspec.field(name="timeout", default=Seconds(30 * MINUTE))
    template: str = VALIDATE_TEMPLATE
    """The PodTemplate of the Job, in the remediator's namespace."""
    new_nodes: bool = msgspec.field(name="newNodes", default=False)
    """Whether nodes that were never tested are tested too, while no pod uses a GPU there."""

    @property
    def tests(self) -> bool:
        """Whether drained nodes are tested."""
        return self.provider == "Job"

    @property
    def tests_new_nodes(self) -> bool:
        """Whether nodes that were never tested are tested too."""
        return self.tests and self.new_nodes


class Limits(Section, frozen=True, kw_only=True):
    """Speed limits."""

    nodes_draining: Annotated[int, Meta(ge=1)] | None = None
    """None: no limit. The budget limits how many nodes are out of service."""


FLEET: Final = "default"
"""Name of the fleet policy; any other name is that of a pool (`rules.policy.pools`)."""


class Metadata(Section, frozen=True, kw_only=True):
    """The name of the policy: `default` for the fleet policy, else the name of the pool."""

    name: str = FLEET


class Policy(Section, frozen=True, kw_only=True):
    """The entire policy; `Policy()` is the default: watch, say, touch nothing."""

    api_version: Literal["gpuward.io/v1alpha1"] = "gpuward.io/v1alpha1"
    kind: Literal["QuarantinePolicy"] = "QuarantinePolicy"
    metadata: Metadata = Metadata()
    mode: Mode = Mode.SHADOW
    node_selector: str = names.LABEL_GPUS
    parts: Literal["CordonAndTaint", "Taint", "Cordon"] = msgspec.field(
        name="mark", default="CordonAndTaint"
    )
    isolate: Isolated = Isolated.NODE
    reasons: dict[str, ReasonOverride] = msgspec.field(default_factory=dict)
    budget: Budget = Budget()
    drain: Drain = Drain()
    pods: tuple[PodRule, ...] = ()
    external: tuple[ExternalTrigger, ...] = ()
    release: Release = Release()
    repair: Repair = Repair()
    validate: Validation = Validation()
    limits: Limits = Limits()

    @property
    def name(self) -> str:
        """`default`, or the name of the pool."""
        return self.metadata.name

    @property
    def shown_name(self) -> str:
        """The name where the file has several policies; else ""."""
        return self.name if self.name != FLEET or len(self.policies) > 1 else ""

    @property
    def policies(self) -> "tuple[Policy, ...]":
        """The fleet policy, then those of its pools."""
        return (self,)

    def of(self, labels: Mapping[str, str]) -> "Policy":  # noqa: ARG002 - for `PooledPolicy`
        """Return the policy of a node with these labels."""
        return self

    def each(self, change: "Callable[[Policy], Policy]") -> "Policy":
        """Return the policy with a change to it and to those of its pools."""
        return change(self)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes in use, Enforce first."""
        used = {one.mode for one in self.policies}
        return tuple(mode for mode in (Mode.ENFORCE, Mode.SHADOW) if mode in used)

    @property
    def taint_drivers(self) -> frozenset[str]:
        """The DRA drivers whose device taints are triggers."""
        triggers = (trigger for one in self.policies for trigger in one.external)
        return frozenset(trigger.match.driver for trigger in triggers if trigger.match.driver)

    def level_of(self, reason: str, published: str) -> str:
        """What to do for `reason`: the override, else the level the agent published."""
        override = self.reasons.get(reason)
        return str(override.level) if override and override.level is not None else published

    def isolates(self, reason: str) -> Isolated:
        """Return what a fault with this reason takes out of service."""
        override = self.reasons.get(reason)
        return (override.isolate if override else None) or self.isolate

    def drain_timeout_s(self, severity: str) -> float:
        """Seconds a drain may take."""
        return self.drain.fatal_timeout_s if severity == Severity.FATAL else DEGRADED_DRAIN_S


def with_installed(policy: Policy, *, validate: bool) -> Policy:
    """The policy where provider Auto is resolved: Job where component `validate` is installed."""
    provider: Literal["None", "Job"] = "Job" if validate else "None"

    def resolved(one: Policy) -> Policy:
        if one.validate.provider != "Auto":
            return one
        tests = msgspec.structs.replace(one.validate, provider=provider)
        return msgspec.structs.replace(one, validate=tests)

    return policy.each(resolved)


def with_mode(policy: Policy, mode: Mode) -> Policy:
    """Return the policy with this mode, also for its pools."""
    return policy.each(lambda one: msgspec.structs.replace(one, mode=mode))


FLEET_ONLY: Final = (("budget",), ("limits",), ("repair", "concurrent"), ("repair", "per"))
"""Keys that limit the entire fleet: a pool has none of them."""


def effective_view(policy: Policy) -> dict[str, Any]:
    """The policy as plain values, defaults included, durations as text. That of a pool has no keys
    of the fleet.
    """

    def hook(value: object) -> object:
        if isinstance(value, Seconds):
            return section.format_duration(value)
        if isinstance(value, Match):
            return str(value)
        raise NotImplementedError(f"{type(value).__name__} in a policy")

    view: dict[str, Any] = msgspec.to_builtins(policy, enc_hook=hook)
    view.pop("pools", None)
    for path in FLEET_ONLY if policy.name != FLEET else ():
        section_at: Any = view if len(path) == 1 else view[path[0]]
        del section_at[path[-1]]
    return view


class UnreadPolicy(Policy, frozen=True, kw_only=True):
    """The defaults, in force because no policy could be read since the start."""


class OverlappingPolicy(Policy, frozen=True, kw_only=True):
    """The fleet policy in Shadow, for a node that several pools select. Its name has theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTexts:
    """Why the remediator does not change nodes, and what ends that; clauses."""

    reason: WhyNot
    state: str
    """The state of the fleet."""
    halts: str
    """Why an open session does not go on."""
    unintended: str
    """Why Shadow is in force without a policy that asks for it; "" if a policy does."""
    ended_by: str
    """What ends Shadow, a noun."""


_CHOSEN: Final = ShadowTexts(
    reason=WhyNot.POLICY_IS_SHADOW,
    state="the policy is Shadow",
    halts="the policy was switched to Shadow, so gpuward no longer changes the node",
    unintended="",
    ended_by="mode Enforce in the policy",
)
_UNREAD: Final = ShadowTexts(
    reason=WhyNot.POLICY_UNREAD,
    state="the remediator has read no valid policy since it started, so it runs in Shadow",
    halts="the remediator has read no valid policy since it started, so gpuward no longer changes "
    "the node",
    unintended="the remediator has read no valid policy since it started",
    ended_by="a valid policy",
)


def shadow_of(policy: Policy | None) -> ShadowTexts | None:
    """Return the texts for a policy in Shadow; None for Enforce and for an unknown policy."""
    if policy is None or policy.mode != Mode.SHADOW:
        return None
    if isinstance(policy, OverlappingPolicy):
        return _overlap(policy.name)
    return _UNREAD if isinstance(policy, UnreadPolicy) else _CHOSEN


def _overlap(pools: str) -> ShadowTexts:
    both = f"pools {pools} select the node with equally many requirements"
    return ShadowTexts(
        reason=WhyNot.POLICY_OVERLAP,
        state=f"{both}, so it is in Shadow",
        halts=f"{both}, so gpuward does not change it",
        unintended=both,
        ended_by="another requirement in one of their nodeSelectors",
    )


def session_mode(policy: Policy) -> Mode:
    """Return the mode of a new session: Enforce in Shadow by accident, where it waits, because the
    policy for a Shadow run is unknown.
    """
    return Mode.ENFORCE if by_accident(policy) else policy.mode


def by_accident(policy: Policy | None) -> bool:
    """Return whether Shadow is in force only because no policy could be read, or because several
    pools select the node.
    """
    return isinstance(policy, UnreadPolicy | OverlappingPolicy) and policy.mode == Mode.SHADOW
