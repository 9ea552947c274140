"""What a field has to say, and the fields of a GPURecord and of causes; the others are in
`hack.crds.fields`.
"""

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
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
"""The value of a label, as the API server wants it; empty too."""


SEVERITIES = ("Info", "Degraded", "Fatal")

RECORD_FIELDS: Final[dict[str, Field]] = {
    "RecordStatus.scope": Field("GPU, or Node for faults of the slot.", enum=("GPU", "Node")),
    "RecordStatus.uuid": Field("GPU UUID.", 96),
    "RecordStatus.serial": Field("Board serial number.", 64),
    "RecordStatus.product": Field("Product name.", 96),
    "RecordStatus.places": Field("Where it was installed, the latest last.", max_items=8),
    "RecordPlace.node": Field("Node.", 253),
    "RecordPlace.slot": Field("PCI address.", 32),
    "RecordPlace.since": Field("First observation there.", 40),
    "RecordStatus.events": Field("Faults, oldest first.", max_items=64),
    "RecordEvent.at": Field("First observation.", 40),
    "RecordEvent.lastAt": Field("Last recurrence.", 40),
    "RecordEvent.times": Field("Recurrences, each within an hour."),
    "RecordEvent.node": Field("Node.", 253),
    "RecordEvent.reason": Field("CamelCase code.", 63),
    "RecordEvent.severity": Field("Degraded or Fatal.", 32),
    "RecordEvent.driver": Field("Driver version.", 64),
    "RecordEvent.session": Field("Quarantine session.", 253),
    "RecordEvent.steps": Field("Repair steps, the successful one last.", 32, 5),
    "RecordEvent.endedAt": Field("Return to service.", 40),
    "RecordEvent.outcome": Field(
        "Active, Closed, Released, Undone (by an operator) or NodeGone.", 16
    ),
    "RecordEvent.cameBackAfter": Field("Seconds in service until the next fault."),
    "RecordStatus.forgottenUntil": Field("Events up to this time may have been dropped.", 40),
    "RecordStatus.counters": Field("Counts since the first event, dropped ones included."),
    "RecordCounters.faults": Field("Faults."),
    "RecordStatus.said": Field("Reports of operators.", max_items=8),
    "OperatorAction.at": Field("Time.", 40),
    "OperatorAction.word": Field("repaired: earlier faults no longer count.", 16),
    "OperatorAction.reason": Field("Why.", 1024),
    "RecordStatus.message": Field("Faults in 90 days, and whether it is a repeat offender.", 1024),
    "Cause.source": Field(
        "Detector (the agent), External (other detectors), Human, or Validation (a failed test).",
        enum=("Detector", "External", "Human", "Validation"),
        default="Human",
    ),
    "Cause.incident": Field("ID of the agent's incident.", 64),
    "Cause.reason": Field("CamelCase code.", 63),
    "Cause.severity": Field(
        "Degraded or Fatal: selects the drain timeout.", enum=SEVERITIES, default="Degraded"
    ),
    "Cause.message": Field("One sentence.", 1024),
    "Cause.by": Field("User.", 256),
    "Cause.at": Field(
        "Time of the request, or when it joined the session; empty for the first cause.", 40
    ),
    "Cause.nvlinkDomain": Field(
        "NVLink domain that an operator quarantines with all its nodes: no node of it is drained "
        "before all are quarantined.",
        63,
        pattern=LABEL_VALUE,
    ),
}
