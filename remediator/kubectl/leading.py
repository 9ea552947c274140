"""Whether anybody carries out what people ask for: the remediators' Lease, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from remediator.kube.resources import REMEDIATOR_SELECTOR
from remediator.kubectl.cluster import NOT_ENDED, Cluster
from remediator.kubectl.command import CommandError
from remediator.view.text import age, span
from rules.api.leaders_word import WELL, LeadersWord, leaders_word
from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.nodes import LeaseView
from rules.api.object_name import api_path, is_object_name
from rules.api.sentences import some
from rules.api.timestamps import parse_time, utc

UNRENEWED_S: Final = 30.0
"""A Lease that old has no holder: twice its duration, so that a hand-over is never one."""

_HIDDEN: Final = (
    f"you may not get leases ({COMPONENT_REMEDIATOR}): whether a remediator leads is not known"
)


async def lease_of(cluster: Cluster, namespace: str) -> LeaseView | None:
    """The Lease by which the remediators agree who leads; None where none ever did. One look of a
    command reads it once.
    """
    return await cluster.once(f"lease {namespace}", lambda: _lease(cluster, namespace))


async def leaders_word_of(cluster: Cluster, namespace: str) -> LeadersWord:
    """What the remediator that leads says of itself; nothing where none leads, and where a person
    may not read it.
    """
    try:
        lease = await lease_of(cluster, namespace)
    except CommandError:
        return WELL
    if lease is None or _unled(lease, cluster.now()):
        return WELL
    return leaders_word(lease.metadata.annotations)


def unable_since(word: LeadersWord, now: float) -> str:
    """`cannot act, since TIME (9m ago): why`, of a leader that says so; else ""."""
    if not word.unable:
        return ""
    at = word.unable_since
    since = f", since {utc(at)} ({span(now - at)} ago)" if at is not None else ""
    return f"cannot act{since}: {word.unable}"


async def _lease(cluster: Cluster, namespace: str) -> LeaseView | None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    found = await cluster.get(api_path(path, COMPONENT_REMEDIATOR))
    try:
        return msgspec.convert(found, LeaseView) if found is not None else None
    except msgspec.ValidationError as error:
        raise CommandError(f"the Lease {COMPONENT_REMEDIATOR} is unreadable: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverLed:
    """No remediator ever led in the namespace that a person means."""

    namespace: str
    spaces: tuple[str, ...] | None
    """Where pods of one are; None where they cannot be listed."""

    @property
    def awaited(self) -> bool:
        """It is installed there and has yet to lead."""
        return self.namespace in (self.spaces or ())

    @property
    def sentence(self) -> str:
        """What that means, and how to find the right namespace."""
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


async def without_leader(cluster: Cluster, namespace: str, *, ever: bool = False) -> str:
    """That no remediator leads, or `ever` did, or that the one that leads cannot act, and what
    that means, or that it may not be seen; "" where one acts or the API server is in trouble.
    """
    try:
        lease = await lease_of(cluster, namespace)
        if lease is None:
            return (await _never_led(cluster, namespace)).sentence
    except CommandError as error:
        return _HIDDEN if error.forbidden else ""
    if ever:
        return ""
    word = await leaders_word_of(cluster, namespace)
    return nobody_leads(lease, namespace, cluster.now()) or unable_said(word, cluster.now())


def unable_said(word: LeadersWord, now: float) -> str:
    """The sentence about a leader that cannot act; "" of one that can."""
    if not (cannot := unable_since(word, now)):
        return ""
    return (
        f"a remediator leads and {cannot}; nothing is taken out, repaired or given back, and what "
        "is asked for waits; kubectl gpuward preflight looks at its rights, kubectl cordon NODE "
        "keeps new work off a node that fails"
    )


async def stop_unless_led(
    cluster: Cluster, namespace: str, *, ask: Callable[[str], None] | None
) -> None:
    """Before a write that only a remediator carries out: where none ever led in the namespace,
    `ask` whether to go on, or without it do nothing.

    A request is of the whole cluster: a remediator in another namespace carries it out, by a
    policy that the person was not told of. A pause holds for that one too, so it is only
    questioned where there is none at all and whoever gave it would believe that all stands still.
    Where that cannot be seen nothing is in the way: an API server in trouble is when people pause,
    and what hinders the write itself, the write says.
    """
    try:
        if await lease_of(cluster, namespace) is not None:
            return
    except CommandError:
        return
    never = await _never_led(cluster, namespace)
    if never.awaited:
        return
    if ask is None:
        raise CommandError(f"nothing was asked for: {never.sentence}")
    if never.spaces == ():
        ask(f"{never.sentence}. Nobody obeys this now; write it all the same?")


async def _never_led(cluster: Cluster, namespace: str) -> NeverLed:
    query = {"labelSelector": REMEDIATOR_SELECTOR, "fieldSelector": NOT_ENDED}
    try:
        pods = await cluster.everything("/api/v1/pods", query)
    except CommandError:
        return NeverLed(namespace=namespace, spaces=None)
    found = {str((pod.get("metadata") or {}).get("namespace") or "") for pod in pods}
    return NeverLed(namespace=namespace, spaces=tuple(sorted(filter(is_object_name, found))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unled:
    """Nobody leads."""

    lasts: str
    """For how long nobody has, as `for 31s` or `so far`."""
    led_at: float | None
    """When somebody last did; None where none ever has."""


async def unled_since(cluster: Cluster, namespace: str) -> Unled | None:
    """Since when nobody has led; None where somebody does, in whatever namespace, or nobody may
    know.
    """
    try:
        lease = await lease_of(cluster, namespace)
        if lease is not None:
            led_at = parse_time(lease.spec.renew_time or "")
            lasts = _unled(lease, cluster.now())
            return Unled(lasts=lasts, led_at=led_at) if lasts else None
        never = await _never_led(cluster, namespace)
    except CommandError:
        return None
    if never.awaited or never.spaces == ():
        return Unled(lasts="so far", led_at=None)
    return None


def nobody_leads(lease: LeaseView, namespace: str, now: float) -> str:
    """The sentence about a Lease that nobody renews; "" of one that is held."""
    if not (since := _unled(lease, now)):
        return ""
    return (
        f"no remediator has led {since}: nothing is taken out, repaired or given back, and what "
        f"is asked for waits; see kubectl -n {namespace} get pods -l {REMEDIATOR_SELECTOR}"
    )


def _unled(lease: LeaseView, now: float) -> str:
    renewed = parse_time(lease.spec.renew_time or "")
    if renewed is None:
        return "so far"
    return "" if now - renewed < UNRENEWED_S else f"for {age(lease.spec.renew_time, now)}"
