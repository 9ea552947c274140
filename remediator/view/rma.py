"""A GPUEvidence as files for a vendor's return form, and what a vendor asks for besides. Pure.

Everything in it was reported by a node, so every text is escaped again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rules.api.evidence.wire import EvidenceGpu, EvidenceSpec
from rules.api.health import IncidentStatus
from rules.api.timestamps import utc_of
from rules.catalog.reason import Severity
from rules.text.counted import count
from rules.text.printable import printable
from rules.text.tolerant import understand

NOT_KEPT: Final = (
    "nvidia-bug-report.log.gz: run nvidia-bug-report.sh on the node while the fault is there",
    "make, model and serial number of the server, and of the baseboard: from its BMC",
    "results of the vendor's field diagnostics (fieldiag, NVQUAL, DCGM EUD), if it asks for them",
)
LATER: Final = "later.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RmaFolder:
    """What is to be written, and what is missing."""

    files: Mapping[str, str]
    accused: tuple[EvidenceGpu, ...]
    missing: tuple[str, ...]


def rma_folder(spec: Mapping[str, Any], now: Sequence[IncidentStatus] = ()) -> RmaFolder | None:
    """The files of one evidence; None where its spec is not understood at all.

    `now`: the node's incidents of today. What came after the evidence was taken is often the
    fault for which a GPU is returned: its memory failed to repair itself a day later.
    """
    known = understand(msgspec.json.encode(spec), EvidenceSpec).value
    if known is None:
        return None
    uuids = {uuid for i in known.incidents if i.active for uuid in i.gpus}
    accused = tuple(gpu for gpu in known.gpus if gpu.uuid in uuids)
    seen = {(each.id, each.reason) for each in known.incidents}
    later = [
        each
        for each in now
        if each.active and each.severity != Severity.INFO and (each.id, each.reason) not in seen
    ]
    missing = tuple(_missing(known, accused, later))
    whole = msgspec.json.format(msgspec.json.encode(spec, order="sorted")).decode()
    files = {
        "summary.txt": _summary(known, accused, missing),
        "kernel.log": "\n".join(map(printable, known.kernel_log.split("\n"))) + "\n",
        "evidence.json": f"{whole}\n",
    }
    if later:
        files[LATER] = "\n".join(line for each in later for line in _incident(each)) + "\n"
    sums = (f"{hashlib.sha256(t.encode()).hexdigest()}  {n}" for n, t in sorted(files.items()))
    files["SHA256SUMS"] = "\n".join(sums) + "\n"
    return RmaFolder(files=files, accused=accused, missing=missing)


def _missing(
    spec: EvidenceSpec, accused: Sequence[EvidenceGpu], later: Sequence[IncidentStatus]
) -> Iterator[str]:
    for each in later:
        yield printable(
            f"{each.reason}, of {utc_of(each.last_seen, seconds=True)}: it came after this was "
            f"taken, so {LATER} alone has it; keep the kernel log of the node, too"
        )
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
        ("Taken", utc_of(spec.taken_at, seconds=True)),
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
    state = "active" if incident.active else f"closed {utc_of(incident.closed_at)}"
    head = (
        f"  {incident.reason} ({incident.severity}, {state}){gpus}, first "
        f"{utc_of(incident.first_seen, seconds=True)}, last "
        f"{utc_of(incident.last_seen, seconds=True)}, {count(incident.count, 'time')}, "
        f"repair {incident.recommended_action}"
    )
    return [printable(head), *(f"    {printable(line)}" for line in incident.evidence)]
