"""`gpuward-agent check`: one check at this machine, without Kubernetes.

Called by `agent.cli`. Uses the daemon's own collectors and judgement for some seconds, prints what
it found and ends: a health check for Slurm, Nomad or an operator. It changes nothing anywhere.
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
from agent.daemon.judgement import Composer, Judgement, Pod, Who, load_rules
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
LOOK_FOR_S: Final = 20.0
"""A driver without persistence initialises each GPU for a second or two when first asked."""
LOOKS_MORE: Final = 3
"""One check confirms nothing: presence takes two of three, heat three of five."""
LOOKS_APART_S: Final = 1.2
"""What is closer counts as one poll (`rules.judge.facts.presence`)."""
LOOK_AGAIN_FOR_S: Final = 8.0
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
        help="look at this machine once, without Kubernetes",
        description="Check this machine's GPUs once, with the same collectors"
        " and rules as the daemon.",
        epilog="Exit status: 0 healthy, 1 degraded, 2 unhealthy, 3 unknown, 64 wrong use."
        " Every option is also a variable of the environment, named in brackets.",
    )
    terminal.add_output(parser, "the health status as one object")
    add_options(parser, os.environ, collectors_only=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look, print, and say by the exit status how it is. Raises SettingsError."""
    status = look(settings_of(arguments))
    as_json = arguments.output == "json"
    text = msgspec.json.encode(health.plain(status)).decode() + "\n" if as_json else None
    terminal.print_out(text or plain_text(status, host_name()), PROGRAM)
    # Also when it could not be printed: a health check reads the status alone.
    return EXIT_STATUS[Health(status.health)]


def look(settings: AgentSettings) -> HealthStatus:
    """The health status on this machine after one check at everything that is configured."""
    loaded = load_rules(settings.rules)
    event_queue: EventQueue[Item] = EventQueue()
    collectors = Collectors(settings, event_queue)
    _refuse_other_logs(settings.kmsg)
    judgement = Judgement(
        Who(
            node_name=settings.node_name,
            expected_gpus=settings.expected_gpus,
            boot_id=collectors.boot_id,
        ),
        loaded.rules,
        time.time,
    )
    judgement.remember(None)
    looking = Looking(settings)
    collectors.start(past_within_s=0.0)
    try:
        _take_until(event_queue, judgement, looking, LOOK_FOR_S)
        _confirm(event_queue, judgement, looking, collectors)
    finally:
        collectors.close_log()
        collectors.close(NVML_GRACE_S)
    judgement.observe(facts.Tick(at=time.time()))
    status = Composer(Pod(), loaded).compose(judgement.state, time.time()).status
    # Nothing is published: there is no life to prove.
    return msgspec.structs.replace(status, publisher=PublisherPod())


def _refuse_other_logs(kmsg: str) -> None:
    """A file that begins with anything but records of /dev/kmsg would seem to tell of no fault."""
    with suppress(OSError):  # opening it says why
        if Path(kmsg).is_file():
            with Path(kmsg).open("rb") as file:
                head = file.read(HEAD_BYTES)
            if head.strip() and not any(map(kernel_record.parse_record, head.split(b"\n"))):
                raise SettingsError(
                    f"--kmsg {kmsg} holds no records of /dev/kmsg: gpuward-agent decode reads"
                    " other logs"
                )


def _confirm(
    event_queue: EventQueue[Item], judgement: Judgement, looking: Looking, collectors: Collectors
) -> None:
    """Look again while that may change the health status, some seconds at most."""
    if judge.needs_another_poll(judgement.state) and sys.stderr.isatty():
        sys.stderr.write("something looks wrong: looking again for a few seconds\n")
    ends_at = time.monotonic() + LOOK_AGAIN_FOR_S
    for _ in range(LOOKS_MORE):
        left_s = ends_at - time.monotonic() - LOOKS_APART_S
        if left_s <= 0 or not judge.needs_another_poll(judgement.state):
            return
        looking.wait()
        _take_until(event_queue, judgement, looking, LOOKS_APART_S)
        looking.expect_again()
        collectors.check_soon()
        _take_until(event_queue, judgement, looking, left_s)


def _take_until(
    event_queue: EventQueue[Item], judgement: Judgement, looking: Looking, within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while not looking.done and (left_s := deadline - time.monotonic()) > 0:
        item = event_queue.get(left_s)
        if isinstance(item, facts.KernelLineSeen | facts.KernelGap | facts.KernelRead):
            event_queue.judged()
        looking.saw(item)
        if isinstance(item, facts.Observation):
            judgement.observe(item)


class Looking:
    """What is still to be seen before the check is complete."""

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
        """Whether everything was seen."""
        return not self._pending and not self._waiting

    def wait(self) -> None:
        """Nothing more is asked; what is said meanwhile is still taken."""
        self._waiting = True

    def expect_again(self) -> None:
        """The bus, NVML and the exporter are asked for everything once more."""
        self._waiting = False
        self._pending.add(facts.SourceName.PCI)
        if self._reads_gpus:
            self._pending.add(facts.SourceName.NVML)
        if self._scraped:
            self._pending.add(facts.SourceName.DCGM)

    def saw(self, item: Item | None) -> None:
        """Take note of what came in. The child reads every tier before it sends the topology."""
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
                pass  # it is checked in or out of sight
            case facts.SourceChanged(source=source, state=state) if (
                state is not facts.SourceState.UP
            ):
                self._pending.discard(source)


def plain_text(status: HealthStatus, host: str) -> str:
    """The status for people: GPUs as a table, the active incidents, the data sources.

    All text of devices and kernel is escaped.
    """
    parts = [f"{host}: {status.health} ({status.reason})", printable(status.message)]
    if status.gpus:
        parts += ["", _hardware(status), "", *_table(status.gpus)]
    for incident in status.incidents:
        if incident.active:
            parts += ["", _incident(status, incident), *_details(incident)]
    return "\n".join((*parts, "", *_sources(status), ""))


def _table(gpus: tuple[GpuStatus, ...]) -> Iterator[str]:
    """The lines of the table, titles first; product and MIG only where they differ."""
    columns = [
        ("GPU", [str(gpu.index) if gpu.index >= 0 else "?" for gpu in gpus]),
        ("PCI", [gpu.pci for gpu in gpus]),
        ("HEALTH", [gpu.health for gpu in gpus]),
        ("REASON", [gpu.reason or "-" for gpu in gpus]),
        ("DRIVER ASKS FOR", [gpu.recovery_action or "-" for gpu in gpus]),
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
    yield f"seen through: {', '.join(up) or 'nothing'}"
    for source in status.sources:
        if source.state not in ("Up", "Absent"):
            yield f"{source.state.lower()}: {source.name} ({source.reason})"
    if absent:
        yield f"not here: {', '.join(absent)}"


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
