"""`kubectl gpuward bundle NODE`: one archive with what support asks for, read once, no Secrets.

What may not be read, or is not there, is named in `missing.txt`; the rest is collected all the
same.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from remediator.kubectl.bundle import redaction
from remediator.kubectl.cluster import GROUP_PATH, POLICY_MAP, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.look import nearest
from remediator.kubectl.node_look import look_at
from remediator.kubectl.terminal import Terminal
from remediator.kubectl.why.why import why
from remediator.version import release_version
from remediator.view.text import document
from rules.api.names import COMPONENT_AGENT, COMPONENT_REMEDIATOR
from rules.api.object_name import api_path, field_selector
from rules.text.counted import count

LOG_LINES: Final = 5000
LOG_SINCE_S: Final = 6 * 3600
_OUR_PODS: Final = "app.kubernetes.io/name=gpuward"
_MOST_LOGS: Final = 8
Keep = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(slots=True)
class _Collected:
    """Files by name, and what could not be read, with the reason."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    async def add(self, name: str, made: Awaitable[str]) -> None:
        try:
            self.files[name] = await made
        except CommandError as error:
            self.missing.append(f"{name}: {error}")


async def bundle(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Collect and write; the answer names the file and what is not in it."""
    node, namespace = options.node, options.namespace
    await _check_known(cluster, node)
    found = _Collected()
    await found.add("why.txt", _why(cluster, node, namespace))
    await found.add("node.yaml", _one(cluster, api_path("/api/v1/nodes", node)))
    await found.add("health.yaml", _one(cluster, api_path(f"{GROUP_PATH}/gpunodehealths", node)))
    of_node = {"fieldSelector": field_selector("spec.nodeName", node)}
    await found.add("sessions.yaml", _list(cluster, f"{GROUP_PATH}/gpuquarantines", of_node))
    await found.add("pauses.yaml", _list(cluster, f"{GROUP_PATH}/gpuwardpauses"))
    policy = f"/api/v1/namespaces/{namespace}/configmaps/{POLICY_MAP}"
    await found.add("policy.yaml", _one(cluster, policy))
    pods = _list(cluster, "/api/v1/pods", of_node, keep=redaction.pod)
    await found.add("pods.yaml", pods)
    await found.add("budgets.yaml", _list(cluster, "/apis/policy/v1/poddisruptionbudgets"))
    of_events = {"fieldSelector": f"involvedObject.name={node}"}
    await found.add("events-node.yaml", _list(cluster, _events("default"), of_events))
    await found.add("events-gpuward.yaml", _list(cluster, _events(namespace)))
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    for plural, name in (("daemonsets", COMPONENT_AGENT), ("deployments", COMPONENT_REMEDIATOR)):
        await found.add(f"{name}.yaml", _workload(cluster, f"{apps}/{plural}/{name}"))
    await found.add("version.yaml", _versions(cluster))
    await _logs(cluster, node, found)
    stamp = datetime.fromtimestamp(cluster.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
    path = Path(options.written_to or f"gpuward-{node}-{stamp}.tar.gz")
    try:
        _write(path, found, cluster.now())
    except OSError as error:
        raise CommandError(
            f"{path} cannot be written: {error.strerror}; name another with --to"
        ) from error
    lacks = f"; {count(len(found.missing), 'part')} missing, see missing.txt in it"
    return (
        f"{path}: {count(len(found.files), 'file')}{lacks if found.missing else ''}\n"
        "look through it before you hand it on: names of pods, images and processes are in it, "
        "Secrets and environments are not\n"
        "from the node itself add: gpuward-agent check --json, nvidia-smi -q, dmesg\n"
        f"for the vendor of a GPU: kubectl gpuward evidence {node}"
    )


async def _check_known(cluster: Cluster, node: str) -> None:
    """Refuse a name that nobody knows, and a server that is away: an archive of nothing would be
    handed on as if it said something. What may only not be read is named in the archive.
    """
    try:
        if await cluster.node(node) is not None:
            return
        if await cluster.health(node) is not None or await cluster.sessions(node):
            return
    except CommandError as error:
        if error.forbidden:
            return
        raise
    raise CommandError(f"there is no node {node}{await nearest(cluster, node)}")


async def _why(cluster: Cluster, node: str, namespace: str) -> str:
    return "\n".join(why(await look_at(cluster, node, namespace=namespace), wide=True)) + "\n"


async def _one(cluster: Cluster, path: str, keep: Keep = redaction.plain) -> str:
    found = await cluster.get(path)
    if found is None:
        raise CommandError("there is none")
    return document(keep(found), "yaml") + "\n"


async def _list(
    cluster: Cluster,
    path: str,
    query: dict[str, str] | None = None,
    keep: Keep = redaction.plain,
) -> str:
    found = await cluster.everything(path, query or {})
    return document({"items": [keep(one) for one in found]}, "yaml") + "\n"


async def _workload(cluster: Cluster, path: str) -> str:
    """A DaemonSet or Deployment without its environment."""

    def keep(found: dict[str, Any]) -> dict[str, Any]:
        template = (found.get("spec") or {}).get("template") or {}
        shown = redaction.pod(template)
        arguments = [
            {"name": one.get("name"), "args": one.get("args")}
            for one in (template.get("spec") or {}).get("containers") or ()
        ]
        return {
            "metadata": redaction.metadata(found.get("metadata") or {}),
            "template": shown,
            "arguments": arguments,
            "status": found.get("status"),
        }

    return redaction.text(await _one(cluster, path, keep))


async def _versions(cluster: Cluster) -> str:
    server = await cluster.get("/version") or {}
    return document({"plugin": release_version(), "kubernetes": server}, "yaml") + "\n"


def _events(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


async def _logs(cluster: Cluster, node: str, found: _Collected) -> None:
    """Of the agent on the node and of every replica, this start and the one before."""
    try:
        pods = await cluster.everything("/api/v1/pods", {"labelSelector": _OUR_PODS})
    except CommandError as error:
        found.missing.append(f"logs: {error}")
        return
    chosen = [one for one in pods if _matters(one, node)][:_MOST_LOGS]
    for one in chosen:
        meta = one["metadata"]
        base = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
        query = {"tailLines": str(LOG_LINES), "sinceSeconds": str(LOG_SINCE_S)}
        await found.add(f"logs/{meta['name']}.log", _log(cluster, base, query))
        restarted = any(
            state.get("restartCount")
            for state in (one.get("status") or {}).get("containerStatuses") or ()
        )
        if restarted:
            before = {"tailLines": str(LOG_LINES), "previous": "true"}
            await found.add(f"logs/{meta['name']}-before.log", _log(cluster, base, before))
    if not chosen:
        found.missing.append("logs: there is no pod of gpuward-remediator, nor one on the node")


def _matters(pod: dict[str, Any], node: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    part = labels.get("app.kubernetes.io/component")
    return part == "remediator" or (part == "agent" and pod["spec"].get("nodeName") == node)


async def _log(cluster: Cluster, path: str, query: dict[str, str]) -> str:
    return redaction.text(await cluster.text(path, query))


def _write(path: Path, found: _Collected, now: float) -> None:
    """The archive, readable by its owner alone."""
    files = dict(found.files)
    if found.missing:
        files["missing.txt"] = "\n".join(found.missing) + "\n"
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w:gz") as archive:
        for name, text in files.items():
            data = text.encode("utf-8", "backslashreplace")
            entry = tarfile.TarInfo(f"{path.name.split('.')[0]}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(now), 0o600
            archive.addfile(entry, io.BytesIO(data))
    path.touch(mode=0o600)
    path.write_bytes(kept.getvalue())
