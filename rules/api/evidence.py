"""GPUEvidence, and the session annotation of a quarantined node.

GPUEvidence is what an agent knew about its node when the node was quarantined. The agent writes it
once, with the name of the session and without an owner, so it outlives node and session. It has
everything that a vendor needs, because a reboot or a replacement loses the rest. Values are
strings and integers, so that the digest never changes.
"""

import functools
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rules.api import names, object_name
from rules.api.health import IncidentStatus, SourceStatus, Topology, Wire
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View
from rules.text import tolerant

_MAX_NOTE_BYTES: Final = 4096
_KEPT: Final = 256
"""Each decision reads the same few annotations many times."""


class QuarantineNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The session annotation: which session quarantined the node, and the node's prior state."""

    session: str
    boot_id: str = msgspec.field(name="bootID", default="")
    prior_unschedulable: bool = False
    at: str = ""
    parts: str = msgspec.field(name="mark", default="CordonAndTaint")
    """Which parts were set. The policy may change during the quarantine."""
    prior_annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    prior_by: str = ""
    """The manager that owned a prior cordon (`managedFields`); "" if unknown."""
    restored_boot: str = ""
    """The boot in which a cordon that was lost right after the boot was restored, once."""
    restored_at: str = ""
    """When a part that another controller removed was last restored."""


def note_of(annotations: Mapping[str, str]) -> QuarantineNote | None:
    """Return the session annotation; None if there is none or it is invalid.

    An annotation with an invalid session name was not written by gpuward and is ignored.
    """
    text = annotations.get(names.ANNOTATION_SESSION)
    return _read(text) if text is not None and len(text) <= _MAX_NOTE_BYTES else None


@functools.lru_cache(maxsize=_KEPT)
def _read(text: str) -> QuarantineNote | None:
    try:
        note = msgspec.json.decode(text, type=QuarantineNote)
    except tolerant.UNREADABLE:
        return None
    return note if object_name.is_object_name(note.session) else None


def session_of(annotations: Mapping[str, str]) -> str:
    """Return the session that quarantined the node with these annotations; "" for none."""
    note = note_of(annotations)
    return note.session if note is not None else ""


MAX_KERNEL_BYTES: Final = 256 * 1024
MAX_EVIDENCE_OBJECT_BYTES: Final = 900 * 1024
"""etcd takes 1.5 MiB; metadata and managed fields come on top."""
MAX_READINGS: Final = 192
MAX_EVIDENCE_GPUS: Final = 64
MAX_MISSING: Final = 16
DIGEST_KEY: Final = "sha256"


class EvidenceReading(Wire, frozen=True):
    """One reading of one GPU, as text; lists are per link or a histogram."""

    signal: str
    value: str


class EvidenceGpu(Wire, frozen=True):
    """One GPU: its identity and its last readings."""

    uuid: str = ""
    index: int = -1
    pci: str = ""
    above: tuple[str, ...] = ()
    module_id: str = ""
    serial: str = ""
    product: str = ""
    board: str = ""
    vbios: str = ""
    inforom: str = ""
    read_at: str = ""
    recovery_action: str = ""
    links: tuple[str, ...] = ()
    readings: tuple[EvidenceReading, ...] = ()


class EvidenceSpec(Wire, frozen=True):
    """The evidence; `sha256` covers all other fields."""

    session: str
    node_name: str
    node_uid: str = msgspec.field(name="nodeUID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")
    taken_at: str = ""
    agent_version: str = ""
    rules_version: str = ""
    driver_version: str = ""
    virtualization: str = ""
    sources: tuple[SourceStatus, ...] = ()
    gpus: tuple[EvidenceGpu, ...] = ()
    topology: Topology = Topology()
    incidents: tuple[IncidentStatus, ...] = ()
    kernel_log: str = ""
    kernel_lines_dropped: int = 0
    missing: tuple[str, ...] = ()
    sha256: str = ""


class EvidenceMeta(View, frozen=True, kw_only=True):
    """The metadata of a stored GPUEvidence."""

    metadata: ObjectMeta


class EvidenceView(View, frozen=True, kw_only=True):
    """A stored GPUEvidence. Its spec stays raw, because the digest covers all of it."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    doubt: str = DOUBT_FIELD

    def text_of(self, key: str) -> str:
        """Return a string field of the spec; "" for any other type."""
        found = self.spec.get(key)
        return found if isinstance(found, str) else ""

    @property
    def intact(self) -> bool:
        """Whether the digest matches the content."""
        claimed = self.text_of(DIGEST_KEY)
        try:
            return bool(claimed) and claimed == digest(self.spec)
        except (TypeError, ValueError, RecursionError):
            return False


def digest(spec: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a spec without its own digest, as JSON with sorted keys and no spaces.

    `jq -cSj '.spec | del(.sha256)' | sha256sum` prints the same.
    """
    rest = {key: value for key, value in spec.items() if key != DIGEST_KEY}
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()
