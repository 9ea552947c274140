"""`evidence`: what the agent kept when a session took its node, as files for the vendor."""

from __future__ import annotations

import argparse
from pathlib import Path

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.look import near_name
from remediator.kubectl.terminal import Terminal
from remediator.view.rma import RmaFolder, rma_folder
from remediator.view.text import count
from rules.api.evidence.wire import EvidenceView
from rules.api.timestamps import utc_of
from rules.session.repair.evidence import recorded


async def evidence(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Write the files into a new folder; CommandError before anything is written."""
    found = await _found(cluster, options.name_of)
    name = found.metadata.name
    await _checked(cluster, found)
    made = rma_folder(found.spec)
    if made is None:
        raise CommandError(f"GPUEvidence {name} cannot be understood; see it with kubectl get gev")
    folder = Path(options.folder or f"gpuward-evidence-{name}")
    _write(folder, made)
    return _told(folder, found, made)


async def _found(cluster: Cluster, wanted: str) -> EvidenceView:
    """By its own name, which is its session's; else the newest of the node of that name."""
    named = await cluster.evidence(wanted)
    if named is not None:
        return named
    of_node = await cluster.evidences(wanted)
    if of_node:
        return max(of_node, key=lambda each: (each.says("takenAt"), each.metadata.name))
    known = await cluster.evidences()
    nodes_too = {word for one in known for word in (one.metadata.name, one.says("nodeName"))}
    if near := near_name(wanted, nodes_too - {""}):
        raise CommandError(f"there is no evidence of {wanted}{near}")
    raise CommandError(
        f"there is no evidence of {wanted}: an agent keeps it when a session takes its node, "
        "never in Shadow; kubectl get gev lists what there is"
    )


async def _checked(cluster: Cluster, found: EvidenceView) -> None:
    """Refuse what was changed since: a vendor must be able to rely on it."""
    name = found.metadata.name
    if not found.whole:
        raise CommandError(
            f"GPUEvidence {name} does not match its own SHA-256: somebody changed it, or its "
            "definition is older than the agent; nothing was written"
        )
    session = await cluster.session(found.says("session"))
    known = recorded(session.status) if session is not None else ""
    if known and known != found.says("sha256"):
        raise CommandError(
            f"GPUEvidence {name} is not the one on record of its session ({known}): somebody "
            "replaced it; nothing was written"
        )


def _write(folder: Path, made: RmaFolder) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(f"{folder} is not empty; name a new folder with -o")
        for file, text in made.files.items():
            with (folder / file).open("x", encoding="utf-8") as out:
                out.write(text)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}") from error


def _told(folder: Path, found: EvidenceView, made: RmaFolder) -> str:
    taken = utc_of(found.says("takenAt"))
    whose = f"node {found.says('nodeName')}, session {found.metadata.name}"
    lines = [
        f"{folder}: {count(len(made.files), 'file')} of {whose}, taken {taken}",
        f"SHA-256 {found.says('sha256')}, checked",
    ]
    lines += [
        f"at fault: {gpu.product or 'GPU'} serial {gpu.serial or 'not known'} in slot {gpu.pci}"
        for gpu in made.accused
    ]
    return "\n".join([*lines, *(f"missing: {each}" for each in made.missing)])
