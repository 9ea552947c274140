"""The node before a repair step and after it, as the proof compares them
(`rules.repair.proof`), and which of its GPUs were replaced since the session opened.
"""

from __future__ import annotations

import math
from typing import Final

from rules.api.health import GpuStatus, plain
from rules.api.quarantine import (
    QuarantineStatus,
    RepairAttempt,
    RepairBefore,
    RepairGpu,
    RepairState,
)
from rules.api.timestamps import format_time, parse_time
from rules.repair.parts import (
    EVIDENCE_REPLACED,
    GPU_REPLACED,
    MAX_REPLACED,
    Replacement,
    exchanged,
    kept_inventory,
    kept_replacements,
    there_by_now,
)
from rules.repair.proof import Seen
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair.entry import started_at
from rules.session.repair.wants import accused_by

MAX_GPUS: Final = 32
"""GPUs kept of one node; the CRD allows as many."""
_NO_ACTION: Final = frozenset({"", "None"})
_NAMED: Final = 4
"""So many at once have a timeline entry each; of more the others are counted."""
LATE_S: Final = 900.0
"""How long after the proof of a step its new GPU may show: an agent that starts sees its GPUs
late."""


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
    since = started_at(case, attempt)
    ready = case.node.condition("Ready")
    beat = parse_time(ready.last_heartbeat_time or "") if ready is not None else None
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
            if gpu.uuid and (parse_time(gpu.reset_at) or 0.0) >= math.floor(since)
        ),
        expected_gpus=case.seen.health.status.expected_gpus.count if case.seen.health else 0,
    )


def _gpus(case: Case) -> tuple[GpuStatus, ...]:
    return case.seen.health.status.gpus if case.seen.health is not None else ()


def _pending(case: Case) -> bool:
    """Whether an accused GPU still asks for a reset; of a fault of the whole node, any GPU."""
    accused = accused_by(case.session, case.seen.health)
    return any(
        gpu.reset_pending or gpu.recovery_action not in _NO_ACTION
        for gpu in _gpus(case)
        if not accused or gpu.uuid in accused
    )


def with_parts(case: Case, status: QuarantineStatus) -> QuarantineStatus:
    """`status` that says what was replaced since the last look: the inventory that it keeps, with
    what it has said so far, against the verdict of now, at every look and whoever did it.
    """
    health, before = case.seen.health, kept_inventory(status.evidence)
    if health is None or health.doubt or case.seen.stale or not before:
        return status
    known = kept_replacements(status.evidence)
    pairs = exchanged(there_by_now(before, known), health.status)[: MAX_REPLACED - len(known)]
    if not pairs:
        return status
    at, step = format_time(case.now), _under_way(status, case.now)
    new = [Replacement(at=at, part=part, by=by, step=step) for part, by in pairs]
    for one in new[:_NAMED]:
        status = st.noted(status, GPU_REPLACED, one.clause, case.now)
    if len(new) > _NAMED:
        more = f"{len(new) - _NAMED} more GPUs were replaced with it, status.evidence names them"
        status = st.noted(status, GPU_REPLACED, more, case.now)
    return touched(status, evidence={**status.evidence, EVIDENCE_REPLACED: plain((*known, *new))})


def _under_way(status: QuarantineStatus, now: float) -> str:
    """The step that was under way, or proven a moment ago; "" where nobody was asked."""
    last = status.repair[-1] if status.repair else None
    if last is None or last.state not in {RepairState.ASKED, RepairState.PROVEN}:
        return ""
    ended = parse_time(last.ended_at)
    return last.step if ended is None or now - ended <= LATE_S else ""
