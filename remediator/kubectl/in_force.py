"""Who acts in the cluster and by which policy, as far as an operator may see it: the Lease with
what its holder reports there, and the policy's ConfigMap.
"""

import argparse
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from remediator.kube import resources
from remediator.kubectl.cluster import NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError
from remediator.view import operators
from rules.api import messages, names, object_name, selectors, timestamps
from rules.api.nodes import WELL, LeaderStatus, LeaseView, NodeView, leader_status
from rules.api.quarantine import Mode
from rules.policy.policy import Policy, UnreadPolicy, by_accident, shadow_of
from rules.session import exclusions
from rules.text import printable

UNRENEWED_S: Final = 30.0
"""A Lease that old has no holder: twice its duration, so that a hand-over is never one."""
_LAST_GOOD: Final = "the remediator uses the last valid policy"
_EITHER: Final = (
    "a running remediator uses the last valid policy, one that starts now runs in Shadow mode"
)
_IN_SHADOW: Final = (
    "the policy is Shadow: no node is quarantined; kubectl gpuward plan shows what "
    "mode Enforce would do; to start, set mode: Enforce in the policy of your overlay"
)
_HIDDEN: Final = "you are not permitted to get the policy's ConfigMap, so its mode is unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who leads in the namespace that an operator means, as far as that operator may see it."""

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
        return (
            "so far"
            if renewed is None
            else f"for {timestamps.age(self.lease.spec.renew_time, self.now)}"
        )

    @property
    def led_at(self) -> float | None:
        """When somebody last did; None where none ever has."""
        return (
            timestamps.parse_time(self.lease.spec.renew_time or "")
            if self.lease is not None
            else None
        )

    @property
    def status(self) -> LeaderStatus:
        """The problems that the leader publishes on its Lease; none without a leader."""
        if self.lease is None or self.lasts:
            return WELL
        return leader_status(self.lease.metadata.annotations)

    @property
    def cannot_act(self) -> str:
        """Return `cannot act (for 5m): why` if the leader reports it; else ""."""
        if not self.status.unable:
            return ""
        at = self.status.unable_since
        since = f" (for {timestamps.span(self.now - at)})" if at is not None else ""
        return f"cannot act{since}: {self.status.unable}"

    @property
    def no_leader(self) -> str:
        """The sentence about a Lease that nobody renews; "" of one that is held."""
        if self.lease is None or not self.lasts:
            return ""
        return (
            f"gpuward-remediator has had no leader {self.lasts}: quarantine, repair and release "
            f"are stopped, and requests wait; see kubectl -n {self.namespace} get pods -l "
            f"{resources.REMEDIATOR_SELECTOR}"
        )

    @property
    def never_led(self) -> str:
        """That none ever led here and how to find the right namespace, or that it cannot be seen;
        "" where one did.
        """
        if self.forbidden:
            return (
                f"you are not permitted to get leases ({names.COMPONENT_REMEDIATOR}), so whether "
                "a remediator leads is unknown"
            )
        if not self.never:
            return ""
        text = f"no remediator has ever led in namespace {self.namespace}"
        if self.awaited:
            look = f"kubectl -n {self.namespace} get pods -l {resources.REMEDIATOR_SELECTOR}"
            return f"{text}, though its pods are there; see {look}"
        if self.spaces:
            where = messages.name_list(self.spaces)
            return f"{text}, one runs in {where}: name it with -n {self.spaces[0]}"
        find = f"kubectl get lease -A --field-selector metadata.name={names.COMPONENT_REMEDIATOR}"
        return (
            f"{text}: nothing is quarantined, repaired or returned to service from there; {find} "
            "finds where one leads (-n), --context names another cluster"
        )

    @property
    def message(self) -> str:
        """Why what was asked for waits; "" where a remediator leads and can act."""
        if found := self.never_led or self.no_leader:
            return found
        if not (cannot := self.cannot_act):
            return ""
        return (
            f"the leader of gpuward-remediator {cannot}; quarantine, repair and release are "
            "stopped, and requests wait; check its permissions with kubectl gpuward preflight, "
            "and keep new pods off failed nodes with kubectl cordon NODE"
        )


