"""GPUEvidence as it travels, and the session annotation that says which session took a node.

GPUEvidence is what an agent knew of its node when a session took it. Written once, by the agent,
named as the session, without an owner: it outlives node and session. Whatever a vendor asks for
must be in here, since a reboot or a replacement takes the rest away. Every value is text or a
whole number, so that the digest is the same after any number of trips.
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
"""Notes are read many times in each decision, and the same ones in the next."""


class MarkNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The session annotation: whose quarantine it is and what was there before."""

    session: str
    boot_id: str = msgspec.field(name="bootID", default="")
    prior_unschedulable: bool = False
    at: str = ""
    mark: str = "CordonAndTaint"
    """Which parts were set; the policy may change while the taint and cordon is on."""
    prior_annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    prior_by: str = ""
    """The manager that owned the cordon of before (`managedFields`); "" where nobody knows."""
    restored_boot: str = ""
    """The boot in which a cordon that was lost right after it was put back, once."""
    restored_at: str = ""
    """When a part that another controller took off was restored last."""


def note_of(annotations: Mapping[str, str]) -> MarkNote | None:
    """What the annotation says; None where there is none or nobody can read it.

    One that names a session which cannot exist was not written by us, and says nothing of what was
    there before.
    """
    text = annotations.get(names.ANNOTATION_SESSION)
    return _read(text) if text is not None and len(text) <= _MAX_NOTE_BYTES else None


@functools.lru_cache(maxsize=_KEPT)
def _read(text: str) -> MarkNote | None:
    try:
        note = msgspec.json.decode(text, type=MarkNote)
    except tolerant.UNREADABLE:
        return None
    return note if object_name.is_object_name(note.session) else None


def session_of(annotations: Mapping[str, str]) -> str:
    """The session whose quarantine a node with these annotations carries; "" where there is
    none.
    """
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
    """One GPU: who it is, and the last it said."""

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
    """All of it; `sha256` is over everything else."""

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


class EvidenceView(View, frozen=True, kw_only=True):
    """A GPUEvidence as it is stored: its spec stays raw, since the digest is over all of it."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    doubt: str = DOUBT_FIELD

    def says(self, key: str) -> str:
        """A field of the spec that is text; "" where it is none."""
        found = self.spec.get(key)
        return found if isinstance(found, str) else ""

    @property
    def whole(self) -> bool:
        """Whether it is what was written: its digest is that of its content."""
        claimed = self.says(DIGEST_KEY)
        try:
            return bool(claimed) and claimed == digest(self.spec)
        except (TypeError, ValueError, RecursionError):
            return False


def digest(spec: Mapping[str, Any]) -> str:
    """SHA-256 over a spec without its own digest, as JSON in UTF-8 with sorted keys and no spaces:
    what `jq -cSj '.spec | del(.sha256)' | sha256sum` says.
    """
    rest = {key: value for key, value in spec.items() if key != DIGEST_KEY}
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()
