"""Foresight: what creeps on one GPU is found days ahead, and healthy noise never (issue 14)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import msgspec
import pytest

from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES, Thresholds
from tests.support.scenario.judgement_world import World, uuid

HOUR = 3600.0
DAY = 24 * HOUR
CREEPING = {
    "NVLinkRecoveriesCreeping",
    "PCIeReplaysCreeping",
    "RowRemapsCreeping",
    "SlowerThanSiblings",
}
Values = Mapping[str, float]
BUSY: Values = {"utilization": 100, "sm_clock": 1980, "temperature": 60, "pcie_width": 16}


class Node(World):
    """Eight GPUs polled rarely: counters and clocks as `reads` says."""

    def __init__(self, **limits: float) -> None:
        """`limits`: thresholds that are to be another."""
        changed = {
            name: msgspec.structs.replace(DEFAULT_RULES[name], value=value)
            for name, value in limits.items()
        }
        rules = Thresholds(thresholds={**DEFAULT_RULES.thresholds, **changed})
        super().__init__(8, rules=rules)
        self.start()
        self.counts = [
            dict.fromkeys((Signal.NVLINK_RECOVERIES, Signal.PCIE_REPLAYS,
                           Signal.REMAPPED_ROWS_CORRECTABLE), 0.0)
            for _ in range(8)
        ]  # fmt: skip

    def live(self, hours: float, grows: Callable[[int, float], Values], *, polls: int = 2) -> None:
        """So many hours; `grows` says what a GPU counts or reads in each poll, by its number."""
        for _ in range(round(hours * polls)):
            self.advance(HOUR / polls)
            for gpu in range(8):
                told = {
                    Signal[name.upper()]: value for name, value in grows(gpu, self.now).items()
                }
                for signal, value in told.items():
                    if signal in self.counts[gpu]:
                        self.counts[gpu][signal] += value
                        told[signal] = self.counts[gpu][signal]
                self.values[gpu] |= self.counts[gpu] | told
            self.poll()

    def creeping(self) -> set[str]:
        return {i.row.reason for i in self.active} & CREEPING


def only(gpu: int, **values: float) -> Callable[[int, float], Values]:
    return lambda g, _: values if g == gpu else {}


@pytest.mark.parametrize(
    ("signal", "growth", "hours", "reason"),
    [
        # The precursor of the field: 3 recoveries in 21 minutes, 5 days before the link failed.
        pytest.param("nvlink_recoveries", 1, 4, "NVLinkRecoveriesCreeping", id="recoveries"),
        pytest.param("pcie_replays", 40, 15, "PCIeReplaysCreeping", id="replays"),
        pytest.param("remapped_rows_correctable", 1, 5, "RowRemapsCreeping", id="remaps"),
    ],
)
def test_issue14_what_creeps_on_one_gpu_is_named_within_hours(
    signal: str, growth: float, hours: float, reason: str
) -> None:
    node = Node()
    node.live(2, only(3))
    node.live(hours, only(3, **{signal: growth}))
    assert node.creeping() == {reason}
    (found,) = [i for i in node.active if i.row.reason == reason]
    assert found.gpus == (uuid(3),)
    assert str(found.row.level) == "Report"
    assert "times within 7 days" in found.evidence[0]


@pytest.mark.parametrize("signal", ["nvlink_recoveries", "pcie_replays"])
def test_issue14_what_all_gpus_show_is_nobodys_fault(signal: str) -> None:
    node = Node()
    node.live(30, lambda _, __: {signal: 300.0 if signal == "pcie_replays" else 0.4})
    assert node.creeping() == set()


def test_issue14_a_slow_clock_beside_busy_siblings_is_named() -> None:
    node = Node(SlowerThanSiblings=2)
    slow = lambda gpu, _: {**BUSY, **({"sm_clock": 1600} if gpu == 5 else {})}  # noqa: E731
    node.live(3.5, slow, polls=32)
    assert node.creeping() == {"SlowerThanSiblings"}


@pytest.mark.parametrize(("clock", "found"), [(1100, True), (1500, False)])
def test_gpus_at_their_power_limit_are_compared_with_each_other(
    clock: int, *, found: bool
) -> None:
    node = Node(SlowerThanSiblings=2)
    capped: Values = {**BUSY, "sm_clock": 1700, "clock_event_reasons": 4}
    node.live(
        3.5, lambda gpu, _: {**capped, **({"sm_clock": clock} if gpu == 5 else {})}, polls=32
    )
    assert node.creeping() == ({"SlowerThanSiblings"} if found else set())


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"sm_clock": 1600, "clock_event_reasons": 4}, id="held by its power cap"),
        pytest.param({"sm_clock": 1600, "utilization": 40}, id="less load"),
        pytest.param({"sm_clock": 1600, "temperature": 80}, id="warmer"),
        pytest.param({"sm_clock": 1900}, id="a few per cent"),
    ],
)
def test_issue14_a_slow_clock_that_has_a_reason_is_none(odd: Values) -> None:
    node = Node(SlowerThanSiblings=2)
    node.live(3.5, lambda gpu, _: {**BUSY, **(odd if gpu == 5 else {})}, polls=32)
    assert node.creeping() == set()


def test_issue14_a_restart_forgets_nothing_but_the_hour_that_runs() -> None:
    node = Node()
    node.live(2, only(3, nvlink_recoveries=1))
    assert node.creeping() == set()
    node.restart_agent()
    node.start()
    node.live(3, only(3, nvlink_recoveries=1))
    assert node.creeping() == {"NVLinkRecoveriesCreeping"}


def test_issue14_a_reset_and_another_driver_begin_anew() -> None:
    for happens in ("reset", "driver"):
        node = Node()
        node.live(2.5, only(3, nvlink_recoveries=1))
        if happens == "driver":
            node.driver = "590.10"
            node.enumerate()
        else:
            node.values[3] |= {Signal.ECC_CORRECTED_VOLATILE: 9}
            node.poll()
            node.values[3] |= {Signal.ECC_CORRECTED_VOLATILE: 0}
            node.poll()
        assert not [what for _, what in node.state.ledger if what.startswith("hours")], happens
        node.live(2, only(3, nvlink_recoveries=1))
        assert node.creeping() == set()


def test_issue14_a_quiet_week_closes_it() -> None:
    node = Node()
    node.live(4, only(3, nvlink_recoveries=1))
    assert node.creeping()
    node.live(9 * 24, only(3), polls=1)
    assert node.creeping() == set()


def test_issue14_a_healthy_node_notes_nothing() -> None:
    """No note, no write: the ledger is published, and a sound fleet writes nothing."""
    node = Node()
    dice = random.Random(4)
    before = node.state.ledger
    node.live(30, lambda gpu, _: {**_noise(dice, gpu, 0), "pcie_replays": dice.randrange(6)})
    assert node.state.ledger == before


def _noise(dice: random.Random, gpu: int, day: int) -> Values:
    busy = day % 3 > 0
    replays = dice.expovariate(1 / 3.0) * (10 if dice.random() < 0.01 else 1)
    remaps = dice.random() < 1 / (24 * 365)
    hiccup = dice.random() < 1 / (24 * 365 * 8)
    return {
        "utilization": dice.uniform(92, 100) if busy else 0,
        "sm_clock": dice.gauss(1930, 25) if busy else 345,
        "temperature": 62 + gpu + dice.gauss(0, 1),
        "pcie_replays": int(replays),
        "remapped_rows_correctable": int(remaps),
        "nvlink_recoveries": int(hiccup),
    }
