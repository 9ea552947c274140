"""Convert incidents, readings and the ledger to and from their published form.

Published objects are not trusted when read back: an unknown value becomes the mildest one.
"""

import re
from contextlib import suppress
from enum import StrEnum
from typing import Final, TypeVar

from rules.api import health, timestamps
from rules.api.health import GpuReadings, IncidentStatus, LedgerEntry
from rules.catalog import reason, reasons
from rules.catalog.reason import Action, ClosesKind, ClosesOn, Level, Reason, ReasonClass, Severity
from rules.catalog.signals import Signal
from rules.judge import memory
from rules.judge.facts import checks_heat, standing
from rules.judge.incident import (
    MAX_LINKS,
    MAX_PORTS,
    MAX_XIDS,
    Incident,
    IncidentPhase,
    Member,
    Scope,
    clipped,
)
from rules.judge.memory import Entry, Ledger, Sightings
from rules.judge.state import GpuView
from rules.text import pci_address

_XID_REASON: Final = re.compile(r"Xid(\d{1,5})[A-Za-z]")
_UNREADABLE: Final = "Unreadable"
AGENT_RESTART: Final = "AgentRestart"
"""What interrupted a burst before it was assessed; the next agent continues to wait."""
_NOTHING_ASKED: Final = "None"
"""The name of the driver's recovery action 0."""
_PORT_CHARS: Final = 64
_PCI_CHARS: Final = 16
_UUID_CHARS: Final = 96
_LARGEST_READING: Final = 1 << 53
"""The API server rejects the entire status for an integer above 63 bits."""
_Enum = TypeVar("_Enum", bound=StrEnum)
_Default = TypeVar("_Default")


def to_wire(incident: Incident) -> IncidentStatus:
    """Return the published form of an incident."""
    row = incident.row
    return IncidentStatus(
        id=incident.id,
        reason=row.reason,
        klass=row.klass.value,
        severity=row.severity.value,
        level=row.level.value,
        recommended_action=row.action.value,
        scope=incident.scope.value,
        gpus=tuple(gpu[:_UUID_CHARS] for gpu in incident.gpus),
        pci=tuple(pci[:_PCI_CHARS] for pci in incident.pci),
        mig=incident.mig,
        links=incident.links,
        ports=tuple(port[:_PORT_CHARS] for port in incident.ports),
        xids=incident.xids,
        sources=incident.sources,
        nvidia=incident.nvidia,
        active=incident.active,
        first_seen=timestamps.format_micro_time(incident.first_seen),
        last_seen=timestamps.format_micro_time(incident.last_seen),
        count=incident.count,
        held_since=""
        if incident.held_at is None
        else timestamps.format_micro_time(incident.held_at),
        mended_by=_mended_by(incident),
        interrupted_by=AGENT_RESTART if incident.cut and incident.active else "",
        driver_answer=_NOTHING_ASKED if incident.answer == reasons.NO_ACTION else "",
        least_action="" if incident.floor is None else incident.floor.value,
        closes_on=str(row.closes_on),
        closed_at=timestamps.format_micro_time(incident.closed_at) if not incident.active else "",
        closed_by=incident.closed_by[:128],
        evidence=incident.evidence,
    )


def from_wire(status: IncidentStatus, now: float) -> Incident:
    """Return the incident that an earlier agent published; its assessment times start again."""
    row = Reason(
        reason=status.reason if reason.is_reason_code(status.reason) else _UNREADABLE,
        klass=_known(ReasonClass, status.klass, ReasonClass.RECORD),
        severity=_known(Severity, status.severity, Severity.INFO),
        level=_known(Level, status.level, Level.REPORT),
        action=_known(Action, status.recommended_action, Action.NONE),
        closes_on=_closes_on(status.closes_on),
        source="published before",
    )
    named = _XID_REASON.match(row.reason)
    first_seen = timestamps.parse_time(status.first_seen)
    first_seen = now if first_seen is None else min(first_seen, now)
    last_seen = timestamps.parse_time(status.last_seen)
    last_seen = first_seen if last_seen is None else min(max(last_seen, first_seen), now)
    closed_at = timestamps.parse_time(status.closed_at)
    return Incident(
        id=clipped(status.id, 64),
        row=row,
        members=(Member(row, int(named[1]) if named else None),),
        phase=IncidentPhase.SETTLED,
        answer=reasons.NO_ACTION if status.driver_answer == _NOTHING_ASKED else None,
        scope=_known(Scope, status.scope, Scope.GPU),
        gpus=tuple(clipped(gpu, _UUID_CHARS) for gpu in status.gpus[:64]),
        pci=tuple(pci_address.plain_address(clipped(pci, _PCI_CHARS)) for pci in status.pci[:64]),
        mig=status.mig,
        links=status.links[:MAX_LINKS],
        ports=tuple(clipped(port, _PORT_CHARS) for port in status.ports[:MAX_PORTS]),
        sources=tuple(clipped(source, 64) for source in status.sources[:8]),
        nvidia=status.nvidia,
        active=status.active,
        first_seen=first_seen,
        last_seen=last_seen,
        opened_at=now,
        touched_at=last_seen,
        count=max(1, status.count),
        held_at=timestamps.parse_time(status.held_since) if status.active else None,
        rebooted=status.active and status.mended_by == ClosesKind.REBOOT,
        reset_at=now if status.active and status.mended_by == ClosesKind.RESET else None,
        closed_at=last_seen if closed_at is None else closed_at,
        closed_by="" if status.active else clipped(status.closed_by, 128),
        evidence=tuple(map(clipped, status.evidence[: health.MAX_EVIDENCE])),
        cut=status.active and status.interrupted_by == AGENT_RESTART,
        floor=_known(Action, status.least_action, None),
        restored_xids=status.xids[:MAX_XIDS],
    )


