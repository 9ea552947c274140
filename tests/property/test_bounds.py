"""What judgement keeps and publishes stays small, however long and however hostile its life is."""

import os
import random

import msgspec
import pytest
from msgspec import structs

from rules.api.health import MAX_INCIDENTS, MAX_OBJECT_BYTES, HealthStatus
from rules.api.timestamps import format_time
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge import memory
from rules.judge.health_object import Identity, publish
from rules.judge.health_status import assess
from rules.judge.judge import judge, next_deadline
from rules.judge.observation import (
    EventKind,
    GpuEvent,
    GpuSeen,
    HostSeen,
    Inventory,
    KernelLineSeen,
    NetworkPort,
    NodeSeen,
    Observation,
    PortCounter,
    Readings,
    Service,
    SourceChanged,
    SourceName,
    SourceState,
    Tick,
)
from rules.judge.restore import restore
from rules.judge.state import (
    MAX_ADDRESSES,
    MAX_GPUS,
    MAX_REPEATS,
    NodeState,
    initial,
)
from rules.kernel_log.record import KernelLine, LineKind

START = 1_700_000_000.0
IDENTITY = Identity(agent_version="1", rules_version="1", pod="ns/p", pod_uid="u")
XIDS = (13, 31, 43, 45, 48, 63, 74, 79, 94, 95, 109, 119, 145, 154, 999)
BENIGN = (13, 31, 43, 45, 94, 999)
LONG = "x" * 600
COUNTERS = (Signal.NVLINK_REPLAYS, Signal.NVLINK_RECOVERIES, Signal.PCIE_REPLAYS)


def name(gpu: int) -> str:
    return f"GPU-{gpu:08x}-0000-0000-0000-000000000000"


def address(gpu: int) -> str:
    return f"0000:{gpu % 256:02x}:00"


class Life:
    """A node where everything goes wrong at random; a `long` one is repaired now and then."""

    def __init__(self, seed: int, gpus: int, *, long: bool) -> None:
        self.random = random.Random(seed)
        self.gpus = gpus
        self.long = long
        self.count = 0
        self.sequence = 0
        self.boot = 1

    def observation(self, now: float) -> Observation:
        draw, gpu = self.random, self.random.randrange(self.gpus)
        kind = draw.random()
        self.count += 1
        if self.long and not self.count % 500:
            reported_at = format_time(now)
            note = {"gpuward.io/repaired": f"{reported_at} all of it"}
            return NodeSeen(at=now, name="n1", uid="u", boot_id="", annotations=note)
        if self.long and not self.count % 250:
            self.sequence += 1
            line = KernelLine(kind=LineKind.DRIVER_LOAD, text="NVRM: loading NVIDIA UNIX")
            return self._seen(line, now)
        if kind < 0.45:
            self.sequence += 1
            line = KernelLine(
                kind=LineKind.XID
                if self.long
                else draw.choice((LineKind.XID, LineKind.XID, *LineKind)),
                text=LONG,
                xid=draw.choice(BENIGN if self.long and draw.random() < 0.99 else XIDS),
                pci=address(gpu),
                gpu_uuid=name(draw.randrange(10_000)) if draw.random() < 0.01 else None,
                gpc=draw.randrange(8),
                tpc=draw.randrange(9),
                recovery_to=draw.randrange(8),
                detail=LONG,
            )
            return self._seen(line, now)
        if kind < 0.85:
            odd = not self.long or draw.random() < 0.05
            return Readings(
                at=now,
                gpu=name(gpu),
                pci=address(gpu),
                values={
                    Signal.PRESENCE: draw.choice(("present", "lost")) if odd else "present",
                    Signal.RECOVERY_ACTION: draw.choice((0, 1, 4)) if odd else 0,
                    Signal.NVLINK_STATES: (1,) * 17 + (draw.randrange(2),),
                    Signal.THERMAL_MARGIN: draw.choice((30, -1)),
                    Signal.ECC_UNCORRECTED_VOLATILE: draw.choice((0, 1)) if odd else 0,
                    **{signal: draw.randrange(1 << 30) for signal in COUNTERS},
                },
            )
        if kind < (0.95 if not self.long else 0.851):
            return GpuEvent(
                at=now, kind=draw.choice(list(EventKind)), data=draw.choice(XIDS), gpu=name(gpu)
            )
        if kind < (0.98 if not self.long else 0.99):
            port = NetworkPort(
                name=f"mlx5_{draw.randrange(10_000)}{LONG}",
                active=draw.choice((True, False, None)),
                missing_files=draw.choice((None, (), (LONG,) * 3)),
                counters={each: draw.randrange(1 << 64) for each in PortCounter},
            )
            services = {each: draw.random() < 0.5 for each in Service}
            return HostSeen(at=now, booted_at=START, services=services, ports=(port,) * 100)
        state = draw.choice((SourceState.UP, SourceState.UP, SourceState.DOWN, SourceState.ABSENT))
        return SourceChanged(at=now, source=draw.choice(list(SourceName)), state=state)

    def _seen(self, line: KernelLine, now: float) -> KernelLineSeen:
        return KernelLineSeen(
            at=now,
            sequence=self.sequence,
            boot_id=f"boot-{self.boot}",
            lookback=False,
            line=line,
        )


