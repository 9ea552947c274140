"""`evidence`: write the GPUEvidence of a quarantined node to files for the vendor.

The texts come from a node, so each one is escaped again.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from remediator.kubectl import node_state
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError, Terminal
from rules.api import timestamps
from rules.api.evidence import EvidenceGpu, EvidenceSpec, EvidenceView
from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase
from rules.session.repair.evidence import recorded
from rules.text import tolerant
from rules.text.printable import count, printable

NOT_KEPT: Final = (
    "what the node reported later: kubectl get gpunodehealth NODE -o yaml",
    "nvidia-bug-report.log.gz: run nvidia-bug-report.sh on the node while the fault is active",
    "make, model and serial number of the server, and of the baseboard: from its BMC",
    "results of the vendor's field diagnostics (fieldiag, NVQUAL, DCGM EUD), if it asks for them",
)


async def evidence(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Write the files into a new folder; CommandError before anything is written."""
    found = await _found(cluster, options.name_of)
    name = found.metadata.name
    await _checked(cluster, found)
    made = rma_folder(found.spec)
    if made is None:
        raise CommandError(
            f"GPUEvidence {name} cannot be decoded; print it with kubectl get gev {name} -o yaml"
        )
    folder = Path(options.folder or f"gpuward-evidence-{name}")
    _write(folder, made)
    lines = [_summary_lines(folder, found, made)]
    if options.name_of != name:
        last = node_state.open_session(await cluster.sessions(found.text_of("nodeName")))
        if last is not None and last.name != name:
            lines.append(f"of an earlier session: {_why_none(last)}")
    return "\n".join(lines)


async def _found(cluster: Cluster, wanted: str) -> EvidenceView:
    """By its own name, which is its session's; else the newest of the node of that name."""
    named = await cluster.evidence(wanted)
    if named is not None:
        return named
    if of_node := await cluster.evidences(wanted):
        return max(of_node, key=lambda each: (each.text_of("takenAt"), each.metadata.name))
    session = await cluster.session(wanted)
    sessions = [session] if session is not None else await cluster.sessions(wanted)
    why = "an agent saves it when its node is quarantined, never in Shadow mode"
    if sessions:
        why = _why_none(node_state.open_session(sessions) or sessions[-1])
    else:
        await node_state.existing_node(cluster, wanted)
    raise CommandError(f"no evidence of {wanted} found: {why}; list all with kubectl get gev")


def _why_none(session: QuarantineView) -> str:
    """Why nothing is kept for the session."""
    return (
        f"none was kept for session {session.name} ({session.status.phase or Phase.PENDING}); its "
        "agent keeps it within seconds of the taint, never in Shadow, and the log of the agent's "
        f"pod on {session.spec.node_name} has the reason"
    )


