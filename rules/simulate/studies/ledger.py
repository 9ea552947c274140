"""How large the ledger grows: every fault of a generated fleet goes into its record.

Faults and repairs come from the generator, records from the real rules; verdicts and sessions are
left out, so that ten thousand nodes take seconds.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from rules.api.metadata import ObjectMeta
from rules.api.timestamps import format_time
from rules.api.writes import DeleteRecord
from rules.fleet.happenings import aged
from rules.ledger.record import (
    GPU_SCOPE,
    NODE_SCOPE,
    FaultOutcome,
    RecordView,
    gpu_record_name,
    node_record_name,
    record_patch,
)
from rules.ledger.update import RecordedFault, RecordIdentity, updated, worth_writing
from rules.repair.ladder import Step
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.generator import node_names, outages
from rules.simulate.truth.outage import Outage
from rules.simulate.truth.year import DAY_S, GPUS

BEGIN: Final = 1_790_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSize:
    """A ledger over a span of days."""

    nodes: int
    days: float
    faults: int
    most: int
    """Records at once, at the most."""
    largest: int
    """Bytes of the largest status as it is written."""
    bytes_in_all: int
    """Of all records together at the end."""
    writes: int

    @property
    def writes_a_day(self) -> float:
        """Creations, updates and deletions."""
        return self.writes / self.days


class _Ledger:
    def __init__(self) -> None:
        self.records: dict[str, RecordView] = {}
        self.writes = self.most = self.largest = 0

    def take(self, identity: RecordIdentity, fault: RecordedFault, now: float) -> None:
        gpu = identity.scope == GPU_SCOPE
        name = gpu_record_name(identity.uuid) if gpu else node_record_name(identity.node)
        known = self.records.get(name)
        before = known.status if known is not None else None
        after = updated(before, identity, [fault], (), now)
        if after is None or not worth_writing(before, after):
            return
        # A record is made first and filled then.
        self.writes += 1 if known is not None else 2
        meta = ObjectMeta(name=name, creation_timestamp=format_time(now))
        self.records[name] = RecordView(metadata=known.metadata if known else meta, status=after)
        self.most = max(self.most, len(self.records))
        self.largest = max(self.largest, _size(self.records[name]))

    def age(self, now: float) -> None:
        for due in aged(list(self.records.values()), now):
            self.writes += 1
            if isinstance(due, DeleteRecord):
                del self.records[due.name]
            else:
                known = self.records[due.name]
                self.records[due.name] = msgspec.structs.replace(known, status=due.status)


def _size(record: RecordView) -> int:
    return len(msgspec.json.encode(record_patch(record.status)))


def ledger_size(nodes: int, days: float, dice: Dice, *, look_days: float = 1.0) -> LedgerSize:
    """The ledger of a generated fleet; every `look_days` it is seen what time does to records."""
    ledger, order = _Ledger(), 0
    due: list[tuple[float, int, RecordIdentity, RecordedFault]] = []
    found = outages(dice, node_names(nodes), days)
    for number, one in enumerate(found):
        identity, fault = _recorded(one, number, dice.randrange(GPUS))
        due.append((one.start, order, identity, fault))
        ended = replace(
            fault,
            ended_at=format_time(BEGIN + one.end * DAY_S),
            outcome=FaultOutcome.RELEASED,
            steps=(Step.RESTART_NODE,),
        )
        due.append((one.end, order + 1, identity, ended))
        order += 2
    heapq.heapify(due)
    day = look_days
    while day <= days:
        while due and due[0][0] <= day:
            at, _, identity, fault = heapq.heappop(due)
            ledger.take(identity, fault, BEGIN + at * DAY_S)
        ledger.age(BEGIN + day * DAY_S)
        day += look_days
    return LedgerSize(
        nodes=nodes,
        days=days,
        faults=len(found),
        most=ledger.most,
        largest=ledger.largest,
        bytes_in_all=sum(map(_size, ledger.records.values())),
        writes=ledger.writes,
    )


def _recorded(one: Outage, number: int, gpu: int) -> tuple[RecordIdentity, RecordedFault]:
    """Faults of GPUs go with the GPU, all others stay with the node."""
    of_gpu = one.klass == "GPU"
    identity = RecordIdentity(
        scope=GPU_SCOPE if of_gpu else NODE_SCOPE,
        uuid=f"GPU-{one.node}-{gpu}" if of_gpu else "",
        serial=f"{number:013d}" if of_gpu else "",
        product="NVIDIA H100 80GB HBM3" if of_gpu else "",
        node=one.node,
        slot=f"0000:{0x10 + gpu:02x}:00.0" if of_gpu else "",
        driver="580.82.07",
        rules="1",
    )
    fault = RecordedFault(
        at=format_time(BEGIN + one.start * DAY_S),
        reason="GPULost" if of_gpu else "NetworkPortDown",
        severity="Fatal" if of_gpu else "Degraded",
        node=one.node,
        session=f"{one.node}-{number}",
    )
    return identity, fault
