"""Who is asked for a repair step, as data: the contract of an adapter.

An adapter hands a step over to whatever does it in this cluster and does nothing itself. It names
the object, when it is not to be asked, what is written, what a refusal looks like and what is
taken back. Those that gpuward ships are rows of `rules.repair.shipped`; a policy may add its own
in the same words. Judged by `rules.repair.judging`, filled in by `rules.repair.template`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rules.api.names import (
    CONDITION_NEEDS_REPLACE,
    CONDITION_NEEDS_RESET,
    CONDITION_NEEDS_RESTART,
)
from rules.repair.ladder import Step

REPAIR_CONDITIONS = (CONDITION_NEEDS_REPLACE, CONDITION_NEEDS_RESET, CONDITION_NEEDS_RESTART)
"""Every Node condition that asks for a repair."""


class AdapterPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Base of every part of an adapter: as in the policy file, no key unknown."""


class ObjectMatch(AdapterPart, frozen=True, kw_only=True):
    """One thing that an object or the Node shows: an annotation, label, condition or field."""

    on: Literal["Target", "Node"] = "Target"
    annotation: str = ""
    label: str = ""
    condition: str = ""
    """Type of a status condition."""
    reason: str = ""
    """Of a condition: only with this reason; empty: with any."""
    field: str = ""
    """Path with dots, such as `status.poweredOn`."""
    value: str | bool | int | None = None
    """What it must be, a text as a template; unset: it is there, and a condition is True."""
    negated: bool = msgspec.field(name="not", default=False)
    """True: it must not be so."""
    then: Literal["Wait", "Climb"] = "Wait"
    """Of a refusal: wait as long as it lasts, or let the step fail so that the next one follows.
    """


class NodeReference(AdapterPart, frozen=True, kw_only=True):
    """Where the Node says which object belongs to it."""

    annotation: str = ""
    label: str = ""
    provider_id: bool = msgspec.field(name="providerID", default=False)
    pattern: str = "{name}"
    """How name and namespace stand in it: `{namespace}/{name}`; `{}` is a part nobody needs, and
    no part holds a slash."""


class TargetSearch(AdapterPart, frozen=True, kw_only=True):
    """A list in which exactly one object must match."""

    selector: str = ""
    """Label selector, as kubectl takes it."""
    fields: dict[str, str] = {}
    """Fields that the API server selects by, where the kind has such fields."""
    match: dict[str, str] = {}
    """Field to the template of its value; compared after the list has come."""
    namespaces: tuple[str, ...] = ()
    """Only objects in these namespaces; empty: in any. Anybody can set a label on objects of their
    own, so a label alone is no identity."""
    controller: str = ""
    """Only objects that a controller of this kind owns; empty: any."""


class TargetRule(AdapterPart, frozen=True, kw_only=True):
    """Which object is written: one the Node names, one of a list, or (create) a new one."""

    api_version: str
    """`group/*` is the version that the cluster prefers, for objects that are only marked."""
    resource: str
    """The plural in lower case, as in URLs."""
    kind: str = ""
    """Needed to create one."""
    namespace: str = ""
    """Empty: the kind has none, or the reference says it. `{namespace}` is the remediator's own.
    """
    name: str = ""
    """Template of a new object's name; empty: session, step and attempt."""
    reference: tuple[NodeReference, ...] = ()
    """Each says a part of name and namespace."""
    search: TargetSearch | None = None


class Witness(AdapterPart, frozen=True, kw_only=True):
    """An object of the provider that has to say, too, that the target belongs to the node.

    For a target that the Node itself names: a kubelet writes that, and may name another machine.
    """

    target: TargetRule
    """Which object, by reference or search."""
    shows: tuple[ObjectMatch, ...] = ()
    """What it must show, all of it: that its node is this one, where a search did not ask that."""
    agrees: dict[str, str] = {}
    """Field of the target to the field here that must hold the same text."""


class TakingBack(AdapterPart, frozen=True, kw_only=True):
    """What becomes of the request afterwards: deleted where we made it, unset where we set it."""

    at: Literal["Step", "Session", "Never"] = "Step"
    """With the step, with the session, or never: a mark for replacement on a foreign object."""
    when: tuple[ObjectMatch, ...] = ()
    """Already as soon as the object shows one of these: power confirmed off, to be on again."""
    patch: dict[str, Any] | None = None
    """Merge patch instead of the reverse of what was set."""


