"""The leases of other operators that keep the remediator from a node."""

from __future__ import annotations

import msgspec

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.upkeep.maintenance import LEASES
from rules.api.nodes import LeaseView
from rules.session.owners import leases_by_node


async def maintenance_leases(cluster: Cluster) -> dict[str, LeaseView]:
    """By node; those that this person may not list, or nobody understands, are none, and that is
    said.
    """
    try:
        found = await cluster.everything(LEASES, {})
        return leases_by_node(msgspec.convert(one, LeaseView, strict=False) for one in found)
    except CommandError as error:
        if not error.forbidden:
            raise
        cluster.say(f"not seen, whether node maintenance holds a node: {error}")
    except msgspec.ValidationError as error:
        cluster.say(f"not seen, whether node maintenance holds a node: a Lease is none: {error}")
    return {}
