"""The quarantine policy: what the operator allows, strictly decoded from `policy.yaml`.

The remediator decodes it at start and at every reload (`load_policy`); `policy check` prints
its problems, `policy show` the effective view. An unknown key is a problem with its path and a
remedy, never ignored: a misspelled limit must not silently become the default.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rules.api.names import LABEL_GPUS
from rules.api.quarantine import Mode
from rules.catalog.reason import Level, Severity
from rules.policy.durations import Seconds, format_duration
from rules.policy.external import ExternalTrigger
from rules.policy.section import Section
from rules.policy.validation import Provider, Validation
from rules.repair.adapter import Adapter, RepairAction
from rules.repair.ladder import Step
from rules.repair.shipped import ADAPTERS

MINUTE = 60.0
DAY = 86_400.0


class ReasonOverride(Section, frozen=True, kw_only=True):
    """What this cluster wants for one reason; unset means the rules' own default."""

    level: Level | None = None
    drain_timeout_s: Seconds | None = msgspec.field(name="drainTimeout", default=None)


class MaxUnavailable(Section, frozen=True, kw_only=True):
    """Nodes that may be unavailable for any reason: the smaller of both, rounded down."""

    percent: float = 10
    at_most: int = 50


class Rate(Section, frozen=True, kw_only=True):
    """So many in a sliding window."""

    count: int
    window_s: Seconds = msgspec.field(name="window")


class Budget(Section, frozen=True, kw_only=True):
    """How much capacity gpuward may take, and how fast."""

    max_unavailable: MaxUnavailable = MaxUnavailable()
    minimum: int = 1
    per: tuple[str, ...] = ()
    """Node label keys: the budget also holds for each value of each key."""
    max_new: Rate = Rate(count=3, window_s=Seconds(10 * MINUTE))
    per_reason: Rate = Rate(count=5, window_s=Seconds(DAY))
    cooldown_s: Seconds = msgspec.field(name="cooldown", default=Seconds(15 * MINUTE))


class Backoff(Section, frozen=True, kw_only=True):
    """Waiting between attempts against one PDB."""

    min_s: Seconds = msgspec.field(name="min", default=Seconds(2))
    max_s: Seconds = msgspec.field(name="max", default=Seconds(MINUTE))


class DoNotDisrupt(Section, frozen=True, kw_only=True):
    """How long do-not-disrupt annotations are honoured, by severity of the session."""

    fatal_s: Seconds = msgspec.field(name="Fatal", default=Seconds(10 * MINUTE))
    degraded_s: Seconds = msgspec.field(name="Degraded", default=Seconds(DAY))


class Drain(Section, frozen=True, kw_only=True):
    """How pods leave."""

    fatal_timeout_s: Seconds = msgspec.field(name="fatalTimeout", default=Seconds(30 * MINUTE))
    degraded_timeout_s: Seconds = msgspec.field(name="degradedTimeout", default=Seconds(DAY))
    on_timeout: Literal["Report", "Force"] = "Report"
    settle_s: Seconds = msgspec.field(name="settle", default=Seconds(5))
    backoff: Backoff = Backoff()
    volume_detach_timeout_s: Seconds = msgspec.field(
        name="volumeDetachTimeout", default=Seconds(6 * MINUTE)
    )
    gang_window_s: Seconds = msgspec.field(name="gangWindow", default=Seconds(30))
    unmanaged: Literal["Report", "Evict"] = "Report"
    empty_dir: Literal["Evict", "Report"] = "Evict"
    do_not_disrupt: DoNotDisrupt = DoNotDisrupt()


class PodRule(Section, frozen=True, kw_only=True):
    """How the pods of some namespaces, or with some labels, leave. The first match wins."""

    namespaces: tuple[str, ...] = ()
    """Empty: every namespace."""
    selector: str = ""
    """A label selector as kubectl takes it; empty: every pod."""
    strategy: Literal["Evict", "WaitCompleted", "Skip"] = "Evict"
    order: int = 0
    max_wait_s: Seconds | None = msgspec.field(name="maxWait", default=None)


class Release(Section, frozen=True, kw_only=True):
    """When a node comes back."""

    approval: Literal["Auto", "Manual"] = "Auto"
    healthy_for_s: Seconds = msgspec.field(name="healthyFor", default=Seconds(10 * MINUTE))
    cancel_expiry_s: Seconds = msgspec.field(name="cancelExpiry", default=Seconds(DAY))
    replace_after: Rate = Rate(count=3, window_s=Seconds(7 * DAY))


class RepairStep(Section, frozen=True, kw_only=True):
    """Who is asked for one step of the ladder, and how long it may take to be proven."""

    adapter: str
    timeout_s: Seconds = msgspec.field(name="timeout", default=Seconds(3600))
    template: str = ""
    """`namespace/name` of the template, for adapters that copy one."""


