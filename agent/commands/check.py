"""`gpuward-agent check`: check this machine's GPUs once, without Kubernetes.

Called by `agent.cli`. Runs the daemon's collectors and rules for some seconds, prints the health
status and exits: a health check for Slurm, Nomad or an operator. It is read-only.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.commands import terminal
from agent.daemon.event_queue import EventQueue, Item
from agent.daemon.judgement import Composer, Judgement, NodeSettings, Pod, load_rules
from agent.daemon.sources import Collectors
from agent.settings import AgentSettings, SettingsError, add_options, host_name, settings_of
from agent.sources import kernel_record
from rules.api import health, timestamps
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus, PublisherPod
from rules.catalog import explanations
from rules.judge import judge
from rules.judge import observation as facts
from rules.judge.health_status import Health
from rules.text.printable import padded, printable, width_of

PROGRAM: Final = "gpuward-agent check"
CHECK_WITHIN_S: Final = 20.0
"""A driver without persistence mode takes a second or two to initialise each GPU."""
RECHECKS: Final = 3
"""One reading confirms nothing: presence needs two of three, temperature three of five."""
RECHECK_APART_S: Final = 1.2
"""Readings closer together count as one (`rules.judge.facts.presence`)."""
RECHECK_WITHIN_S: Final = 8.0
NVML_GRACE_S: Final = 5.0
HEAD_BYTES: Final = 1 << 14
MIG_ON: Final = "Enabled"

EXIT_STATUS: Final = {
    Health.HEALTHY: 0,
    Health.DEGRADED: 1,
    Health.UNHEALTHY: 2,
    Health.UNKNOWN: 3,
}


def add_parser(subparsers: Any) -> None:
    """Add `check` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="Check this machine's GPUs once, without Kubernetes",
        description="Check this machine's GPUs once, with the collectors and rules of the daemon."
        "\n\nExamples:\n"
        "  gpuward-agent check                   # a table and the active incidents\n"
        "  gpuward-agent check -o json           # the GPUNodeHealth status as JSON\n"
        "  gpuward-agent check --expected-gpus 8 # fail if a GPU is missing",
        epilog="Each option can also be set with the environment variable in brackets.\n"
        "Exit status: 0 healthy, 1 degraded, 2 unhealthy, 3 unknown, 64 usage error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    terminal.add_output(parser, "the health status as one object")
    add_options(parser, os.environ, collectors_only=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the health status and return its exit status. Raises SettingsError."""
    status = check_node(settings_of(arguments))
    as_json = arguments.output == "json"
    text = msgspec.json.encode(health.plain(status)).decode() + "\n" if as_json else None
    terminal.print_out(text or plain_text(status, host_name()), PROGRAM)
    # The exit status stays the same if printing failed: health checks only read the status.
    return EXIT_STATUS[Health(status.health)]


def check_node(settings: AgentSettings) -> HealthStatus:
    """Return this machine's health status after one reading of every configured data source."""
    loaded = load_rules(settings.rules)
    event_queue: EventQueue[Item] = EventQueue()
    collectors = Collectors(settings, event_queue)
    _refuse_other_logs(settings.kmsg)
    judgement = Judgement(
        NodeSettings(
            node_name=settings.node_name,
            expected_gpus=settings.expected_gpus,
            boot_id=collectors.boot_id,
        ),
        loaded.rules,
        time.time,
    )
    judgement.remember(None)
    pending = Pending(settings)
    collectors.start(past_within_s=0.0)
    try:
        _take_until(event_queue, judgement, pending, CHECK_WITHIN_S)
        _confirm(event_queue, judgement, pending, collectors)
    finally:
        collectors.close_log()
        collectors.close(NVML_GRACE_S)
    judgement.observe(facts.Tick(at=time.time()))
    status = Composer(Pod(), loaded).compose(judgement.state, time.time()).status
    # Nothing is published, so the status needs no publisher.
    return msgspec.structs.replace(status, publisher=PublisherPod())


def _refuse_other_logs(kmsg: str) -> None:
    """Raise SettingsError for a file without /dev/kmsg records: it would look free of faults."""
    with suppress(OSError):  # opening the file reports the cause
        if Path(kmsg).is_file():
            with Path(kmsg).open("rb") as file:
                head = file.read(HEAD_BYTES)
            if head.strip() and not any(map(kernel_record.parse_record, head.split(b"\n"))):
                raise SettingsError(
                    f"--kmsg {kmsg} holds no /dev/kmsg records: use gpuward-agent decode for"
                    " other log formats"
                )


def _confirm(
    event_queue: EventQueue[Item], judgement: Judgement, pending: Pending, collectors: Collectors
) -> None:
    """Read again while that may change the health status, for some seconds at most."""
    if judge.needs_another_poll(judgement.state) and sys.stderr.isatty():
        sys.stderr.write("Possible fault found: reading again for a few seconds.\n")
    ends_at = time.monotonic() + RECHECK_WITHIN_S
    for _ in range(RECHECKS):
        left_s = ends_at - time.monotonic() - RECHECK_APART_S
        if left_s <= 0 or not judge.needs_another_poll(judgement.state):
            return
        pending.wait()
        _take_until(event_queue, judgement, pending, RECHECK_APART_S)
        pending.expect_again()
        collectors.poll_now()
        _take_until(event_queue, judgement, pending, left_s)


def _take_until(
    event_queue: EventQueue[Item], judgement: Judgement, pending: Pending, within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while not pending.done and (left_s := deadline - time.monotonic()) > 0:
        item = event_queue.get(left_s)
        if isinstance(item, facts.KernelLineSeen | facts.KernelGap | facts.KernelRead):
            event_queue.task_done()
        pending.received(item)
        if isinstance(item, facts.Observation):
            judgement.observe(item)


class Pending:
    """The data sources that have not answered yet."""

    def __init__(self, settings: AgentSettings) -> None:
        self._pending = {facts.SourceName.KERNEL_LOG, facts.SourceName.PCI, facts.SourceName.HOST}
        if settings.nvml != "off":
            self._pending.add(facts.SourceName.NVML)
        if settings.dcgm != "off":
            self._pending.add(facts.SourceName.DCGM)
        self._reads_gpus = False
        self._waiting = False
        self._scraped = False

    @property
    def done(self) -> bool:
        """Whether every data source has answered."""
        return not self._pending and not self._waiting

    def wait(self) -> None:
        """Pause before the next reading; facts that arrive meanwhile still count."""
        self._waiting = True

    def expect_again(self) -> None:
        """Wait for the PCI bus, NVML and the exporter once more."""
        self._waiting = False
        self._pending.add(facts.SourceName.PCI)
        if self._reads_gpus:
            self._pending.add(facts.SourceName.NVML)
        if self._scraped:
            self._pending.add(facts.SourceName.DCGM)

    def received(self, item: Item | None) -> None:
        """Record that a source answered. The child sends the topology after all readings."""
        match item:
            case facts.KernelRead():
                self._pending.discard(facts.SourceName.KERNEL_LOG)
            case facts.PciSeen():
                self._pending.discard(facts.SourceName.PCI)
            case facts.HostSeen():
                self._pending.discard(facts.SourceName.HOST)
            case facts.DcgmSeen():
                self._pending.discard(facts.SourceName.DCGM)
                self._scraped = True
            case facts.Inventory(gpus=()):
                self._pending.discard(facts.SourceName.NVML)
            case facts.TopologySeen():
                self._pending.discard(facts.SourceName.NVML)
                self._reads_gpus = True
            case facts.SourceChanged(source=facts.SourceName.HOST):
                pass  # HostSeen follows in either state
            case facts.SourceChanged(source=source, state=state) if (
                state is not facts.SourceState.UP
            ):
                self._pending.discard(source)


def plain_text(status: HealthStatus, host: str) -> str:
    """Return the status as text: the GPUs as a table, the active incidents, the data sources.

    All text from devices and the kernel is escaped.
    """
    parts = [f"{host}: {status.health} ({status.reason})", printable(status.message)]
    if status.gpus:
        parts += ["", _hardware(status), "", *_table(status.gpus)]
    for incident in status.incidents:
        if incident.active:
            parts += ["", _incident(status, incident), *_details(incident)]
    return "\n".join((*parts, "", *_sources(status), ""))


def _table(gpus: tuple[GpuStatus, ...]) -> Iterator[str]:
    """Yield the table lines, header first; PRODUCT and MIG columns only where GPUs differ."""
    columns = [
        ("GPU", [str(gpu.index) if gpu.index >= 0 else "?" for gpu in gpus]),
        ("PCI", [gpu.pci for gpu in gpus]),
        ("HEALTH", [gpu.health for gpu in gpus]),
        ("REASON", [gpu.reason or "-" for gpu in gpus]),
        ("RECOVERY ACTION", [gpu.recovery_action or "-" for gpu in gpus]),
    ]
    if any(gpu.mig_mode == MIG_ON for gpu in gpus):
        columns.insert(2, ("MIG", ["on" if gpu.mig_mode == MIG_ON else "-" for gpu in gpus]))
    if len({gpu.product for gpu in gpus if gpu.product}) > 1:
        columns.insert(2, ("PRODUCT", [gpu.product or "-" for gpu in gpus]))
    shown = [[title, *map(printable, cells)] for title, cells in columns]
    widths = [max(map(width_of, cells)) for cells in shown]
    for row in zip(*shown, strict=True):
        cells = (padded(cell, width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _hardware(status: HealthStatus) -> str:
    """`8 x NVIDIA H100 80GB HBM3, nvswitch, driver 580.95.05`."""
    products = {gpu.product for gpu in status.gpus if gpu.product}
    named = products.pop() if len(products) == 1 else "GPU"
    facts = [f"{len(status.gpus)} x {named}", status.topology.interconnect]
    if status.driver_version:
        facts.append(f"driver {status.driver_version}")
    return printable(", ".join(filter(None, facts)))


def _sources(status: HealthStatus) -> Iterator[str]:
    up = [source.name for source in status.sources if source.state == "Up"]
    absent = [
        f"{source.name} ({source.reason})" for source in status.sources if source.state == "Absent"
    ]
    yield f"data sources up: {', '.join(up) or 'none'}"
    for source in status.sources:
        if source.state not in ("Up", "Absent"):
            yield f"data source {source.state.lower()}: {source.name} ({source.reason})"
    if absent:
        yield f"not available: {', '.join(absent)}"


def _incident(status: HealthStatus, incident: IncidentStatus) -> str:
    since = timestamps.utc_of(incident.first_seen, seconds=True)
    where = _where(status, incident)
    return printable(f"{incident.severity} {incident.reason} on {where}, since {since}")


def _details(incident: IncidentStatus) -> Iterator[str]:
    yield f"  recommended: {printable(incident.recommended_action)}"
    yield from (f"  {printable(line)}" for line in incident.evidence)


def _where(status: HealthStatus, incident: IncidentStatus) -> str:
    named = {gpu.uuid: f"GPU {gpu.index} ({gpu.pci})" for gpu in status.gpus if gpu.index >= 0}
    gpus = [named.get(uuid, uuid) for uuid in incident.gpus]
    gpus = gpus or [explanations.device_at(incident.reason, pci) for pci in incident.pci]
    return ", ".join(gpus) or "this node"
