"""The node before a repair step and after it, as the proof compares them
(`rules.repair.proof`).
"""

from __future__ import annotations

import math
from typing import Final

from rules.api.health import GpuStatus
from rules.api.quarantine import RepairAttempt, RepairBefore, RepairGpu
from rules.api.timestamps import parse_time
from rules.repair.proof import Seen
from rules.session.case import Case
from rules.session.repair.entry import started_at
from rules.session.repair.wants import accused_by

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