class Fence(Section, frozen=True, kw_only=True):
    """Whether a marked node whose kubelet is silent is powered off although it is not drained."""

    after_s: Seconds = msgspec.field(name="after", default=Seconds(600))
    """How long the kubelet is silent before."""
    out_of_service: bool = False
    """Once its power is confirmed off, `node.kubernetes.io/out-of-service` ends its pods."""


class Repair(Section, frozen=True, kw_only=True):
    """Whether drained nodes are repaired, by whom, how often and how many at once."""

    mode: Literal["Off", "Ask", "Auto"] = "Off"
    adapters: dict[str, Adapter] = msgspec.field(default_factory=dict)
    """Adapters of this cluster's own, beside those that gpuward ships."""
    steps: dict[Step, RepairStep] = msgspec.field(default_factory=dict)
    """Steps that are not named here have nobody to do them, and the ladder climbs over them."""
    attempts: int = 2
    """How often one step is tried on one node within `window`, over all its sessions."""
    window_s: Seconds = msgspec.field(name="window", default=Seconds(7 * DAY))
    concurrent: int = 2
    """How many nodes are under repair at once, besides the budget for quarantines."""
    per: tuple[str, ...] = ()
    """Node label keys: no two nodes with the same value of one are under repair at once."""
    fence: Fence | None = None
    """Unset: a node whose kubelet is silent is left alone."""

    def action(self, adapter: str, step: str) -> RepairAction | None:
        """How an adapter asks for a step; None where it cannot, or nobody knows it."""
        known = ADAPTERS.get(adapter) or self.adapters.get(adapter)
        found = {str(each): action for each, action in known.steps.items()} if known else {}
        return found.get(step)


class Limits(Section, frozen=True, kw_only=True):
    """Speed limits of the remediator's own calls."""

    marks_per_second: float = 500
    evictions_per_second: float = 100
    nodes_draining: int = 20


class History(Section, frozen=True, kw_only=True):
    """How long ended sessions are kept."""

    keep_s: Seconds = msgspec.field(name="keep", default=Seconds(28 * DAY))
    max_per_node: int = 20


class Policy(Section, frozen=True, kw_only=True):
    """The whole policy; `Policy()` is the default: watch, say, touch nothing."""

    api_version: Literal["gpuward.io/v1alpha1"] = "gpuward.io/v1alpha1"
    kind: Literal["QuarantinePolicy"] = "QuarantinePolicy"
    mode: Mode = Mode.SHADOW
    node_selector: str = LABEL_GPUS
    mark: Literal["CordonAndTaint", "Taint", "Cordon"] = "CordonAndTaint"
    reasons: dict[str, ReasonOverride] = msgspec.field(default_factory=dict)
    budget: Budget = Budget()
    drain: Drain = Drain()
    pods: tuple[PodRule, ...] = ()
    external: tuple[ExternalTrigger, ...] = ()
    release: Release = Release()
    repair: Repair = Repair()
    validate: Validation = Validation()
    limits: Limits = Limits()
    history: History = History()

    def level_of(self, reason: str, published: str) -> str:
        """What to do for `reason`: the override, else the level the agent published."""
        override = self.reasons.get(reason)
        return str(override.level) if override and override.level is not None else published

    def drain_timeout_s(self, severity: str, reasons: tuple[str, ...] = ()) -> float:
        """Seconds a drain may take: the shortest override of its reasons, else by severity."""
        overrides = [
            override.drain_timeout_s
            for reason in reasons
            if (override := self.reasons.get(reason)) and override.drain_timeout_s is not None
        ]
        if overrides:
            return min(overrides)
        fatal = severity == Severity.FATAL
        return self.drain.fatal_timeout_s if fatal else self.drain.degraded_timeout_s

    def do_not_disrupt_s(self, severity: str) -> float:
        """Seconds a do-not-disrupt annotation holds a pod at most."""
        bounds = self.drain.do_not_disrupt
        return bounds.fatal_s if severity == Severity.FATAL else bounds.degraded_s


def with_installed(policy: Policy, *, builtin: bool) -> Policy:
    """The policy where provider Auto says who tests here: Builtin where that is installed."""
    provider: Provider = "Builtin" if builtin else "None"
    return msgspec.structs.replace(policy, validate=policy.validate.with_auto(provider))


def effective_view(policy: Policy) -> dict[str, Any]:
    """The policy as plain values, defaults included, durations as text."""

    def hook(value: object) -> object:
        if isinstance(value, Seconds):
            return format_duration(value)
        raise NotImplementedError(f"{type(value).__name__} in a policy")

    view: dict[str, Any] = msgspec.to_builtins(policy, enc_hook=hook)
    return view
