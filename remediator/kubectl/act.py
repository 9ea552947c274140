"""The commands that write: each one states who acted and why, and touches one object.

They never touch a node's taints or cordon themselves: they tell the remediator, which owns the mark
and respects budget and PodDisruptionBudgets.
"""

import re
import secrets

from remediator.kubectl.cluster import GROUP_PATH, Cluster, CommandError
from remediator.kubectl.look import existing_node
from remediator.kubectl.why import open_session
from rules.health_object import plain
from rules.names import ANNOTATION_HOLD, ANNOTATION_REPAIRED, API_VERSION
from rules.quarantine_object import (
    MAX_MESSAGE,
    Cause,
    PauseScope,
    PauseSpec,
    QuarantineSpec,
)
from rules.session_time import format_time

HUMAN_REASON = "Requested"


async def quarantine(cluster: Cluster, name: str, reason: str, *, level: str) -> str:
    """Ask for a session on the node, or add a Human cause to the one that is open."""
    node = await existing_node(cluster, name)
    by = await cluster.who()
    cause = Cause(source="Human", reason=HUMAN_REASON, message=reason[:MAX_MESSAGE], by=by)
    session = open_session(await cluster.sessions(name))
    if session is not None:
        causes = (*session.spec.causes, cause)
        await cluster.patch(
            f"{GROUP_PATH}/gpuquarantines/{session.name}",
            {
                "metadata": {"resourceVersion": session.metadata.resource_version},
                "spec": {"causes": [plain(one) for one in causes]},
            },
        )
        return f"{name}: your reason was added to session {session.name}, which is already open"
    prefix = re.sub(r"[^a-z0-9.-]", "-", node.name)[:200]
    spec = QuarantineSpec(node_name=name, causes=(cause,), level=level)
    created = await cluster.create(
        "gpuquarantines",
        {
            "apiVersion": API_VERSION,
            "kind": "GPUQuarantine",
            "metadata": {"name": f"{prefix}-by-hand-{secrets.token_hex(4)}"},
            "spec": plain(spec),
        },
    )
    opened = created["metadata"]["name"]
    return f"{name}: session {opened} is open; kubectl gpuward why {name} says how it goes"


async def release(cluster: Cluster, name: str, reason: str) -> str:
    """Ask for release now."""
    await existing_node(cluster, name)
    session = open_session(await cluster.sessions(name))
    if session is None:
        raise CommandError(
            f"{name} is not in quarantine, so there is nothing to release; if it is cordoned, "
            f"somebody else did it: kubectl uncordon {name}"
        )
    release_request = {"by": await cluster.who(), "reason": reason[:MAX_MESSAGE]}
    await cluster.patch(
        f"{GROUP_PATH}/gpuquarantines/{session.name}", {"spec": {"release": release_request}}
    )
    return f"{name}: release of session {session.name} is asked for"


async def repaired(cluster: Cluster, name: str, reason: str) -> str:
    """Tell the agent that a part was replaced: it closes what only a person can close."""
    await existing_node(cluster, name)
    value = f"{format_time(cluster.now())} {reason} ({await cluster.who()})"
    await _annotate(cluster, name, ANNOTATION_REPAIRED, value[:MAX_MESSAGE])
    return f"{name}: the agent will close what a repair closes, if the present agrees"


async def hold(cluster: Cluster, name: str, reason: str) -> str:
    """Keep the node: no release, whatever the verdict says."""
    await existing_node(cluster, name)
    note = f"{reason} ({await cluster.who()})"[:MAX_MESSAGE]
    session = open_session(await cluster.sessions(name))
    if session is None:
        await _annotate(cluster, name, ANNOTATION_HOLD, note)
        return f"{name}: held; it is not in quarantine now, and would not be released from one"
    await cluster.patch(f"{GROUP_PATH}/gpuquarantines/{session.name}", {"spec": {"hold": True}})
    await _annotate(cluster, name, ANNOTATION_HOLD, note)
    return f"{name}: session {session.name} is held; a drain goes on, a release does not happen"


async def unhold(cluster: Cluster, name: str) -> str:
    """Take the hold back."""
    await existing_node(cluster, name)
    session = open_session(await cluster.sessions(name))
    if session is not None and session.spec.hold:
        await cluster.patch(
            f"{GROUP_PATH}/gpuquarantines/{session.name}", {"spec": {"hold": False}}
        )
    await _annotate(cluster, name, ANNOTATION_HOLD, None)
    return f"{name}: no longer held"


async def pause(cluster: Cluster, reason: str, *, nodes: list[str], until: str) -> str:
    """No new harm on these nodes (on all, without any), within a second."""
    spec = PauseSpec(
        scope=PauseScope(all=not nodes, nodes=tuple(nodes)),
        reason=reason[:MAX_MESSAGE],
        by=await cluster.who(),
        until=until,
    )
    name = f"pause-{secrets.token_hex(4)}"
    await cluster.create(
        "gpuwardpauses",
        {
            "apiVersion": API_VERSION,
            "kind": "GPUWardPause",
            "metadata": {"name": name},
            "spec": plain(spec),
        },
    )
    where = ", ".join(nodes) if nodes else "every node"
    return f"paused on {where} as {name}; marks stay, kubectl gpuward resume ends it"


async def resume(cluster: Cluster, names: list[str]) -> str:
    """End the named pauses, or all of them."""
    existing = {p.metadata.name for p in await cluster.pauses()}
    missing = sorted(set(names) - existing)
    if missing:
        raise CommandError(f"there is no pause {', '.join(missing)}; kubectl get gp lists them")
    ending = sorted(names or existing)
    for name in ending:
        await cluster.delete(f"{GROUP_PATH}/gpuwardpauses/{name}")
    return f"ended: {', '.join(ending)}" if ending else "nothing was paused"


async def _annotate(cluster: Cluster, node: str, key: str, value: str | None) -> None:
    await cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {key: value}}})
