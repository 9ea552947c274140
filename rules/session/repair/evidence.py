"""Evidence of a node: the agent's GPUEvidence before a boot ends, the node's state before a step.

The proof of a step compares the recorded state with the current one (`rules.repair.ladder`).
Replaced parts are recognized by the session's inventory.
"""

import math
from collections.abc import Iterable
from typing import Final

from rules.api import timestamps
from rules.api.evidence import EvidenceView
from rules.api.health import GpuStatus
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairBefore, RepairGpu
from rules.api.writes import DeleteObject
from rules.repair import ladder
from rules.repair.ladder import Seen, Step
from rules.session import history
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair import endings
from rules.session.repair.ladder import accused_by

WAIT_S: Final = 60.0
"""How long after the drain a step waits for evidence: a live agent takes seconds."""
WITHOUT: Final = "WithoutEvidence"
"""Timeline entry of a step that continued without evidence."""
_KEY: Final = "gpuEvidence"
"""In `status.evidence`: digest and time of the GPUEvidence."""
_NOTED: Final = "Evidence"
"""Timeline entry of recorded evidence."""
_FIRST_CHECK_S: Final = 5.0
"""An agent with responsive GPUs saves evidence within 2 to 4 s (`agent/publish/evidence.py`)."""
_EARLY_S: Final = 900.0
"""How long after the taint and cordon an agent may save evidence."""


def recorded(status: QuarantineStatus) -> str:
    """Return the recorded digest; "" if there is none."""
    kept = status.evidence.get(_KEY)
    found = kept.get("sha256") if isinstance(kept, dict) else None
    return found if isinstance(found, str) else ""


def wanted_of(session: QuarantineView, now: float) -> bool:
    """Return whether the session's evidence should be read now."""
    status = session.status
    if status.mode != "Enforce" or recorded(status) or status.phase not in _TAINTED:
        return False
    starts = (timestamps.parse_time(status.phase_since), _at(status, Phase.MARKED))
    return any(at is not None and now - at <= _EARLY_S for at in starts)


def next_check_s(session: QuarantineView, now: float) -> float | None:
    """Return in how many seconds to read missing evidence again; None if regular reconciles do.

    The interval doubles after the quarantine, so that a storm costs four reads per node.
    """
    tainted_at = _at(session.status, Phase.MARKED)
    if tainted_at is None or not wanted_of(session, now):
        return None
    check_s = _FIRST_CHECK_S
    while tainted_at + check_s <= now:
        check_s *= 2
    return tainted_at + check_s - now if check_s <= WAIT_S else None


_TAINTED: Final = frozenset(
    {Phase.MARKED, Phase.DRAINING, Phase.QUARANTINED, Phase.REPAIRING, Phase.VALIDATING}
)


def with_evidence(case: Case, status: QuarantineStatus) -> QuarantineStatus:
    """Return `status` with the digest of the agent's evidence, if that is valid."""
    kept = case.seen.evidence
    if kept is None or case.shadow or recorded(status) or not _is_of(kept, case):
        return status
    sha256 = kept.text_of("sha256")
    noted = st.noted(status, _NOTED, f"kept as GPUEvidence, SHA-256 {sha256}", case.now)
    record = {"sha256": sha256, "takenAt": kept.text_of("takenAt")[:40]}
    return touched(noted, evidence={**noted.evidence, _KEY: record})


def _is_of(kept: EvidenceView, case: Case) -> bool:
    """Return whether the evidence is complete and of this session: names can be guessed."""
    name = case.session.name
    return (
        kept.metadata.name == name
        and kept.text_of("session") == name
        and kept.text_of("nodeName") == case.node.name
        and kept.text_of("nodeUID") in {"", case.node.uid}
        and kept.intact
    )


