"""What a field has to say, and the fields of a GPURecord; the others are in `hack.crds.fields`."""

from typing import Final, NamedTuple


class Field(NamedTuple):
    """One field's text and bounds."""

    text: str
    max_length: int = 256
    max_items: int = 16
    enum: tuple[str, ...] = ()
    default: str | bool | None = None
    immutable: bool = False
    pattern: str = ""
    """What its text, or that of each item, looks like. Only where Kubernetes or we fix the form
    for good, and only of what people write: a status or a health status that one definition
    refuses is lost: one space written on a broken node could prevent its quarantine."""


NODE_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""A DNS-1123 subdomain, as the API server wants the name of a Node."""


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
    "RecordEvent.steps": Field("Repair steps taken; the last one brought it back.", 32, 5),
    "RecordEvent.endedAt": Field("Since when it was back in service.", 40),
    "RecordEvent.outcome": Field(
        "Active, Closed, Released, Undone (by an operator) or NodeGone.", 16
    ),
    "RecordEvent.cameBackAfter": Field("Seconds in service until the next fault."),
    "RecordStatus.forgottenUntil": Field(
        "Older events were dropped for room up to this time.", 40
    ),
    "RecordStatus.counters": Field("Over its lifetime, including dropped events."),
    "RecordCounters.faults": Field("Faults."),
    "RecordStatus.said": Field("Operator reports about it.", max_items=8),
    "OperatorAction.at": Field("When.", 40),
    "OperatorAction.word": Field("repaired: earlier faults no longer count.", 16),
    "OperatorAction.reason": Field("Why.", 1024),
    "RecordStatus.message": Field(
        "Its faults in 90 days, and whether that makes it a repeat offender.", 1024
    ),
}