async def _checked(cluster: Cluster, found: EvidenceView) -> None:
    """Refuse what was changed since: a vendor must be able to rely on it."""
    name = found.metadata.name
    if not found.intact:
        raise CommandError(
            f"GPUEvidence {name} does not match its own SHA-256: it was changed, or its "
            "definition is older than the agent; nothing was written"
        )
    session = await cluster.session(found.text_of("session"))
    known = recorded(session.status) if session is not None else ""
    if known and known != found.text_of("sha256"):
        raise CommandError(
            f"GPUEvidence {name} is not the one on record of its session ({known}): "
            "it was replaced; nothing was written"
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


def _summary_lines(folder: Path, found: EvidenceView, made: RmaFolder) -> str:
    taken = timestamps.utc_of(found.text_of("takenAt"))
    owner = f"node {found.text_of('nodeName')}, session {found.metadata.name}"
    lines = [
        f"{folder}: {count(len(made.files), 'file')} of {owner}, taken {taken}",
        f"SHA-256 {found.text_of('sha256')}, verified",
    ]
    lines += [
        f"at fault: {gpu.product or 'GPU'} serial {gpu.serial or 'not known'} in slot {gpu.pci}"
        for gpu in made.accused
    ]
    # Each line by itself: what an agent wrote must not begin one of its own.
    return "\n".join(map(printable, [*lines, *(f"missing: {each}" for each in made.missing)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RmaFolder:
    """What is to be written, and what is missing."""

    files: Mapping[str, str]
    accused: tuple[EvidenceGpu, ...]
    missing: tuple[str, ...]


def rma_folder(spec: Mapping[str, Any]) -> RmaFolder | None:
    """The files of one evidence; None where its spec is not understood at all."""
    known = tolerant.understand(msgspec.json.encode(spec), EvidenceSpec).value
    if known is None:
        return None
    uuids = {uuid for i in known.incidents if i.active for uuid in i.gpus}
    accused = tuple(gpu for gpu in known.gpus if gpu.uuid in uuids)
    missing = tuple(_missing(known, accused))
    document = msgspec.json.format(msgspec.json.encode(spec, order="sorted")).decode()
    files = {
        "summary.txt": _summary(known, accused, missing),
        "kernel.log": "\n".join(map(printable, known.kernel_log.split("\n"))) + "\n",
        "evidence.json": f"{document}\n",
    }
    sums = (f"{hashlib.sha256(t.encode()).hexdigest()}  {n}" for n, t in sorted(files.items()))
    files["SHA256SUMS"] = "\n".join(sums) + "\n"
    return RmaFolder(files=files, accused=accused, missing=missing)


def _missing(spec: EvidenceSpec, accused: Sequence[EvidenceGpu]) -> Iterator[str]:
    yield from map(printable, spec.missing)
    if not spec.kernel_log:
        yield "lines of the kernel log: there were none"
    if spec.kernel_lines_dropped:
        lines = count(spec.kernel_lines_dropped, "line")
        yield f"{lines} in the middle of the kernel log had no room"
    if not accused:
        yield "which GPU is at fault: no active incident names one that was there"
    yield from NOT_KEPT


def _summary(spec: EvidenceSpec, accused: Sequence[EvidenceGpu], missing: Sequence[str]) -> str:
    facts = [
        ("Node", spec.node_name),
        ("Session", spec.session),
        ("Taken", timestamps.utc_of(spec.taken_at, seconds=True)),
        ("Boot", spec.boot_id),
        ("Driver", spec.driver_version),
        ("gpuward", f"agent {spec.agent_version}, rules {spec.rules_version}"),
        ("SHA-256", spec.sha256),
    ]
    lines = [f"{name + ':':10}{printable(value) or 'not known'}" for name, value in facts]
    lines += ["", "GPUs at fault", *(_gpu(gpu) for gpu in accused)]
    lines += ["", "Incidents", *(line for each in spec.incidents for line in _incident(each))]
    lines += ["", "Missing", *(f"  {each}" for each in missing)]
    return "\n".join([*lines, "", "evidence.json holds every reading, link and GPU.", ""])


def _gpu(gpu: EvidenceGpu) -> str:
    named = (
        ("serial", gpu.serial),
        ("part", gpu.board),
        ("slot", gpu.pci),
        ("module", gpu.module_id),
        ("VBIOS", gpu.vbios),
        ("InfoROM", gpu.inforom),
    )
    parts = ", ".join(f"{name} {value or 'not known'}" for name, value in named)
    return "  " + printable(f"{gpu.product or 'GPU'}, {parts}, {gpu.uuid}")


def _incident(incident: IncidentStatus) -> list[str]:
    """What it was, when, of which GPUs, and its evidence verbatim."""
    gpus = f" on {', '.join(incident.gpus)}" if incident.gpus else ""
    state = "active" if incident.active else f"closed {timestamps.utc_of(incident.closed_at)}"
    head = (
        f"  {incident.reason} ({incident.severity}, {state}){gpus}, first "
        f"{timestamps.utc_of(incident.first_seen, seconds=True)}, last "
        f"{timestamps.utc_of(incident.last_seen, seconds=True)}, {count(incident.count, 'time')}, "
        f"repair {incident.recommended_action}"
    )
    return [printable(head), *(f"    {printable(line)}" for line in incident.evidence)]
