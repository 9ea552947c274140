"""A GPUEvidence as the files that a vendor's return form asks for: text for people, JSON for the
rest.

Pure: names of files and their text come out, and what a vendor will ask for beside them.
Everything in it was said by a node, so it is escaped again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from remediator.view.text import columns
from rules.api.evidence.wire import EvidenceGpu, EvidenceSpec
from rules.api.health import IncidentStatus
from rules.api.timestamps import utc_of
from rules.catalog.reason import Severity
from rules.catalog.signals import Signal
from rules.text.counted import count
from rules.text.printable import printable
from rules.text.tolerant import understand

NOT_KEPT: Final = (
    "nvidia-bug-report.log.gz: run nvidia-bug-report.sh on the node while the fault is there",
    "make, model and serial number of the server, and of the baseboard: from its BMC",
    (
        "results of the vendor's field diagnostics (fieldiag, NVQUAL, DCGM EUD), where it asks "
        "for them"
    ),
)
_LOST: Final = "lost"
LATER: Final = "later.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RmaFolder:
    """What is to be written, and what will be missed."""

    files: Mapping[str, str]
    accused: tuple[EvidenceGpu, ...]
    missing: tuple[str, ...]


def rma_folder(spec: Mapping[str, Any], now: Sequence[IncidentStatus] = ()) -> RmaFolder | None:
    """The files of one evidence; None where its spec is not understood at all.

    `now`: what the node's verdict says today. What came after the evidence was taken is often the
    very fault for which a GPU is returned: its memory failed to repair itself a day later.
    """
    raw = msgspec.json.encode(spec)
    known = understand(raw, EvidenceSpec).value
    if known is None:
        return None
    uuids = {uuid for i in known.incidents if i.active for uuid in i.gpus}
    accused = tuple(gpu for gpu in known.gpus if gpu.uuid in uuids)
    later = _later(known, now)
    missing = tuple(_missing(known, accused))
    missing = (*(_not_in_it(each) for each in later), *missing)
    files = {
        "summary.txt": _summary(known, accused, missing, further=[LATER] if later else []),
        "gpus.txt": _gpus(known.gpus),
        "readings.txt": _readings(known.gpus),
        "links.txt": _links(known),
        "incidents.txt": "\n\n".join(map(_incident, known.incidents)) + "\n",
        "kernel.log": "\n".join(map(printable, known.kernel_log.split("\n"))) + "\n",
        "evidence.json": msgspec.json.format(msgspec.json.encode(spec, order="sorted")).decode()
        + "\n",
    }
    if later:
        files[LATER] = "\n\n".join(map(_incident, later)) + "\n"
    sums = (f"{hashlib.sha256(t.encode()).hexdigest()}  {n}" for n, t in sorted(files.items()))
    return RmaFolder(
        files={**files, "SHA256SUMS": "\n".join(sums) + "\n"}, accused=accused, missing=missing
    )


def _later(spec: EvidenceSpec, now: Sequence[IncidentStatus]) -> list[IncidentStatus]:
    """Active faults on the node that the evidence does not know, or knows by another reason."""
    known = {(each.id, each.reason) for each in spec.incidents}
    return [
        each
        for each in now
        if each.active and each.severity != Severity.INFO and (each.id, each.reason) not in known
    ]


def _not_in_it(incident: IncidentStatus) -> str:
    return printable(
        f"{incident.reason}, of {utc_of(incident.last_seen, seconds=True)}: it came after this "
        f"was taken, so {LATER} alone has it; keep the kernel log of the node, too"
    )


def _missing(spec: EvidenceSpec, accused: Sequence[EvidenceGpu]) -> Iterator[str]:
    yield from map(printable, spec.missing)
    if not spec.kernel_log:
        yield "lines of the kernel log: there were none"
    if spec.kernel_lines_dropped:
        lines = count(spec.kernel_lines_dropped, "line")
        yield f"{lines} in the middle of the kernel log had no room"
    if not accused:
        yield "which GPU is at fault: no active incident names one that was there"
    for gpu in accused:
        lacking = [
            word
            for word, value in (
                ("serial number", gpu.serial),
                ("board part number", gpu.board),
                ("VBIOS version", gpu.vbios),
                ("InfoROM version", gpu.inforom),
            )
            if not value
        ]
        if lacking:
            yield f"GPU {printable(gpu.uuid)}: no {', '.join(lacking)}"
    yield from NOT_KEPT


def _summary(
    spec: EvidenceSpec,
    accused: Sequence[EvidenceGpu],
    missing: Sequence[str],
    *,
    further: Sequence[str],
) -> str:
    facts = [
        ("Node", spec.node_name),
        ("Session", spec.session),
        ("Taken", utc_of(spec.taken_at, seconds=True)),
        ("Boot", spec.boot_id),
        ("Driver", spec.driver_version),
        ("Virtualization", spec.virtualization),
        ("gpuward", f"agent {spec.agent_version}, rules {spec.rules_version}"),
        ("SHA-256", spec.sha256),
    ]
    lines = [f"{name + ':':16}{printable(value) or 'not known'}" for name, value in facts]
    lines += ["", "GPUs at fault"]
    lines += [_gpu_line(gpu) for gpu in accused] or ["  none that was there; see incidents.txt"]
    lines += ["", "Active incidents"]
    active = [each for each in spec.incidents if each.active]
    lines += [f"  {_headline(each)}" for each in active] or ["  none"]
    lines += ["", "Missing", *(f"  {each}" for each in missing)]
    files = ["gpus.txt", "readings.txt", "links.txt", "incidents.txt", "kernel.log", *further]
    lines += ["", "Files", f"  {' '.join(files)}"]
    return "\n".join([*lines, "  evidence.json: all of it, with its digest", ""])


def _gpu_line(gpu: EvidenceGpu) -> str:
    parts = [
        gpu.product or "GPU",
        f"serial {gpu.serial or 'not known'}",
        f"part {gpu.board or 'not known'}",
        f"slot {gpu.pci or 'not known'}",
        *([f"module {gpu.module_id}"] if gpu.module_id else []),
        f"VBIOS {gpu.vbios or 'not known'}",
        f"InfoROM {gpu.inforom or 'not known'}",
        gpu.uuid,
    ]
    return f"  {printable(', '.join(parts))}"


def _gpus(gpus: Sequence[EvidenceGpu]) -> str:
    head = ["INDEX", "SLOT", "MODULE", "PRODUCT", "SERIAL", "PART", "VBIOS", "INFOROM", "UUID"]
    rows = [
        [
            str(gpu.index), gpu.pci, gpu.module_id, gpu.product, gpu.serial, gpu.board, gpu.vbios,
            gpu.inforom, gpu.uuid,
        ]
        for gpu in gpus
    ]  # fmt: skip
    cells = [[printable(cell) or "-" for cell in row] for row in rows]
    return columns(head, cells) + "\n"


def _readings(gpus: Sequence[EvidenceGpu]) -> str:
    lines: list[str] = []
    for gpu in gpus:
        at = utc_of(gpu.read_at, seconds=True) or "never"
        lines.append(printable(f"GPU {gpu.index} {gpu.uuid} read at {at}"))
        if any(each.signal == Signal.PRESENCE and each.value == _LOST for each in gpu.readings):
            lines.append("  it was lost by then: all below but presence is its last answer before")
        lines.append(printable(f"  recovery_action: {gpu.recovery_action or 'not known'}"))
        lines += [printable(f"  {each.signal}: {each.value}") for each in gpu.readings]
    return "\n".join(lines) + "\n"


def _links(spec: EvidenceSpec) -> str:
    topology = spec.topology
    lines = [printable(f"{topology.interconnect or 'interconnect not known'}:")]
    lines += [_matrix_row(row) for row in topology.links.splitlines()]
    for gpu in spec.gpus:
        above = f" below {' > '.join(gpu.above)}" if gpu.above else ""
        lines.append(printable(f"GPU {gpu.index} {gpu.uuid} at {gpu.pci}{above}"))
        lines += [printable(f"  {each}") for each in gpu.links]
    return "\n".join(lines) + "\n"


def _matrix_row(row: str) -> str:
    """A row of the matrix of links, of cells between tabs, in columns."""
    return "  " + "".join(f"{printable(cell):<8}" for cell in row.split("\t")).rstrip()


def _headline(incident: IncidentStatus) -> str:
    gpus = f" on {', '.join(incident.gpus)}" if incident.gpus else ""
    repair = incident.recommended_action
    return printable(
        f"{incident.reason} ({incident.severity}){gpus}, first "
        f"{utc_of(incident.first_seen, seconds=True)}, "
        f"last {utc_of(incident.last_seen, seconds=True)}, {count(incident.count, 'time')}, "
        f"repair {repair}"
    )


def _incident(incident: IncidentStatus) -> str:
    state = (
        "active"
        if incident.active
        else f"closed {utc_of(incident.closed_at)} by {incident.closed_by}"
    )
    lines = [_headline(incident), printable(f"  {state}")]
    return "\n".join([*lines, *(f"  {printable(line)}" for line in incident.evidence)])
