"""Whether a remediator acts on what people ask for: its Lease and what its holder says there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from remediator.kube.resources import REMEDIATOR_SELECTOR
from remediator.kubectl.cluster import NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError
from remediator.view.times import age, span
from rules.api.leaders_word import WELL, LeadersWord, leaders_word
from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.nodes import LeaseView
from rules.api.object_name import api_path, is_object_name
from rules.api.sentences import some
from rules.api.timestamps import parse_time, utc

UNRENEWED_S: Final = 30.0
"""A Lease that old has no holder: twice its duration, so that a hand-over is never one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who leads in the namespace that a person means, as far as that person may see it."""

    namespace: str
    now: float
    hidden: bool = False
    """The Lease cannot be read."""
    forbidden: bool = False
    """Because RBAC refuses it."""
    lease: LeaseView | None = None
    spaces: tuple[str, ...] | None = None
    """Without a Lease: where pods of a remediator are; None where they cannot be listed."""

    @property
    def never(self) -> bool:
        """No remediator ever led in this namespace."""
        return self.lease is None and not self.hidden

    @property
    def awaited(self) -> bool:
        """None ever led, and its pods are there."""
        return self.never and self.namespace in (self.spaces or ())

    @property
    def lasts(self) -> str:
        """For how long nobody has led, as `for 31s` or `so far`; "" while somebody does, in
        whatever namespace, or nobody may know.
        """
        if self.never:
            return "so far" if self.awaited or self.spaces == () else ""
        renewed = self.led_at
        if self.lease is None or (renewed is not None and self.now - renewed < UNRENEWED_S):
            return ""
        return "so far" if renewed is None else f"for {age(self.lease.spec.renew_time, self.now)}"

    @property
    def led_at(self) -> float | None:
        """When somebody last did; None where none ever has."""
        return parse_time(self.lease.spec.renew_time or "") if self.lease is not None else None

    @property
    def word(self) -> LeadersWord:
        """What the remediator that leads says of itself; nothing where none leads."""
        if self.lease is None or self.lasts:
            return WELL
        return leaders_word(self.lease.metadata.annotations)

    @property
    def cannot_act(self) -> str:
        """`cannot act, since TIME (9m ago): why`, of a leader that says so; else ""."""
        if not self.word.unable:
            return ""
        at = self.word.unable_since
        since = f", since {utc(at)} ({span(self.now - at)} ago)" if at is not None else ""
        return f"cannot act{since}: {self.word.unable}"

    @property
    def nobody(self) -> str:
        """The sentence about a Lease that nobody renews; "" of one that is held."""
        if self.lease is None or not self.lasts:
            return ""
        return (
            f"no remediator has led {self.lasts}: nothing is taken out, repaired or given back, "
            f"and what is asked for waits; see kubectl -n {self.namespace} get pods "
            f"-l {REMEDIATOR_SELECTOR}"
        )

    @property
    def never_said(self) -> str:
        """That none ever led here and how to find the right namespace, or that it cannot be seen;
        "" where one did.
        """
        if self.forbidden:
            return (
                f"you may not get leases ({COMPONENT_REMEDIATOR}): whether a remediator leads is "
                "not known"
            )
        if not self.never:
            return ""
        said = f"no remediator has ever led in namespace {self.namespace}"
        if self.awaited:
            look = f"kubectl -n {self.namespace} get pods -l {REMEDIATOR_SELECTOR}"
            return f"{said}, though its pods are there; see {look}"
        if self.spaces:
            return (
                f"{said}, one runs in {some(self.spaces)} by a policy that was not looked at; "
                f"name it with -n {self.spaces[0]}"
            )
        known = ", and no pod of one is in this cluster" if self.spaces is not None else ""
        # By the Lease, which one that was started by hand has as well.
        find = f"kubectl get lease -A --field-selector metadata.name={COMPONENT_REMEDIATOR}"
        return (
            f"{said}{known}: nothing is taken out, repaired or given back from there; "
            f"{find} finds where one leads (-n), --context names another cluster"
        )

    @property
    def said(self) -> str:
        """Why what was asked for waits; "" where a remediator leads and can act."""
        if found := self.never_said or self.nobody:
            return found
        if not (cannot := self.cannot_act):
            return ""
        return (
            f"a remediator leads and {cannot}; nothing is taken out, repaired or given back, and "
            "what is asked for waits; kubectl gpuward preflight looks at its rights, kubectl "
            "cordon NODE keeps new work off a node that fails"
        )


NOT_SEEN: Final = Leadership(namespace="", now=0.0, hidden=True)
"""Nothing is known of who leads."""


async def leadership(cluster: Cluster, namespace: str) -> Leadership:
    """Read once for a command; an API server in trouble is said by the command itself."""
    return await cluster.once(
        f"leadership {namespace}", lambda: read_leadership(cluster, namespace)
    )


async def read_leadership(cluster: Cluster, namespace: str) -> Leadership:
    """The same as it is at this moment."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    now = cluster.now
    try:
        found = await cluster.get(api_path(path, COMPONENT_REMEDIATOR))
        lease = msgspec.convert(found, LeaseView) if found is not None else None
    except CommandError as error:
        refused = error.forbidden
        return Leadership(namespace=namespace, now=now(), hidden=True, forbidden=refused)
    except msgspec.ValidationError:
        return Leadership(namespace=namespace, now=now(), hidden=True)
    if lease is not None:
        return Leadership(namespace=namespace, now=now(), lease=lease)
    query = {"labelSelector": REMEDIATOR_SELECTOR, "fieldSelector": NOT_ENDED}
    try:
        pods = await cluster.everything("/api/v1/pods", query)
    except CommandError:
        return Leadership(namespace=namespace, now=now())
    spaces = {str((pod.get("metadata") or {}).get("namespace") or "") for pod in pods}
    named = tuple(sorted(filter(is_object_name, spaces)))
    return Leadership(namespace=namespace, now=now(), spaces=named)


async def stop_unless_led(
    cluster: Cluster, namespace: str, *, ask: Callable[[str], None] | None
) -> None:
    """Before a write that only a remediator carries out: where none ever led in the namespace,
    `ask` whether to go on, or without it do nothing.

    A request is of the whole cluster: a remediator in another namespace carries it out, by a
    policy that the person was not told of. A pause holds for that one too, so it is only
    questioned where there is none at all. Where that cannot be seen nothing is in the way: an API
    server in trouble is when people pause, and what hinders the write itself, the write says.
    """
    found = await leadership(cluster, namespace)
    if not found.never or found.awaited:
        return
    if ask is None:
        raise CommandError(f"nothing was asked for: {found.never_said}")
    if found.spaces == ():
        ask(f"{found.never_said}. Nobody obeys this now; write it all the same?")