def awaited_until(case: Case, step: Step) -> float | None:
    """Return until when the step waits for the evidence; None if it does not."""
    status = with_evidence(case, case.status)
    if step not in ladder.ENDS_BOOT or recorded(status) or case.without_agent:
        return None
    tainted_at, without_at = _at(status, Phase.MARKED), _at(status, WITHOUT)
    if without_at is not None and without_at >= (tainted_at or 0.0):
        # The session waits once: later steps do not wait again.
        return None
    drained_at = _at(status, Phase.QUARANTINED) or case.phase_since
    until = drained_at + WAIT_S
    return until if case.now < until else None


def noted_without(case: Case, status: QuarantineStatus, step: Step) -> QuarantineStatus:
    """Return `status` with a timeline entry if the step continues without evidence."""
    if step not in ladder.ENDS_BOOT or recorded(status):
        return status
    why = f"{step} continues without evidence: there is no GPUEvidence {case.session.name}"
    return st.noted(status, WITHOUT, why, case.now)


def _at(status: QuarantineStatus, step: str) -> float | None:
    """Return the time of the last timeline entry of this step."""
    return next(
        (timestamps.parse_time(e.at) for e in reversed(status.timeline) if e.step == step), None
    )


def expired_evidence(
    kept: Iterable[ObjectMeta], sessions: Iterable[str], now: float
) -> tuple[DeleteObject, ...]:
    """Return the deletions of old evidence of sessions that no longer exist."""
    there = set(sessions)
    return tuple(
        DeleteObject(plural="gpuevidences", name=meta.name, uid=meta.uid)
        for meta in kept
        if meta.name not in there and now - meta.created_at > history.KEEP_S
    )


MAX_GPUS: Final = 32
"""GPUs recorded per node; the CRD allows as many."""
_NO_ACTION: Final = frozenset({"", "None"})


def before_of(case: Case) -> RepairBefore:
    """Return the state of the node to record before a step is requested."""
    accused = accused_by(case.session, case.seen.health)
    gpus = sorted(_gpus(case), key=lambda gpu: (gpu.uuid not in accused, gpu.index))
    return RepairBefore(
        boot_id=case.node.boot_id,
        node_uid=case.node.uid,
        gpus=tuple(
            RepairGpu(uuid=gpu.uuid, serial=gpu.serial, accused=gpu.uuid in accused)
            for gpu in gpus[:MAX_GPUS]
            if gpu.uuid
        ),
        reset_pending=_pending(case),
    )


def seen_of(case: Case, attempt: RepairAttempt) -> Seen:
    """Return the current state of the node for the proof of a step.

    The kubelet's last heartbeat is compared with the request, if its time is known. Without one, a
    new boot proves its own age: the kubelet writes boot ID and conditions at once and repeats them
    only every five minutes (`nodeStatusReportFrequency`), which may exceed the step's timeout.
    """
    since = endings.started_at(case, attempt)
    ready = case.node.condition("Ready")
    beat = timestamps.parse_time(ready.last_heartbeat_time or "") if ready is not None else None
    return Seen(
        node_uid=case.node.uid,
        boot_id=case.node.boot_id,
        ready=case.node.ready,
        old_heartbeat=bool(attempt.asked_at) and beat is not None and beat < since,
        stale=case.seen.stale,
        without_agent=case.without_agent,
        serials={gpu.uuid: gpu.serial for gpu in _gpus(case) if gpu.uuid},
        pending=_pending(case),
        causes=len(case.causes),
        resets=frozenset(
            gpu.uuid
            for gpu in _gpus(case)
            if gpu.uuid and (timestamps.parse_time(gpu.reset_at) or 0.0) >= math.floor(since)
        ),
        expected_gpus=case.seen.health.status.expected_gpus.count if case.seen.health else 0,
    )


def _gpus(case: Case) -> tuple[GpuStatus, ...]:
    return case.seen.health.status.gpus if case.seen.health is not None else ()


def _pending(case: Case) -> bool:
    """Return whether an accused GPU (any GPU for a fault of the node) still needs a reset."""
    accused = accused_by(case.session, case.seen.health)
    return any(
        gpu.reset_pending or gpu.recovery_action not in _NO_ACTION
        for gpu in _gpus(case)
        if not accused or gpu.uuid in accused
    )