def assert_small(state: NodeState) -> None:
    assert len(state.incidents) <= MAX_INCIDENTS
    assert len(state.gpus) <= MAX_GPUS
    assert len(state.address_uuids) <= MAX_ADDRESSES
    assert len(state.repeats) <= MAX_REPEATS
    assert len(state.ports) <= 64
    assert len(state.ledger) <= memory.MAX_ENTRIES
    owners = [owner for owner, _ in state.ledger]
    assert all(owners.count(owner) <= memory.MAX_PER_GPU for owner in owners)
    assert all(len(entry.sightings) <= memory.MAX_SIGHTINGS for entry in state.ledger.values())
    for incident in state.incidents:
        assert len(incident.members) <= 16
        assert len(incident.evidence) <= 5


def published(state: NodeState, now: float) -> HealthStatus:
    status = publish(state, assess(state, now), now, IDENTITY).status
    raw = msgspec.json.encode(status)
    assert len(raw) <= MAX_OBJECT_BYTES
    return msgspec.json.decode(raw, type=HealthStatus)


def live(observations: int, seed: int, gpus: int, *, long: bool = False) -> None:
    life = Life(seed, gpus, long=long)
    now, state = START, initial(START, boot_id="boot-1", node_name="n1")
    listed = tuple(
        GpuSeen(uuid=name(n), index=n, pci=f"{address(n)}.0", product=LONG, serial=LONG)
        for n in range(gpus)
    )
    up = SourceChanged(at=START, source=SourceName.NVML, state=SourceState.UP)
    for first in (up, Inventory(at=START, driver="580.1", gpus=listed)):
        state, _ = judge(state, first, now, DEFAULT_RULES)
    look, restart = (9_973, 99_991) if long else (97, 397)
    for number in range(observations):
        now += life.random.choice((0.01, 1.0, 5.0, 30.0))
        state, _ = judge(state, life.observation(now), now, DEFAULT_RULES)
        if number % look == 0:
            assert_small(state)
            after, _ = judge(state, Tick(at=now), now, DEFAULT_RULES)
            due = next_deadline(after)
            assert due is None or due > now
        if number % restart == 0:
            status = published(state, now)
            if life.random.random() < 0.2:
                life.boot, life.sequence = life.boot + 1, 0
            state = restore(status, now, boot_id=f"boot-{life.boot}", node_name="n1")
            assert_small(state)
    published(state, now)


@pytest.mark.parametrize("seed", range(3))
def test_state_and_object_stay_small(seed: int) -> None:
    live(600, seed, gpus=(4, 16, 80)[seed])


@pytest.mark.slow
def test_state_and_object_stay_bounded_over_a_long_life() -> None:
    """A tenth of a million observations; the entire million, seven minutes of CPU, where asked
    for.
    """
    every = bool(os.environ.get("GPUWARD_EXHAUSTIVE"))
    live(1_000_000 if every else 100_000, seed=11, gpus=8, long=True)


def test_a_ledger_of_nothing_but_large_names_leaves_room_for_incidents() -> None:
    state = initial(START, boot_id="boot-1", node_name="n1")
    book: memory.Ledger = {}
    for number in range(500):
        owner = memory.owner_key(f"GPU-{number % 70}-{LONG}", "")
        for hour in range(8):
            at = START + hour * 4 * 3600
            book = memory.noted(book, owner, f"closed {'R' * 63}{number % 20}", at, 86_400)
    state = structs.replace(state, ledger=book)
    assert_small(state)
    status = published(state, START)
    assert len(msgspec.json.encode(status.ledger)) < 24 * 1024
    assert restore(status, START, boot_id="boot-1", node_name="n1").ledger.keys() == book.keys()