UNKNOWN: Final = Leadership(namespace="", now=0.0, hidden=True)
"""Nothing is known of who leads."""


async def leadership(cluster: Cluster, namespace: str) -> Leadership:
    """Read the Lease once for a command. The command reports a failing API server itself."""
    return await cluster.once(
        f"leadership {namespace}", lambda: read_leadership(cluster, namespace)
    )


async def read_leadership(cluster: Cluster, namespace: str) -> Leadership:
    """The same as it is at this moment."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    now = cluster.now
    try:
        found = await cluster.get(object_name.api_path(path, names.COMPONENT_REMEDIATOR))
        lease = msgspec.convert(found, LeaseView) if found is not None else None
    except CommandError as error:
        refused = error.forbidden
        return Leadership(namespace=namespace, now=now(), hidden=True, forbidden=refused)
    except msgspec.ValidationError:
        return Leadership(namespace=namespace, now=now(), hidden=True)
    if lease is not None:
        return Leadership(namespace=namespace, now=now(), lease=lease)
    query = {"labelSelector": resources.REMEDIATOR_SELECTOR, "fieldSelector": NOT_ENDED}
    try:
        pods = await cluster.everything("/api/v1/pods", query)
    except CommandError:
        return Leadership(namespace=namespace, now=now())
    spaces = {str((pod.get("metadata") or {}).get("namespace") or "") for pod in pods}
    named = tuple(sorted(filter(object_name.is_object_name, spaces)))
    return Leadership(namespace=namespace, now=now(), spaces=named)


async def stop_unless_led(
    cluster: Cluster, namespace: str, *, ask: Callable[[str], None] | None
) -> None:
    """Check for a remediator before a request. If none ever led in the namespace, `ask` for
    confirmation, or raise CommandError without `ask`.

    Requests are cluster-wide: a remediator in another namespace would carry one out by a policy
    unknown to the operator. A pause applies there too, so it asks only if there is no
    remediator at all. Unknown does not block: operators pause when the API server has problems.
    """
    found = await leadership(cluster, namespace)
    if not found.never or found.awaited:
        return
    if ask is None:
        raise CommandError(f"nothing was requested: {found.never_led}")
    if found.spaces == ():
        ask(f"{found.never_led}. No remediator reads this request. Write it anyway?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInForce:
    """The policy by which nodes are judged, as far as an operator may see it."""

    policy: Policy | None = None
    """None: the namespace has none, or it is unknown (`doubt`)."""
    doubt: str = ""
    """Why the policy is unknown, or why no remediator could read it; else ""."""


async def policy_in_force(cluster: Cluster, namespace: str) -> PolicyInForce:
    """That of the namespace, or what is left to a remediator that could read none; read once for a
    command.
    """

    async def read() -> PolicyInForce:
        if doubt := unread_policy((await leadership(cluster, namespace)).status):
            return PolicyInForce(policy=UnreadPolicy(), doubt=doubt)
        try:
            return PolicyInForce(policy=await cluster.policy(namespace))
        except CommandError as error:
            if error.unusable:
                return PolicyInForce(doubt=await unusable(error, cluster, namespace))
            doubt = _HIDDEN if error.forbidden else f"the policy cannot be read: {error}"
            return PolicyInForce(doubt=doubt)

    return await cluster.once(f"policy {namespace}", read)


def unread_policy(status: LeaderStatus) -> str:
    """That Shadow is an accident, and what to do; "" where it is none."""
    texts = shadow_of(UnreadPolicy())
    if not status.unread or texts is None:
        return ""
    return (
        f"{texts.state} ({status.unread}): failed nodes are not quarantined; check the policy "
        "with kubectl gpuward preflight, and keep new pods off failed nodes with kubectl cordon "
        "NODE"
    )


async def unusable(error: CommandError, cluster: Cluster, namespace: str) -> str:
    """This version cannot read the policy; which one is used until then."""
    status = (await leadership(cluster, namespace)).status
    texts = shadow_of(UnreadPolicy()) if status.unread else None
    meanwhile = texts.state if texts else _LAST_GOOD if status.last_good else _EITHER
    return f"the policy cannot be used ({error}): {meanwhile}"


async def judged_by(cluster: Cluster, options: argparse.Namespace) -> tuple[Policy | None, str]:
    """The policy that `--policy` names, else the cluster's, and where it is from; None where the
    cluster has none: the defaults hold. CommandError `unusable` for one that is wrong.
    """
    if options.policy:
        # Imported here: only a plan reads a file.
        from remediator.policy_file import given_policy

        found = given_policy(options.policy)
        if isinstance(found, Policy):
            return found, f"policy {options.policy}"
        raise CommandError("; ".join(found), exit_code=64)
    namespace = options.namespace
    try:
        in_cluster = await cluster.policy(namespace)
    except CommandError as error:
        if not error.unusable:
            raise
        text = (
            f"{await unusable(error, cluster, namespace)}; to use another one, add --policy FILE"
        )
        raise CommandError(text, unusable=True) from error
    if in_cluster is not None:
        return in_cluster, f"policy of ConfigMap {namespace}/gpuward-policy"
    return None, f"default policy (there is no ConfigMap {namespace}/gpuward-policy)"


def of_policy(policy: Policy | None, nodes: Collection[NodeView]) -> list[str]:
    """That somebody chose Shadow, or that it leaves some of these nodes out."""
    if policy is None or by_accident(policy):
        return []
    lines = [_IN_SHADOW] if Mode.ENFORCE not in policy.modes else []
    # A selector that was narrowed by mistake looks like a fleet that is well.
    selects = selectors.parse_selector(policy.node_selector)
    if left := sum(not selects(node.labels) for node in nodes):
        selector, among = policy.node_selector, printable.count(len(nodes), "GPU node")
        lines.append(
            f"the policy's nodeSelector ({selector}) leaves out {left} of {among}: these are "
            "never quarantined automatically"
        )
    return lines


async def blocker_of(cluster: Cluster, options: argparse.Namespace, node: NodeView) -> str:
    """Return what blocks a request for the node (Shadow, an opt-out, another owner, a pause) as a
    clause; "" if nothing is known to block it.
    """
    found = await policy_in_force(cluster, options.namespace)
    policy, unsure = found.policy and found.policy.of(node.labels), ""
    if policy is None:
        unsure = (
            f"; {found.doubt}"
            if found.doubt
            else (
                f"; namespace {options.namespace} has no policy (-n sets gpuward's namespace): "
                "gpuward changes no node, unless a running remediator has read a policy before"
            )
        )
    elif (texts := shadow_of(policy)) is not None and by_accident(policy):
        return (
            f"; {texts.state}: the node is unchanged until {texts.ended_by}. Until then, keep new "
            f"pods off with kubectl cordon {node.name}"
        )
    elif texts is not None:
        # before all else: the end of that would change nothing
        return f"; {texts.state}, so the node is unchanged"
    if exclusions.opted_out(node):
        command = f"kubectl label node {node.name} {names.LABEL_OPT_OUT}-"
        return f"; the node is opted out, gpuward waits until: {command}"
    if owner := exclusions.working_owner(node, None, cluster.now()):
        return f"; {owner}, gpuward waits until this is done"
    try:
        paused = await cluster.once("pauses", cluster.pauses)
    except CommandError as error:
        hidden = "; whether it is paused is unknown: you are not permitted to list gpuwardpauses"
        return unsure + hidden if error.forbidden else unsure
    if pauses := [p for p in paused if exclusions.pause_covers(p, node, cluster.now())]:
        return f"; the node is paused, gpuward waits until: {operators.resume_command(pauses)}"
    return unsure
