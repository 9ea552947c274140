"""The fields of a GPURecord, as `hack.crds.fields` has those of the other kinds."""

from __future__ import annotations

from typing import Final

from hack.crds.field import Field

RECORD_FIELDS: Final[dict[str, Field]] = {
    "RecordStatus.scope": Field("GPU, or Node for what follows the slot.", enum=("GPU", "Node")),
    "RecordStatus.uuid": Field("UUID of the GPU.", 96),
    "RecordStatus.serial": Field("Its serial number where there is one.", 64),
    "RecordStatus.product": Field("Its product name.", 96),
    "RecordStatus.places": Field("Where it was plugged in, the latest last.", max_items=8),
    "RecordPlace.node": Field("Name of the node.", 253),
    "RecordPlace.slot": Field("PCI address there.", 32),
    "RecordPlace.since": Field("Since when it was seen there.", 40),
    "RecordStatus.events": Field("Its faults, oldest first.", max_items=64),
    "RecordEvent.at": Field("When it was seen first.", 40),
    "RecordEvent.lastAt": Field("When it flapped last.", 40),
    "RecordEvent.times": Field("How often, within an hour of each other."),
    "RecordEvent.node": Field("The node it was plugged in.", 253),
    "RecordEvent.reason": Field("Stable CamelCase code.", 63),
    "RecordEvent.severity": Field("Degraded or Fatal.", 32),
    "RecordEvent.driver": Field("The driver's version then.", 64),
    "RecordEvent.session": Field("The quarantine session that took its node out.", 253),
    "RecordEvent.steps": Field(
        "Repair steps taken; the last one, or GPUReplaced, brought it back.", 32, 5
    ),
    "RecordEvent.endedAt": Field("Since when it was back in service.", 40),
    "RecordEvent.outcome": Field(
        "Active, Closed, Released, Undone (by a person) or NodeGone.", 16
    ),
    "RecordEvent.cameBackAfter": Field("Seconds in service until the next fault."),
    "RecordStatus.forgottenUntil": Field(
        "Older events were dropped for room up to this time.", 40
    ),
    "RecordStatus.counters": Field("Over its whole life, events that were dropped included."),
    "RecordCounters.faults": Field("Faults."),
    "RecordCounters.fatal": Field("Fatal ones."),
    "RecordCounters.sessions": Field("Faults with a quarantine session."),
    "RecordCounters.cameBack": Field("Times it was back in service and failed again."),
    "RecordCounters.undone": Field("Sessions that a person ended while the fault was there."),
    "RecordStatus.driverVersion": Field("Driver at the last event.", 64),
    "RecordStatus.rulesVersion": Field("Rules at the last event.", 64),
    "RecordStatus.baselineAt": Field(
        "Since when this driver and these rules judge: of older events only Fatal ones count.", 40
    ),
    "RecordStatus.said": Field("What people said: repaired, keep.", max_items=8),
    "RecordWord.at": Field("When.", 40),
    "RecordWord.word": Field("repaired or keep: what was before it makes no lemon.", 16),
    "RecordWord.reason": Field("Why.", 1024),
    "RecordStatus.replaced": Field("What came in its place, as a session of its node saw it."),
    "RecordReplaced.at": Field("When it was seen.", 40),
    "RecordReplaced.node": Field("The node.", 253),
    "RecordReplaced.slot": Field("PCI address there.", 32),
    "RecordReplaced.uuid": Field("UUID of the GPU that came.", 96),
    "RecordReplaced.serial": Field("Its serial number where there is one.", 64),
    "RecordReplaced.session": Field("The quarantine session that saw it.", 253),
    "RecordReplaced.step": Field("The repair step under way; empty for one by hand.", 32),
    "RecordStatus.score": Field("Chance in percent that a fault comes back within 7 days."),
    "RecordStatus.lemon": Field(
        "True while it fails again and again. Never a cause: only how a fault is repaired."
    ),
    "RecordStatus.lemonSince": Field("Since when.", 40),
    "RecordStatus.message": Field("One sentence.", 1024),
}
