"""NVLink errors that were not read: packed bit error ratios, packets, the data half of CRC
errors.
"""

from __future__ import annotations

import pytest

from agent.nvml.poller import FIELDS, Tier, applies
from agent.sources.dcgm import read_page
from rules.catalog.signals import Signal, bit_error_ratio
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.judge import judge
from rules.judge.observation import SourceChanged, SourceName, SourceState
from rules.judge.state import initial

AT = 1_700_000_000.0
GPU = "GPU-6f2a1d30-8c1e-4b57-9f60-0a41c2d7e100"
LABELS = f'gpu="0",UUID="{GPU}",pci_bus_id="00000000:3B:00.0",Hostname="gpu-1"'
BLACKWELL, HOPPER, AMPERE = 10, 9, 7


@pytest.mark.parametrize(
    ("packed", "ratio"),
    [(4095, 15e-255), (0, 0.0), (513, 0.2), (2048, 8.0), (1 << 8 | 12, 1e-12), (1025, 0.4)],
)
def test_a_packed_bit_error_ratio(packed: int, ratio: float) -> None:
    assert bit_error_ratio(packed) == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("signal", "architectures"),
    [
        (Signal.NVLINK_EFFECTIVE_BER, {BLACKWELL}),
        (Signal.NVLINK_SYMBOL_BER, {BLACKWELL}),
        (Signal.NVLINK_MALFORMED_PACKETS, {BLACKWELL}),
        (Signal.NVLINK_DROPPED_PACKETS, {BLACKWELL}),
        (Signal.NVLINK_REMOTE_ERRORS, {BLACKWELL}),
        (Signal.NVLINK_CRC_DATA_ERRORS, {AMPERE}),
    ],
)
def test_each_is_asked_of_the_parts_that_have_it(signal: Signal, architectures: set[int]) -> None:
    rows = [row for row in FIELDS if row.signal is signal]
    asked = {a for a in (BLACKWELL, HOPPER, AMPERE) for row in rows if applies(row, 580, a)}
    assert asked == architectures
    assert {row.tier for row in rows} == {Tier.MEDIUM}


def field(name: str, value: object, labels: str = LABELS) -> str:
    return f"{name}{{{labels}}} {value}\n"


@pytest.mark.parametrize(
    ("page", "signal", "value"),
    [
        (field("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 7),
         Signal.NVLINK_CRC_DATA_ERRORS, 7),
        (field("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", 7), Signal.NVLINK_CRC_DATA_ERRORS, 7),
        (field("DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS", 3),
         Signal.NVLINK_MALFORMED_PACKETS, 3),
        (field("DCGM_FI_DEV_NVLINK_RX_PACKET_DROPPED_TOTAL", 3),
         Signal.NVLINK_DROPPED_PACKETS, 3),
        (field("DCGM_FI_DEV_NVLINK_COUNT_RX_REMOTE_ERRORS", 3), Signal.NVLINK_REMOTE_ERRORS, 3),
        (field("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER", 1 << 8 | 12),
         Signal.NVLINK_EFFECTIVE_BER, 1e-12),
        (field("DCGM_FI_DEV_NVLINK_EFFECTIVE_BER_RAW", 4095),
         Signal.NVLINK_EFFECTIVE_BER, 15e-255),
        (field("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT", "2.5e-09"),
         Signal.NVLINK_EFFECTIVE_BER, 2.5e-9),
        (field("DCGM_FI_DEV_NVLINK_SYMBOL_BER_RATIO", "1e-10"), Signal.NVLINK_SYMBOL_BER, 1e-10),
        (field("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.25"), Signal.UTILIZATION, 25),
    ],
)  # fmt: skip
def test_dcgm_exporter_says_the_same(page: str, signal: Signal, value: float) -> None:
    seen, bad = read_page(page, AT)
    assert not bad
    assert seen.gpus[GPU][signal] == pytest.approx(value)


def test_of_several_series_the_worst_ratio_counts() -> None:
    links = "".join(
        field("DCGM_FI_DEV_NVLINK_SYMBOL_BER_RATIO", ratio, f'{LABELS},nvlink="{link}"')
        for link, ratio in enumerate(("0", "1e-09", "1e-15"))
    )
    seen, _ = read_page(links, AT)
    assert seen.gpus[GPU][Signal.NVLINK_SYMBOL_BER] == pytest.approx(1e-9)


def test_crc_data_errors_of_a_page_are_judged() -> None:
    """Flit and data errors are two counts of one trouble: together they pass the limit."""
    state = initial(AT, boot_id="b", node_name="n")
    off = SourceChanged(at=AT, source=SourceName.NVML, state=SourceState.ABSENT, reason="Off")
    state, _ = judge(state, off, AT, DEFAULT_RULES)
    for number in range(6):
        now = AT + 15 * number
        page = field("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 900 * number)
        page += field("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 900 * number)
        state, _ = judge(state, read_page(page, now)[0], now, DEFAULT_RULES)
    assert [i.row.reason for i in state.incidents if i.active] == ["NVLinkErrorRate"]
