"""Incidents: opened by a finding, joined by further findings, closed by evidence.

`judge.burst` derives their published row from the members and the driver's recovery action.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from rules.api import health
from rules.api.health import MigInstance, NvidiaAction
from rules.catalog.reason import Action, Reason
from rules.catalog.thresholds import Thresholds
from rules.catalog.xid import GPU_LOST_XID
from rules.text.printable import printable

_T = TypeVar("_T")

NO_NEED: Final = "gpuward: two later polls found that the driver requires no recovery action"
"""Evidence that the driver requires no recovery action."""

PAST_CLOCK_S: Final = 300.0
"""The kernel's clock drifts from wall time by seconds a day, and syslog(2) is read every 15 s.
Source: gpuward."""

MEMORY_ERROR: Final = frozenset({48, 63, 64, 94, 95, 171, 172})
"""What the driver prints about one uncorrectable memory error. Source: NVIDIA GPU memory error
management."""

REASON_LOST: Final = "GPULost"

MAX_MEMBERS: Final = 16
MAX_LINKS: Final = 64
MAX_XIDS: Final = 32
MAX_PORTS: Final = 64


class GpuId(NamedTuple):
    """A UUID and a plain PCI address of a GPU; either may be empty."""

    uuid: str = ""
    pci: str = ""


NO_GPU_ID: Final = GpuId()


class Scope(StrEnum):
    """What an incident is about."""

    GPU = "GPU"
    NODE = "Node"
    DOMAIN = "Domain"


class IncidentPhase(StrEnum):
    """The progress of an assessment: only Settled incidents have their own severity."""

    SETTLED = "Settled"
    CONTEXT = "Context"
    """Waits for the rest of the burst or the driver's recovery action; published as Info."""
    PRESENT = "Present"
    """Older than the agent's start, or no proof alone: waits for current data to confirm it."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One observed fault with its row of the catalog.

    `sequence` is the kernel record's number, None for other sources. `needs_present`: needs
    current data that confirms it. `counts` is False for a second report of the same fault. `asks`
    is the recovery action that the flags of a kernel line amount to, None without flags.
    """

    at: float
    row: Reason
    gpu_id: GpuId = NO_GPU_ID
    xid: int | None = None
    source: str = ""
    evidence: str = ""
    sequence: int | None = None
    lookback: bool = False
    needs_present: bool = False
    counts: bool = True
    scope: Scope = Scope.GPU
    mig: MigInstance | None = None
    links: tuple[int, ...] = ()
    ports: tuple[str, ...] = ()
    nvidia: NvidiaAction | None = None
    caused_by: int | None = None
    asks: int | None = None

    @property
    def member(self) -> Member:
        """The member that it adds to an incident."""
        return Member(self.row, self.xid, self.asks)


