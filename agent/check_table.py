"""What `gpuward-agent check` shows to people: a table of GPUs, the senses, the incidents.

Called by `agent.check` with the status that an agent would publish. rich is loaded only for a
terminal. All text of devices and kernel is escaped before it is shown.
"""

from collections.abc import Iterator, Sequence
from typing import TextIO

from rules.health_object import GpuStatus, HealthStatus, Incident, SourceStatus

COLUMNS = ("GPU", "PCI", "PRODUCT", "SERIAL", "HEALTH", "REASON", "DRIVER ASKS FOR")
STYLES = {"Healthy": "green", "Degraded": "yellow", "Unhealthy": "bold red", "Unknown": "magenta"}


def rows(status: HealthStatus) -> Iterator[tuple[str, ...]]:
    """One row for each GPU."""
    for gpu in status.gpus:
        yield tuple(_shown(cell) for cell in _cells(gpu))


def print_plain(status: HealthStatus, host: str, out: TextIO) -> None:
    """Aligned columns without colour, for pipes and logs."""
    out.write(f"{_headline(status, host)}\n{_shown(status.message)}\n")
    table = list(rows(status))
    if table:
        out.write("\n")
        out.writelines(f"{row}\n" for row in _aligned([COLUMNS, *table]))
    out.write("\n")
    out.writelines(f"{_source(source)}\n" for source in status.sources)
    for incident in _active(status):
        out.write(f"\n{_incident(incident)}\n")
        out.writelines(f"  {_shown(line)}\n" for line in incident.evidence)


def print_rich(status: HealthStatus, host: str) -> None:
    """The same for a terminal."""
    # Imported here: the daemon shares this package and must stay small.
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    style = STYLES.get(status.health, "")
    console.print(f"[{style}]{escape(_headline(status, host))}[/]")
    console.print(escape(_shown(status.message)))
    if status.gpus:
        table = Table(*COLUMNS, box=None, header_style="bold")
        for gpu, row in zip(status.gpus, rows(status), strict=True):
            table.add_row(*(escape(cell) for cell in row), style=STYLES.get(gpu.health, ""))
        console.print()
        console.print(table)
    console.print()
    for source in status.sources:
        console.print(escape(_source(source)), style="dim", highlight=False)
    for incident in _active(status):
        console.print(f"\n[bold]{escape(_incident(incident))}[/]")
        for line in incident.evidence:
            console.print(f"  {escape(_shown(line))}", highlight=False)


def _cells(gpu: GpuStatus) -> tuple[str, ...]:
    return (
        str(gpu.index) if gpu.index >= 0 else "?",
        gpu.pci,
        gpu.product,
        gpu.serial,
        gpu.health,
        gpu.reason or "-",
        gpu.recovery_action or "-",
    )


def _headline(status: HealthStatus, host: str) -> str:
    return f"{host}: {status.health} ({status.reason})"


def _source(source: SourceStatus) -> str:
    return f"{source.name}: {source.state}{f' ({source.reason})' if source.reason else ''}"


def _incident(incident: Incident) -> str:
    where = ", ".join((*incident.gpus, *incident.pci)) or "this node"
    return _shown(
        f"{incident.severity} {incident.reason} on {where}: "
        f"recommended {incident.recommended_action}, since {incident.first_seen}"
    )


def _active(status: HealthStatus) -> list[Incident]:
    return [incident for incident in status.incidents if incident.active]


def _aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _shown(text: str) -> str:
    """Kernel and device text with everything that could steer a terminal escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text
    )
