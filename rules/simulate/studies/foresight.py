"""How long before a failure it is named, and how often what is sound is: single nodes, real rules.

A simulated agent polls eight GPUs for days; one of them shows a precursor, or none does. Drivers
change, and a new one may count anything more often than the one before, on all GPUs alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rules.catalog.signals import Signal
from rules.simulate.node.machine import DRIVER, GPUS, SOUND, Machine
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.precursors import Precursor, healthy_hours, some

BEGIN: Final = 1_790_000_000.0
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
FORESEEN: Final = frozenset(
    {
        "NVLinkRecoveriesCreeping",
        "NVLinkErrorsOften",
        "NVLinkErrorRate",
        "PCIeReplaysCreeping",
        "PCIeReplayRate",
        "RowRemapsCreeping",
        "EccCorrectedStorm",
        "SlowerThanSiblings",
    }
)
"""Every reason that names a GPU for what has not failed yet."""
BEFORE_DAYS: Final = 2.0
"""A node is sound so long before its precursor begins."""
DRIVER_DAYS: Final = 90.0
"""How often a driver changes (the vendor's branches come each quarter)."""
MULTIPLIED: Final = 170.0
"""A release once multiplied one counter so many times (compute-domain driver, 2025)."""
_BAD_GPU: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What became of one node."""

    gpu_days: float
    lead_h: float | None = None
    """From when its bad GPU was named to its failure; None where it was not."""
    false: int = 0
    """How often anything else was named."""


class _PolledNode:
    """A node with its agent, its counters, and what was named so far."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self.machine = Machine(number=1, name="node-0001", uid="uid-1", made_at=BEGIN)
        self.now = BEGIN
        self.replays = 1.0
        self._counts: list[dict[Signal, float]] = [{} for _ in range(GPUS)]
        self._known: set[str] = set()
        self.named: list[tuple[float, str]] = []
        """When, and which GPU; "" where no GPU is named."""

    def live(self, days: float, poll_s: float, precursor: Precursor | None = None) -> None:
        """Let days pass, with a precursor from their beginning to their end."""
        begin, polls = self.now, round(days * DAY_S / poll_s)
        for _ in range(polls):
            self.now += poll_s
            passed = (self.now - begin) / (days * DAY_S)
            # The whole node works or rests, two days of three.
            busy = precursor is not None or int((self.now - BEGIN) / DAY_S) % 3 > 0
            for gpu in range(GPUS):
                told = dict(
                    healthy_hours(
                        self._dice,
                        poll_s / HOUR_S,
                        gpu=gpu,
                        busy=busy,
                        replays=self.replays,
                    )
                )
                if precursor is not None and gpu == _BAD_GPU:
                    self._worsen(told, precursor, passed, poll_s / HOUR_S)
                self._tell(gpu, told)
            self.machine.poll_all(self.now)
            self._note()

    def _worsen(
        self, told: dict[Signal, float], precursor: Precursor, passed: float, hours: float
    ) -> None:
        rate = precursor.rate(passed)
        if precursor.signal is Signal.SM_CLOCK:
            told[Signal.SM_CLOCK] *= rate
            return
        told[precursor.signal] += some(self._dice, rate * hours)

    def _tell(self, gpu: int, told: dict[Signal, float]) -> None:
        counts = self._counts[gpu]
        for signal in _COUNTED:
            counts[signal] = counts.get(signal, 0.0) + told[signal]
        self.machine.values[gpu] = {**SOUND, **told, **counts}

    def _note(self) -> None:
        """What was not named at the poll before."""
        state = self.machine.state
        active = [i for i in state.incidents if i.active] if state is not None else []
        standing: set[str] = set()
        for incident in active:
            if incident.row.reason not in FORESEEN:
                continue
            gpu = incident.gpus[0] if incident.gpus else ""
            key = f"{incident.row.reason} {gpu}"
            standing.add(key)
            if key not in self._known:
                self.named.append((self.now, gpu))
        self._known = standing

    def new_driver(self, version: str) -> None:
        """Another driver, after a new boot; it counts replays its own way."""
        self.machine.driver = version
        self._counts = [{} for _ in range(GPUS)]
        self.machine.rebooted(self.now)
        self.replays = MULTIPLIED if self.replays == 1.0 else 1.0


_COUNTED: Final = (
    Signal.PCIE_REPLAYS,
    Signal.REMAPPED_ROWS_CORRECTABLE,
    Signal.NVLINK_RECOVERIES,
    Signal.ECC_CORRECTED_VOLATILE,
)


def foresee(precursor: Precursor, dice: Dice) -> Foreseen:
    """One node whose bad GPU fails at the end."""
    node = _PolledNode(dice)
    node.live(BEFORE_DAYS, HOUR_S)
    began = node.now
    node.live(precursor.days, precursor.poll_s, precursor)
    bad = node.machine.uuid(_BAD_GPU)
    right = [at for at, gpu in node.named if gpu == bad and at > began]
    return Foreseen(
        gpu_days=(node.now - BEGIN) / DAY_S * GPUS,
        lead_h=(node.now - right[0]) / HOUR_S if right else None,
        false=sum(gpu != bad or at <= began for at, gpu in node.named),
    )


def stay_sound(days: float, dice: Dice) -> Foreseen:
    """One node with nothing wrong; each quarter its driver is another."""
    node, left, version = _PolledNode(dice), days, 0
    while left > 0:
        node.live(min(left, DRIVER_DAYS), HOUR_S)
        left -= DRIVER_DAYS
        version += 1
        if left > 0:
            node.new_driver(f"{DRIVER}.{version}")
    return Foreseen(gpu_days=days * GPUS, false=len(node.named))