class RepairAction(AdapterPart, frozen=True, kw_only=True):
    """How one step is asked for: exactly one of condition, create, patch and delete."""

    target: TargetRule | None = None
    """None: the Node itself."""
    witness: Witness | None = None
    """Who else says that the target is the node's, before anybody is asked."""
    refuse: tuple[ObjectMatch, ...] = ()
    """When nobody is asked. One that is being deleted is never asked."""
    condition: str = ""
    """The Node condition to set: health checks match type and status and nothing else, so each
    step has a type of its own."""
    create: dict[str, Any] | None = None
    """Template of the new object, without apiVersion, kind and name."""
    pod: str = ""
    """Of a new Job: the PodTemplate in the remediator's own namespace that its pod is made from;
    `create` is laid over it."""
    clears: tuple[str, ...] = ()
    """Labels of the Node that keep pods on its GPUs: those that are `true` become
    `paused-for-gpuward` before anybody is asked, and our own agent lets go of the driver. All
    comes back when whoever was asked is through, and wherever the step or the session ends."""
    copies: str = ""
    """Resource of the same version whose `spec.template.spec` the new object gets; the policy
    names which one (`template`), and the new object is made beside it.
    """
    patch: dict[str, Any] | None = None
    """Template of a merge patch."""
    overwrites: tuple[str, ...] = ()
    """Values that a patch may replace; any other that is not ours is somebody else's word."""
    delete: bool = False
    failed: tuple[ObjectMatch, ...] = ()
    """What on the object says that it was given up."""
    done: tuple[ObjectMatch, ...] = ()
    """What on the object says that it is through with it. It proves nothing: what was cleared
    comes back, and the object, which does no more, is left for people to read."""
    withdraw: TakingBack = TakingBack()


class Adapter(AdapterPart, frozen=True, kw_only=True):
    """One way to ask for repairs: what it does for each step that it can hand over."""

    steps: dict[Step, RepairAction]


class OwnAdapter(AdapterPart, frozen=True, kw_only=True):
    """How this cluster is asked for a step: by a label of the Node, or by a new object."""

    label: str = ""
    """`KEY=VALUE`, set on the Node and taken off again."""
    object: dict[str, Any] | None = None
    """Template of the object to create, as in its manifest; without a name it is called after
    session, step and attempt."""
    resource: str = ""
    """The plural of the object's kind in lower case, as in URLs."""
    done: str = ""
    """Condition of the object that says that it is through, `TYPE` or `TYPE=False`: it is left to
    be read then. It proves nothing."""
    failed: str = ""
    """Condition of the object that says that it was given up: the step has failed at once."""

    def action(self, step: str) -> RepairAction:
        """What is written for the step. A request for a replacement goes with the session, any
        other with its step.
        """
        back = TakingBack(at="Session" if step == Step.REPLACE_NODE else "Step")
        if self.object is None:
            key, _, value = self.label.partition("=")
            return RepairAction(patch={"metadata": {"labels": {key: value}}}, withdraw=back)
        meta = self.object.get("metadata", {})
        rest = {key: meta[key] for key in ("annotations", "labels") if key in meta}
        body = {k: v for k, v in self.object.items() if k not in {"apiVersion", "kind"}}
        return RepairAction(
            target=TargetRule(
                api_version=self.object["apiVersion"],
                resource=self.resource,
                kind=self.object["kind"],
                namespace=meta.get("namespace", ""),
                name=meta.get("name", ""),
            ),
            create={**body, "metadata": rest},
            done=_matches(self.done),
            failed=_matches(self.failed),
            withdraw=back,
        )


def parse_condition(text: str) -> tuple[str, str]:
    """Type and status of a condition as the policy names it."""
    kind, sign, status = text.partition("=")
    return kind, status if sign else "True"


def _matches(text: str) -> tuple[ObjectMatch, ...]:
    kind, status = parse_condition(text)
    return (ObjectMatch(condition=kind, value=status),) if text else ()
