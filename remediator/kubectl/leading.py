"""Whether anybody carries out what people ask for: the remediators' Lease, in one sentence."""

from __future__ import annotations

from typing import Final

import msgspec

from remediator.kube.resources import REMEDIATOR_SELECTOR
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.view.text import age
from rules.api.names import COMPONENT_REMEDIATOR
from rules.api.nodes import LeaseView
from rules.api.object_name import api_path
from rules.api.timestamps import parse_time

UNRENEWED_S: Final = 30.0
"""A Lease that old has no holder: twice its duration, so that a hand-over is never one."""


async def lease_of(cluster: Cluster, namespace: str) -> LeaseView | None:
    """The Lease by which the remediators agree who leads; None where none ever did."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    found = await cluster.get(api_path(path, COMPONENT_REMEDIATOR))
    try:
        return msgspec.convert(found, LeaseView) if found is not None else None
    except msgspec.ValidationError as error:
        raise CommandError(f"the Lease {COMPONENT_REMEDIATOR} is unreadable: {error}") from error


async def without_leader(cluster: Cluster, namespace: str) -> str:
    """That no remediator leads, and what that means; "" where one does or nobody may know."""
    try:
        lease = await lease_of(cluster, namespace)
    except CommandError:
        return ""
    return nobody_leads(lease, namespace, cluster.now()) if lease is not None else ""


async def unled_since(cluster: Cluster, namespace: str) -> str:
    """For how long nobody has led, as `for 31s`; "" where somebody does or nobody may know."""
    try:
        lease = await lease_of(cluster, namespace)
    except CommandError:
        return ""
    return _unled(lease, cluster.now()) if lease is not None else ""


def nobody_leads(lease: LeaseView, namespace: str, now: float) -> str:
    """The sentence about a Lease that nobody renews; "" of one that is held.

    Where there is no Lease none has led yet, which is no news before the installation.
    """
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