def _mended_by(incident: Incident) -> str:
    """Return evidence of a repair that no poll has confirmed; the next agent confirms it."""
    if not incident.active:
        return ""
    if incident.rebooted:
        return ClosesKind.REBOOT.value
    return "" if incident.reset_at is None else ClosesKind.RESET.value


def _closes_on(text: str) -> ClosesOn:
    with suppress(ValueError):
        return ClosesOn.parse(text)
    return reason.SILENCE_3M


def _known(kind: type[_Enum], text: str, otherwise: _Default) -> _Enum | _Default:
    return kind(text) if text in list(kind) else otherwise


_SIGHTINGS: Final = re.compile(r"(\S{1,40}) x(\d{1,10})")


def readings_to_wire(view: GpuView) -> GpuReadings | None:
    """Return the readings of the last poll that the GPU answered; None before the first one."""

    def number(signal: Signal) -> int | None:
        value = standing.number_of(view.values.get(signal))
        return None if value is None or abs(value) > _LARGEST_READING else round(value)

    def flag(signal: Signal) -> bool | None:
        value = number(signal)
        return None if value is None else bool(value)

    if not view.answered_at:
        return None
    return GpuReadings(
        read_at=timestamps.format_time(view.answered_at),
        temperature_celsius=number(Signal.TEMPERATURE),
        memory_temperature_celsius=number(Signal.MEMORY_TEMPERATURE),
        power_watts=number(Signal.POWER),
        power_limit_watts=number(Signal.POWER_LIMIT),
        clock_event_reasons=checks_heat.clock_event_names(number(Signal.CLOCK_EVENT_REASONS) or 0),
        ecc_correctable=number(Signal.ECC_CORRECTED_VOLATILE),
        ecc_uncorrectable=number(Signal.ECC_UNCORRECTED_VOLATILE),
        remapped_rows_correctable=number(Signal.REMAPPED_ROWS_CORRECTABLE),
        remapped_rows_uncorrectable=number(Signal.REMAPPED_ROWS_UNCORRECTABLE),
        remap_pending=flag(Signal.REMAP_PENDING),
        remap_failure=flag(Signal.REMAP_FAILURE),
    )


def ledger_to_wire(ledger: Ledger) -> tuple[LedgerEntry, ...]:
    """Return the published form of the ledger, latest first."""
    return tuple(
        LedgerEntry(
            gpu=owner,
            what=what,
            last_seen=timestamps.format_time(entry.last_at),
            seen=tuple(
                f"{timestamps.format_time(seen.at)} x{seen.count}" for seen in entry.sightings
            ),
        )
        for (owner, what), entry in sorted(
            ledger.items(), key=lambda item: (-item[1].last_at, item[0])
        )
    )


def ledger_from_wire(entries: tuple[LedgerEntry, ...]) -> Ledger:
    """Return the ledger that an earlier agent published, without unreadable entries."""
    ledger: dict[tuple[str, str], Entry] = {}
    for entry in entries[: memory.MAX_ENTRIES]:
        sightings = tuple(
            seen for text in entry.seen[: memory.MAX_SIGHTINGS] if (seen := _sightings(text))
        )
        last_at = timestamps.parse_time(entry.last_seen)
        if sightings and entry.gpu and entry.what:
            key = (clipped(entry.gpu, memory.NAME_CHARS), clipped(entry.what, memory.NAME_CHARS))
            ledger[key] = Entry(sightings, sightings[-1].at if last_at is None else last_at)
    return ledger


def _sightings(text: str) -> Sightings | None:
    found = _SIGHTINGS.fullmatch(text)
    at = timestamps.parse_time(found[1]) if found else None
    return (
        Sightings(at, min(int(found[2]), memory.MAX_COUNT)) if found and at is not None else None
    )