class Member(msgspec.Struct, frozen=True):
    """One kind of finding in an incident; `asks` is the recovery action that its line names."""

    row: Reason
    xid: int | None = None
    asks: int | None = None

    @property
    def lost(self) -> bool:
        """Whether it reports that the GPU fell off the bus."""
        return self.xid == GPU_LOST_XID or self.row.reason == REASON_LOST


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one incident.

    `row` is published. `cut`: an agent restart interrupted the burst before it was assessed.
    `opened_at`, `touched_at` and `due_at` are times of the assessment, the other times are those
    of the observations. `reset_at` (of all its GPUs; `resets` for single ones) and `rebooted` are
    evidence of a repair that no poll has confirmed yet. `present_since`: only later polls count.
    `answer` is the driver's recovery action, `unasked` the number of polls without one. `held_at`:
    good since then, but kept open because it ended too often. `floor` is the lightest repair that
    is still recommended.
    """

    id: str
    row: Reason
    members: tuple[Member, ...]
    phase: IncidentPhase = IncidentPhase.CONTEXT
    answer: int | None = None
    unasked: int = 0
    scope: Scope = Scope.GPU
    gpus: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    mig: MigInstance | None = None
    links: tuple[int, ...] = ()
    ports: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    nvidia: NvidiaAction | None = None
    active: bool = True
    first_seen: float
    last_seen: float
    opened_at: float
    touched_at: float
    due_at: float | None = None
    present_since: float = 0.0
    count: int = 1
    closed_at: float = 0.0
    closed_by: str = ""
    evidence: tuple[str, ...] = ()
    reset_at: float | None = None
    resets: tuple[tuple[str, float], ...] = ()
    rebooted: bool = False
    cut: bool = False
    held_at: float | None = None
    floor: Action | None = None
    restored_xids: tuple[int, ...] = ()

    @property
    def xids(self) -> tuple[int, ...]:
        """Its Xids, in the order in which they were first reported."""
        own = (member.xid for member in self.members if member.xid is not None)
        return tuple(dict.fromkeys((*self.restored_xids, *own)))[:MAX_XIDS]

    @property
    def lost(self) -> bool:
        """Whether one of its members reports that the GPU fell off the bus."""
        return any(member.lost for member in self.members)

    def has_reason(self, reason: str) -> bool:
        """Whether the published row or a member has this reason."""
        return self.row.reason == reason or any(m.row.reason == reason for m in self.members)

    def concerns(self, gpu_id: GpuId) -> bool:
        """Whether it is about that GPU, by UUID where both have one, else by address."""
        gpu, pci = gpu_id
        if gpu and self.gpus:
            return gpu in self.gpus
        return pci in self.pci if pci else not self.gpus and not self.pci and not gpu


def incident_id(finding: Finding, boot_id: str) -> str:
    """Return the stable ID of the incident that `finding` opens."""
    moment = finding.sequence
    if moment is None:
        moment = round(finding.at * 1e6)
    text = "\0".join(
        (finding.gpu_id.uuid or finding.gpu_id.pci, finding.row.reason, boot_id, str(moment))
    )
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def clipped(text: str, limit: int = health.MAX_EVIDENCE_BYTES) -> str:
    """Return `text` escaped where it is not printable and cut to `limit` bytes of UTF-8."""
    return printable(text[:limit]).encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def opened(finding: Finding, boot_id: str, now: float) -> Incident:
    """Return a new incident; the caller sets its phase and row."""
    return Incident(
        id=incident_id(finding, boot_id),
        row=finding.row,
        members=(finding.member,),
        scope=finding.scope,
        gpus=(finding.gpu_id.uuid,) if finding.gpu_id.uuid else (),
        pci=(finding.gpu_id.pci,) if finding.gpu_id.pci else (),
        mig=finding.mig,
        links=finding.links[:MAX_LINKS],
        ports=finding.ports[:MAX_PORTS],
        sources=(finding.source,) if finding.source else (),
        nvidia=finding.nvidia,
        first_seen=finding.at,
        last_seen=finding.at,
        opened_at=now,
        touched_at=now,
        evidence=(clipped(finding.evidence),) if finding.evidence else (),
    )


def joined(incident: Incident, finding: Finding, now: float) -> Incident:
    """Return the incident with the count, times, members and evidence of a finding added.

    A current Xid came after a known reboot or reset of the GPU, so that evidence is dropped.
    """
    again = finding.xid is not None and not finding.lookback and not finding.needs_present
    reset_at = incident.reset_at
    members = incident.members
    if not any(m.xid == finding.xid and m.row == finding.row for m in members):
        members = (*members, finding.member)[:MAX_MEMBERS]
    evidence = incident.evidence
    if finding.evidence and len(evidence) < health.MAX_EVIDENCE:
        line = clipped(finding.evidence)
        evidence = evidence if line in evidence else (*evidence, line)
    return replace(
        incident,
        members=members,
        gpus=incident.gpus or ((finding.gpu_id.uuid,) if finding.gpu_id.uuid else ()),
        pci=incident.pci or ((finding.gpu_id.pci,) if finding.gpu_id.pci else ()),
        mig=incident.mig or finding.mig,
        links=_union(incident.links, finding.links, MAX_LINKS),
        ports=_union(incident.ports, finding.ports, MAX_PORTS),
        sources=_union(incident.sources, (finding.source,) if finding.source else (), 8),
        nvidia=incident.nvidia or finding.nvidia,
        first_seen=min(incident.first_seen, finding.at),
        last_seen=max(incident.last_seen, finding.at),
        touched_at=now,
        count=incident.count + (finding.counts or incident.held_at is not None),
        evidence=evidence,
        rebooted=incident.rebooted and not again,
        reset_at=None if again and reset_at is not None and reset_at <= finding.at else reset_at,
        resets=tuple(
            (key, at)
            for key, at in incident.resets
            if not (again and key in finding.gpu_id and at <= finding.at)
        ),
        # An incident that waits for current data is not bad again because it was seen again.
        held_at=now
        if incident.held_at is not None and incident.phase is IncidentPhase.PRESENT
        else None,
        due_at=None if incident.held_at is not None else incident.due_at,
    )


def held_still(incident: Incident, now: float, thresholds: Thresholds) -> bool:
    """Whether an incident that is kept open was not good for long enough yet."""
    at = incident.held_at
    return at is not None and 0 <= now - at < thresholds["FlapWindow"].value


def with_evidence(incident: Incident, text: str) -> Incident:
    """Return the incident with one more line of evidence if there is room and it is new."""
    line = clipped(text)
    if len(incident.evidence) >= health.MAX_EVIDENCE or line in incident.evidence:
        return incident
    return replace(incident, evidence=(*incident.evidence, line))


def with_conclusion(incident: Incident, text: str) -> Incident:
    """Return the incident with a conclusion as evidence; it replaces the last line if full."""
    kept = incident.evidence[: health.MAX_EVIDENCE - 1]
    return replace(incident, evidence=(*kept, clipped(text)))


def closed(incident: Incident, at: float, by: str) -> Incident:
    """Return the incident closed; `by` names the evidence."""
    return replace(
        incident,
        active=False,
        phase=IncidentPhase.SETTLED,
        due_at=None,
        closed_at=max(at, incident.first_seen),
        closed_by=by,
    )


def without_gpu(incident: Incident, gpu_id: GpuId) -> Incident | None:
    """Return the incident without one of its GPUs; None when that was the last one."""
    gpus = tuple(other for other in incident.gpus if other != gpu_id.uuid)
    addresses = tuple(other for other in incident.pci if other != gpu_id.pci)
    if not gpus and (incident.gpus or not addresses):
        return None
    return replace(incident, gpus=gpus, pci=addresses)


def replace_all(
    incidents: tuple[Incident, ...], changed: Mapping[str, Incident]
) -> tuple[Incident, ...]:
    """Return the incidents with the changed ones replaced by ID."""
    return tuple(changed.get(incident.id, incident) for incident in incidents)


def find_home(
    incidents: Iterable[Incident], finding: Finding, thresholds: Thresholds
) -> Incident | None:
    """Return the active incident that a finding belongs to.

    The incident of the Xid that the driver names as the cause, else one of the same reason, else
    the newest burst of Xids on the same GPU. Its last member must be within the context delay (for
    a memory error: the grouping time) and its first within the grouping time. So a program that
    fails all day never absorbs a later fault.
    """
    gpu_id = finding.gpu_id
    mine = [i for i in incidents if i.active and i.concerns(gpu_id)]
    if finding.caused_by is not None:
        for incident in reversed(mine):
            if finding.caused_by in incident.xids:
                return incident
    for incident in mine:
        if incident.has_reason(finding.row.reason):
            return incident
    if finding.xid is None:
        return None
    grouping = thresholds["IncidentGrouping"].value
    delay = thresholds["ContextDelay"].value

    def gap(incident: Incident) -> float:
        alike = finding.xid in MEMORY_ERROR and not MEMORY_ERROR.isdisjoint(incident.xids)
        return grouping if alike else delay

    bursts = [
        incident
        for incident in mine
        if incident.xids
        and _is_read_with(incident, finding)
        and -_slack(incident, finding) - gap(incident)
        <= finding.at - incident.last_seen
        <= gap(incident)
        and -_slack(incident, finding) - grouping <= finding.at - incident.first_seen <= grouping
    ]
    return max(bursts, key=lambda incident: incident.last_seen, default=None)


def _is_read_with(incident: Incident, finding: Finding) -> bool:
    """Whether both are older than the agent's start, or both are not; else a cut burst's rest."""
    of_the_past = incident.phase is IncidentPhase.PRESENT
    return of_the_past == finding.lookback or (incident.cut and finding.lookback)


def _slack(incident: Incident, finding: Finding) -> float:
    """How much too early the rest of an interrupted burst may seem.

    Its record number shows that it came later, but the kernel's clock may give an earlier time.
    """
    rest = incident.cut and finding.lookback and finding.sequence is not None
    return PAST_CLOCK_S if rest else 0.0


def in_order(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return active incidents first, by severity and age, then the newest closed ones."""
    return tuple(
        sorted(
            incidents,
            key=lambda i: (
                not i.active,
                -i.row.severity.rank if i.active else 0,
                i.first_seen if i.active else -i.closed_at,
                i.id,
            ),
        )
    )


def capped(incidents: tuple[Incident, ...]) -> tuple[tuple[Incident, ...], int]:
    """Return at most 64 incidents and the number dropped.

    The oldest closed ones are dropped first, then the newest active ones of severity Info.
    """
    excess = len(incidents) - health.MAX_INCIDENTS
    if excess <= 0:
        return incidents, 0
    ordered = in_order(incidents)
    return ordered[: health.MAX_INCIDENTS], excess


def _union(old: tuple[_T, ...], new: tuple[_T, ...], limit: int) -> tuple[_T, ...]:
    return tuple(dict.fromkeys((*old, *new)))[:limit]
