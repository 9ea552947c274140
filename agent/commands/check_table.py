"""What `gpuward-agent check` shows to people: a table of GPUs, the incidents, the senses.

Called by `agent.commands.check` with the status that an agent would publish. rich is loaded only
for a terminal. All text of devices and kernel is escaped before it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.api.timestamps import utc_of
from rules.catalog.explanations import device_at
from rules.text.printable import padded, printable, width_of

COLUMN_GAP = 2
MIG_ON = "Enabled"
STYLES = {"Healthy": "green", "Degraded": "yellow", "Unhealthy": "bold red", "Unknown": "magenta"}


class Column(NamedTuple):
    """One column of the table of GPUs; `spare` ones make room where a terminal is narrow."""

    title: str
    cells: tuple[str, ...]
    spare: bool = False

    @property
    def width(self) -> int:
        """Columns of a terminal that the longest cell takes."""
        return max(map(width_of, (self.title, *self.cells)))


def plain_text(status: HealthStatus, host: str, width: int | None = None) -> str:
    """Everything without colour; `width` is that of a terminal, None for pipes and logs."""
    parts = [_headline(status, host), printable(status.message)]
    if status.gpus:
        parts += ["", _hardware(status), ""]
        found = columns(status)
        kept = fitting(found, width)
        parts += [*aligned(kept), *left_out(found, kept)]
    for incident in _active(status):
        parts += ["", _incident(status, incident), *_details(incident)]
    return "\n".join((*parts, "", *_senses(status), ""))


def rich_text(status: HealthStatus, host: str) -> str:
    """The same for a terminal, with its colours and as wide as it is."""
    # Imported here: the daemon shares this package and must stay small.
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(Text(_headline(status, host), STYLES.get(status.health, "")))
        console.print(Text(printable(status.message)))
        if status.gpus:
            console.print(Text(f"\n{_hardware(status)}\n", "dim"))
            found = columns(status)
            kept = fitting(found, console.width)
            head, *lines = aligned(kept)
            console.print(Text(head, "bold"), soft_wrap=True)
            for gpu, line in zip(status.gpus, lines, strict=True):
                style = STYLES.get(gpu.health, "")
                console.print(Text(line, style), soft_wrap=True)
            for line in left_out(found, kept):
                console.print(Text(line, "dim"))
        for incident in _active(status):
            console.print(Text(f"\n{_incident(status, incident)}", "bold"))
            for line in _details(incident):
                console.print(Text(line))
        console.print(Text("\n" + "\n".join(_senses(status)), "dim"))
    return captured.get()


def columns(status: HealthStatus) -> list[Column]:
    """The columns that say something here."""
    gpus = status.gpus
    found = [
        column_of("GPU", (str(gpu.index) if gpu.index >= 0 else "?" for gpu in gpus)),
        column_of("PCI", (gpu.pci for gpu in gpus)),
        column_of("HEALTH", (gpu.health for gpu in gpus)),
        column_of("REASON", (gpu.reason or "-" for gpu in gpus)),
        column_of("DRIVER ASKS FOR", (gpu.recovery_action or "-" for gpu in gpus)),
    ]
    if any(gpu.mig_mode == MIG_ON for gpu in gpus):
        found.insert(
            2, column_of("MIG", ("on" if gpu.mig_mode == MIG_ON else "-" for gpu in gpus))
        )
    found.insert(2, column_of("SERIAL", (gpu.serial or "-" for gpu in gpus), spare=True))
    if not _one_product(gpus):
        found.insert(2, column_of("PRODUCT", (gpu.product or "-" for gpu in gpus), spare=True))
    return found


def fitting(found: Sequence[Column], width: int | None) -> list[Column]:
    """Without so many of the spare ones, the last first, that the others fit in `width`; all of
    them where nobody looks.
    """
    kept = list(found)
    spare = [column for column in found if column.spare]
    while width is not None and spare and _total(kept) > width:
        kept.remove(spare.pop())
    return kept


def left_out(found: Sequence[Column], kept: Sequence[Column]) -> list[str]:
    """A line that names the columns that a terminal has no room for, and what shows them."""
    gone = [column.title for column in found if column not in kept]
    return [f"left out to fit; | cat shows: {', '.join(gone)}"] if gone else []


def column_of(title: str, cells: Iterable[str], *, spare: bool = False) -> Column:
    """A column of text that may be shown."""
    return Column(title, tuple(map(printable, cells)), spare)


def _total(found: Sequence[Column]) -> int:
    return sum(column.width + COLUMN_GAP for column in found) - COLUMN_GAP


def aligned(found: Sequence[Column]) -> Iterator[str]:
    """The lines of a table, its titles first."""
    for row in zip(*((column.title, *column.cells) for column in found), strict=True):
        cells = (padded(cell, column.width) for cell, column in zip(row, found, strict=True))
        yield (" " * COLUMN_GAP).join(cells).rstrip()


def _one_product(gpus: Sequence[GpuStatus]) -> bool:
    return len({gpu.product for gpu in gpus if gpu.product}) <= 1


def _headline(status: HealthStatus, host: str) -> str:
    return f"{host}: {status.health} ({status.reason})"


def _hardware(status: HealthStatus) -> str:
    """`8 x NVIDIA H100 80GB HBM3, nvswitch, driver 580.95.05`."""
    products = {gpu.product for gpu in status.gpus if gpu.product}
    named = products.pop() if len(products) == 1 else "GPU"
    facts = [f"{len(status.gpus)} x {named}", status.topology.interconnect]
    if status.driver_version:
        facts.append(f"driver {status.driver_version}")
    return printable(", ".join(filter(None, facts)))


def _senses(status: HealthStatus) -> Iterator[str]:
    up = [source.name for source in status.sources if source.state == "Up"]
    absent = [
        f"{source.name} ({source.reason})" for source in status.sources if source.state == "Absent"
    ]
    yield f"seen through: {', '.join(up) or 'nothing'}"
    for source in status.sources:
        if source.state not in ("Up", "Absent"):
            yield f"{source.state.lower()}: {source.name} ({source.reason})"
    if absent:
        yield f"not here: {', '.join(absent)}"


def _incident(status: HealthStatus, incident: IncidentStatus) -> str:
    since = utc_of(incident.first_seen, seconds=True)
    where = _where(status, incident)
    return printable(f"{incident.severity} {incident.reason} on {where}, since {since}")


def _details(incident: IncidentStatus) -> Iterator[str]:
    yield f"  recommended: {printable(incident.recommended_action)}"
    yield from (f"  {printable(line)}" for line in incident.evidence)


def _where(status: HealthStatus, incident: IncidentStatus) -> str:
    named = {gpu.uuid: f"GPU {gpu.index} ({gpu.pci})" for gpu in status.gpus if gpu.index >= 0}
    gpus = [named.get(uuid, uuid) for uuid in incident.gpus]
    gpus = gpus or [device_at(incident.reason, pci) for pci in incident.pci]
    return ", ".join(gpus) or "this node"


def _active(status: HealthStatus) -> list[IncidentStatus]:
    return [incident for incident in status.incidents if incident.active]
