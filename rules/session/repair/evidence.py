"""What is kept of a node: the evidence of its agent before a boot ends, the node before a step.

The proof of a step compares what was recorded with what is seen (`rules.repair.ladder`), and parts
that were replaced are known by the inventory of the session.
"""

import math
from collections.abc import Iterable
from typing import Final

from rules.api import timestamps
from rules.api.evidence import EvidenceView
from rules.api.health import GpuStatus
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    Phase,
    QuarantineStatus,
    RepairAttempt,
    RepairBefore,
    RepairGpu,
)
from rules.api.writes import DeleteObject
from rules.repair import ladder
from rules.repair.ladder import Seen, Step
from rules.session import history
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair import endings
from rules.session.repair.ladder import accused_by

WAIT_S: Final = 60.0
"""How long after the drain a step waits for it: an agent that lives takes seconds."""
WITHOUT: Final = "WithoutEvidence"
"""Timeline entry of a step that went on without."""
_KEY: Final = "gpuEvidence"
"""In `status.evidence`: digest and time of the GPUEvidence."""
_NOTED: Final = "Evidence"
"""Timeline entry of what is on record."""
_FIRST_CHECK_S: Final = 5.0
"""An agent that can ask its GPUs keeps it within 2 to 4 s (`agent/publish/evidence.py`)."""
_EARLY_S: Final = 900.0
"""An agent that has not kept any this long after the taint and cordon has given up."""


def recorded(status: QuarantineStatus) -> str:
    """The digest on record; "" where there is none."""
    kept = status.evidence.get(_KEY)
    found = kept.get("sha256") if isinstance(kept, dict) else None
    return found if isinstance(found, str) else ""


def wanted_of(session: QuarantineView, now: float) -> bool:
    """Whether the edge should look for the session's evidence now."""
    status = session.status
    if status.mode != "Enforce" or recorded(status) or status.phase not in _TAINTED:
        return False
    starts = (timestamps.parse_time(status.phase_since), _at(status, Phase.MARKED))
    return any(at is not None and now - at <= _EARLY_S for at in starts)


def next_check_s(session: QuarantineView, now: float) -> float | None:
    """In how many seconds the edge should look again for evidence that is wanted: soon after the
    quarantine, then after ever twice as long, so that it is on record when it is about as old
    again, and a storm costs four looks a node. None where the usual looks at the session will do.
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
    """`status` with the digest of what the agent kept, once there is something that can be
    believed.
    """
    kept = case.seen.evidence
    if kept is None or case.shadow or recorded(status) or not _is_of(kept, case):
        return status
    sha256 = kept.text_of("sha256")
    noted = st.noted(status, _NOTED, f"kept as GPUEvidence, SHA-256 {sha256}", case.now)
    record = {"sha256": sha256, "takenAt": kept.text_of("takenAt")[:40]}
    return touched(noted, evidence={**noted.evidence, _KEY: record})


def _is_of(kept: EvidenceView, case: Case) -> bool:
    """Whether it is this session's on this node, and as it was written: names can be guessed."""
    name = case.session.name
    return (
        kept.metadata.name == name
        and kept.text_of("session") == name
        and kept.text_of("nodeName") == case.node.name
        and kept.text_of("nodeUID") in {"", case.node.uid}
        and kept.intact
    )


def awaited_until(case: Case, step: Step) -> float | None:
    """Until when the step waits for the evidence; None when it need not."""
    status = with_evidence(case, case.status)
    if step not in ladder.ENDS_BOOT or recorded(status):
        return None
    tainted_at, without_at = _at(status, Phase.MARKED), _at(status, WITHOUT)
    if without_at is not None and without_at >= (tainted_at or 0.0):
        # One minute for the session: the next step waits for nothing that did not come.
        return None
    drained_at = _at(status, Phase.QUARANTINED) or case.phase_since
    until = drained_at + WAIT_S
    return until if case.now < until else None


def noted_without(case: Case, status: QuarantineStatus, step: Step) -> QuarantineStatus:
    """`status` that reports it where the step goes on without."""
    if step not in ladder.ENDS_BOOT or recorded(status):
        return status
    why = f"{step} goes on without evidence: no GPUEvidence {case.session.name} is to be had"
    return st.noted(status, WITHOUT, why, case.now)


def _at(status: QuarantineStatus, step: str) -> float | None:
    """When that last happened, as far as the session's timeline remembers."""
    return next(
        (timestamps.parse_time(e.at) for e in reversed(status.timeline) if e.step == step), None
    )


def expired_evidence(
    kept: Iterable[ObjectMeta], sessions: Iterable[str], now: float
) -> tuple[DeleteObject, ...]:
    """Evidence that history no longer keeps: of a session that is gone, and older than `keep`."""
    there = set(sessions)
    return tuple(
        DeleteObject(plural="gpuevidences", name=meta.name, uid=meta.uid)
        for meta in kept
        if meta.name not in there and now - meta.created_at > history.KEEP_S
    )


MAX_GPUS: Final = 32
"""GPUs kept of one node; the CRD allows as many."""
_NO_ACTION: Final = frozenset({"", "None"})


def before_of(case: Case) -> RepairBefore:
    """What is recorded before anybody is asked for a step."""
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
    """What is seen now of a step.

    The kubelet's last word is compared with the call, where one is known. A boot that was found
    when nobody is known to have been asked is proof of its own age: the kubelet writes the boot ID
    and its conditions at once, and then repeats them every five minutes only
    (`nodeStatusReportFrequency`), which is longer than a step may have.
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
    """Whether an accused GPU still asks for a reset; of a fault of the entire node, any GPU."""
    accused = accused_by(case.session, case.seen.health)
    return any(
        gpu.reset_pending or gpu.recovery_action not in _NO_ACTION
        for gpu in _gpus(case)
        if not accused or gpu.uuid in accused
    )
