"""`evidence`: what the agent kept when a session took its node, as files for the vendor."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError, Terminal
from remediator.kubectl.node_look import is_node, near_name, open_session
from remediator.view.rma import RmaFolder, rma_folder
from rules.api.evidence.wire import EvidenceView
from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.timestamps import utc_of
from rules.session.observation import is_open
from rules.session.repair.evidence import may_come, recorded
from rules.text.counted import count
from rules.text.printable import printable


async def evidence(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Write the files into a new folder; CommandError before anything is written."""
    found = await _found(cluster, options.name_of)
    name = found.metadata.name
    await _checked(cluster, found)
    later = await _said_now(cluster, found)
    made = rma_folder(found.spec, later or ())
    if made is None:
        raise CommandError(f"GPUEvidence {name} cannot be understood; see it with kubectl get gev")
    folder = Path(options.folder or f"gpuward-evidence-{name}")
    _write(folder, made)
    told = [_told(folder, found, made)]
    if later is None:
        told.append("missing: what the verdict says later: you may not get gpunodehealths")
    if options.name_of != name:
        told += [f"of an earlier session: {why}" for why in await _newer(cluster, found)]
    return "\n".join(told)


async def _newer(cluster: Cluster, found: EvidenceView) -> list[str]:
    """That the node's open session is not the one that this is of, and why it has none."""
    last = open_session(await cluster.sessions(found.says("nodeName")))
    if last is None or last.name == found.metadata.name:
        return []
    return [_why_none(last, cluster.now())]


async def _said_now(cluster: Cluster, found: EvidenceView) -> Sequence[IncidentStatus] | None:
    """What the verdict of the same machine says today; () where there is none, None where this
    person may not read it.
    """
    try:
        health = await cluster.health(found.says("nodeName"))
    except CommandError as error:
        return None if error.forbidden else ()
    same = health is not None and health.status.node_uid == found.says("nodeUID")
    session = await cluster.session(found.metadata.name)
    open_still = session is not None and is_open(session)
    return health.status.incidents if health is not None and same and open_still else ()


async def _found(cluster: Cluster, wanted: str) -> EvidenceView:
    """By its own name, which is its session's; else the newest of the node of that name."""
    named = await cluster.evidence(wanted)
    if named is not None:
        return named
    of_node = await cluster.evidences(wanted)
    if of_node:
        return max(of_node, key=lambda each: (each.says("takenAt"), each.metadata.name))
    session = await cluster.session(wanted)
    sessions = [session] if session is not None else await cluster.sessions(wanted)
    if sessions:
        last = open_session(sessions) or sessions[-1]
        raise CommandError(f"there is no evidence of {wanted}: {_why_none(last, cluster.now())}")
    if not await is_node(cluster, wanted):
        # Of a node that is there, what another of a like name kept is not what was meant.
        known = await cluster.evidences()
        nodes_too = {word for one in known for word in (one.metadata.name, one.says("nodeName"))}
        if near := near_name(wanted, nodes_too - {""}):
            raise CommandError(f"there is no evidence of {wanted}{near}")
    raise CommandError(
        f"there is no evidence of {wanted}: an agent keeps it when a session takes its node, "
        "never in Shadow; kubectl get gev lists what there is"
    )


def _why_none(session: QuarantineView, now: float) -> str:
    """Why nothing is kept for the session, and when there will be."""
    status, name = session.status, session.name
    phase = status.phase or Phase.PENDING
    if status.mode == Mode.SHADOW:
        return (
            "in Shadow there is no mark and so none; what the session saw stands in its "
            f"status.evidence: kubectl get gpuquarantine {name} -o yaml"
        )
    if sha256 := recorded(status):
        return f"what was kept for session {name} (SHA-256 {sha256}) was deleted since"
    if not is_open(session):
        return f"session {name} has ended ({phase}) and none was kept for it"
    if not may_come(session, now):
        return (
            f"its agent has kept none for session {name} ({phase}) and does not try any more; "
            f"the log of the agent's pod on {session.spec.node_name} says why"
        )
    if phase == Phase.PENDING:
        return (
            f"none yet; its agent keeps it within seconds of the mark, and session {name} is "
            f"Pending: kubectl gpuward why {session.spec.node_name} says what it waits for"
        )
    return (
        f"none yet; session {name} is {phase} and its agent keeps it within seconds of the "
        "mark; ask again"
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
    # Each line by itself: what an agent wrote must not begin one of its own.
    return "\n".join(map(printable, [*lines, *(f"missing: {each}" for each in made.missing)]))
