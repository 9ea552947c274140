"""`kubectl gpuward export`: the cluster's records as one archive, for a back-test or a bug report.

It reads and writes a file, nothing else. What is in it is `rules.backtest.archive`'s to say: no
pod spec, no environment, no secret; with --anonymise no name either.
"""

from __future__ import annotations

import argparse
import io
import secrets
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from remediator.backtest.files import write_tar
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.terminal import Terminal
from remediator.version import release_version
from rules.api.names import LABEL_GPUS
from rules.api.timestamps import format_time
from rules.backtest.anonymise import Anonymiser
from rules.backtest.archive import (
    Archive,
    ExportMeta,
    exported_node,
    exported_object,
    exported_pdb,
    exported_pods,
    exported_policy,
    to_files,
)
from rules.policy.policy import Policy
from rules.text.counted import count

T = TypeVar("T")


async def export(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Write the archive; the answer is empty where the archive itself is on standard output."""
    out = options.written_to
    if not out and (sys.stdout.isatty() or not hasattr(sys.stdout, "buffer")):
        raise CommandError("an archive is no text: name a file with -o, or redirect to one")
    archive = await _read(cluster, options.namespace)
    if options.anonymise:
        key = await _key(cluster)
        if not key:
            terminal.say(
                "you may not read namespace kube-system, whose UID keys the names: these are "
                "random ones, and those of another export will not agree with them"
            )
        archive = Anonymiser(key or secrets.token_bytes(32)).archive(archive)
    body = io.BytesIO()
    write_tar(to_files(archive), body)
    _put(out, body.getvalue())
    for lack in archive.meta.lacks:
        terminal.say(f"left out: {lack}")
    if not out:
        return ""
    return (
        f"{out}: {count(len(archive.nodes), 'node')}, {count(len(archive.sessions), 'session')}, "
        f"{count(len(archive.records), 'record')}, {count(len(archive.pods), 'pod')}"
    )


def _put(out: str, body: bytes) -> None:
    try:
        if out:
            Path(out).write_bytes(body)
        else:
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
    except OSError as error:
        raise CommandError(
            f"{out or 'the archive'} cannot be written: {error.strerror}"
        ) from error


async def _read(cluster: Cluster, namespace: str) -> Archive:
    lacks: list[str] = []

    async def allowed(call: Awaitable[T], empty: T, what: str) -> T:
        try:
            return await call
        except CommandError as error:
            if not error.forbidden and not error.unusable:
                raise
            wrong = f"{what}, which is not valid: {error}"
            lacks.append(wrong if error.unusable else f"you may not read {what}")
            return empty

    policy = await allowed(cluster.policy(namespace), None, "the policy")
    nodes = await allowed(cluster.nodes(LABEL_GPUS), [], "nodes")
    names = {node.name for node in nodes}
    pods = [p for p in await allowed(cluster.pods(), (), "pods") if p.spec.node_name in names]
    pdbs = await allowed(cluster.pdbs(), (), "PodDisruptionBudgets")
    return Archive(
        nodes=tuple(exported_node(node, policy or Policy()) for node in nodes),
        pods=exported_pods(pods, pdbs),
        pdbs=tuple(map(exported_pdb, pdbs)),
        healths=tuple(map(exported_object, await cluster.healths())),
        sessions=tuple(map(exported_object, await cluster.sessions())),
        records=tuple(map(exported_object, await cluster.records())),
        pauses=tuple(map(exported_object, await cluster.pauses())),
        policy=exported_policy(policy),
        meta=ExportMeta(
            at=format_time(cluster.now()), version=release_version(), lacks=tuple(lacks)
        ),
    )


async def _key(cluster: Cluster) -> bytes:
    """The same for every export of one cluster, and nothing in the export; empty where unknown."""
    try:
        found = await cluster.get("/api/v1/namespaces/kube-system")
    except CommandError:
        found = None
    return str(((found or {}).get("metadata") or {}).get("uid") or "").encode()
