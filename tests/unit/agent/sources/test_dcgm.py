"""dcgm-exporter: pages with old and new names, and exporters that fail."""

import queue
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from agent.sources.dcgm import SCRAPE_WITHIN_S, DcgmScraper, read_page
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.judge import judge
from rules.judge.observation import DcgmSeen, SourceChanged, SourceName, SourceState
from rules.judge.state import initial
from tests.support.agent.http_answers import exporter

SHARED = Path(__file__).parents[5] / "shared" / "data" / "dcgm"
GPU = "GPU-00000001-0000-0000-0000-000000000000"
LABELS = f'gpu="1",UUID="{GPU}",pci_bus_id="00000000:3B:00.0",Hostname="gpu-1"'
NEW_LABELS = f'gpu="1",gpu_uuid="{GPU}",pci_bus_id="00000000:3B:00.0",hostname="gpu-1"'


@pytest.mark.parametrize(
    ("line", "signal", "value"),
    [
        ("DCGM_FI_DEV_GPU_TEMP{old} 61", Signal.TEMPERATURE, 61),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS{new} 61", Signal.TEMPERATURE, 61),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO{new} 0.25", Signal.UTILIZATION, 25),
        # Blank values of 64 bits, 32 bits and floats, and NaN, are absent.
        ("DCGM_FI_DEV_GPU_TEMP{old} 9223372036854775794", Signal.TEMPERATURE, None),
        ("DCGM_FI_DEV_GPU_TEMP{old} 2147483632", Signal.TEMPERATURE, None),
        ("DCGM_FI_DEV_POWER_USAGE{old} 1.4073748835532804e+14", Signal.POWER, None),
        ("DCGM_FI_DEV_GPU_TEMP{old} NaN", Signal.TEMPERATURE, None),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE{old} 1\r", Signal.REMAP_FAILURE, 1),
        (
            "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL{old} 7",
            Signal.NVLINK_CRC_DATA_ERRORS,
            7,
        ),
        ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL{old} 7", Signal.NVLINK_CRC_DATA_ERRORS, 7),
        (
            "DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS{old} 3",
            Signal.NVLINK_MALFORMED_PACKETS,
            3,
        ),
        ("DCGM_FI_DEV_NVLINK_RX_PACKET_DROPPED_TOTAL{old} 3", Signal.NVLINK_DROPPED_PACKETS, 3),
        ("DCGM_FI_DEV_NVLINK_COUNT_RX_REMOTE_ERRORS{old} 3", Signal.NVLINK_REMOTE_ERRORS, 3),
        # Bit error ratios: in the driver's packed format (mantissa and exponent), or plain.
        ("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER{old} 268", Signal.NVLINK_EFFECTIVE_BER, 1e-12),
        ("DCGM_FI_DEV_NVLINK_EFFECTIVE_BER_RAW{old} 4095", Signal.NVLINK_EFFECTIVE_BER, 15e-255),
        ("DCGM_FI_DEV_NVLINK_EFFECTIVE_BER_RAW{old} 2048", Signal.NVLINK_EFFECTIVE_BER, 8.0),
        (
            "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT{old} 2.5e-09",
            Signal.NVLINK_EFFECTIVE_BER,
            2.5e-9,
        ),
        ("DCGM_FI_DEV_NVLINK_SYMBOL_BER_RATIO{old} 1e-10", Signal.NVLINK_SYMBOL_BER, 1e-10),
    ],
)
def test_a_field_becomes_its_signal(line: str, signal: Signal, value: float | None) -> None:
    page = line.replace("{old}", f"{{{LABELS}}}").replace("{new}", f"{{{NEW_LABELS}}}")
    seen, bad = read_page(page, 1.0)
    assert bad == 0
    assert seen.gpus == {GPU: {signal: value if value is None else pytest.approx(value)}}
    assert seen.pci == {GPU: "0000:3b:00.0"}


def test_of_several_series_the_worst_ratio_counts() -> None:
    links = "".join(
        f'DCGM_FI_DEV_NVLINK_SYMBOL_BER_RATIO{{{LABELS},nvlink="{link}"}} {ratio}\n'
        for link, ratio in enumerate(("0", "1e-09", "1e-15"))
    )
    seen, _ = read_page(links, 1.0)
    assert seen.gpus[GPU][Signal.NVLINK_SYMBOL_BER] == pytest.approx(1e-9)


def test_flit_and_data_errors_of_a_page_are_one_fault() -> None:
    """Together they pass the limit."""
    at = 1_700_000_000.0
    state = initial(at, boot_id="b", node_name="n")
    off = SourceChanged(at=at, source=SourceName.NVML, state=SourceState.ABSENT, reason="Off")
    state, _ = judge(state, off, at, DEFAULT_RULES)
    for number in range(6):
        now = at + 15 * number
        page = "".join(
            f"DCGM_FI_DEV_NVLINK_CRC_{half}_ERROR_COUNT_TOTAL{{{LABELS}}} {900 * number}\n"
            for half in ("FLIT", "DATA")
        )
        state, _ = judge(state, read_page(page, now)[0], now, DEFAULT_RULES)
    assert [i.row.reason for i in state.incidents if i.active] == ["NVLinkErrorRate"]


def test_a_bad_line_is_counted_and_the_others_are_read() -> None:
    page = (
        'DCGM_FI_DEV_GPU_TEMP{test-uuid="x",gpu="1"} 42\n'
        "DCGM_FI_DEV_GPU_TEMP{gpu=\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 42\n"
        "garbage\x00\n"
    )
    seen, bad = read_page(page, 1.0)
    assert bad == 2
    assert seen.gpus == {GPU: {Signal.TEMPERATURE: 42}}


def test_the_xid_is_kept_apart_and_its_absence_is_not_zero() -> None:
    seen, _ = read_page(f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 79", 1.0)
    assert seen.xids == {GPU: 79}
    seen, _ = read_page(f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 40", 1.0)
    assert seen.xids == {}


def test_a_mig_instance_has_a_last_xid_of_its_own_and_its_readings_are_not_the_gpus() -> None:
    page = f'DCGM_FI_DEV_GPU_TEMP{{{LABELS},GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"}} 50\n'
    for instance, xid in (("1", 94), ("2", 31), ("x", 79)):
        page += f'DCGM_FI_DEV_XID_ERRORS{{{LABELS},GPU_I_ID="{instance}"}} {xid}\n'
    seen, bad = read_page(page, 1.0)
    assert (seen.gpus, seen.xids) == ({GPU: {}}, {})
    assert seen.instance_xids == {(GPU, 1): 94, (GPU, 2): 31}
    assert bad == 1


@pytest.mark.parametrize(
    ("page", "value"),
    [
        pytest.param(
            f'DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{LABELS},pod="a"}} 3\n'
            f'DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{LABELS},pod="b"}} 3\n',
            {Signal.PCIE_REPLAYS: 3},
            id="a GPU of two pods counts once",
        ),
        pytest.param(
            "".join(
                f'DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{{LABELS},nvlink="{link}"}} 2\n'
                for link in range(4)
            ),
            {Signal.NVLINK_REPLAYS: 8},
            id="links add up",
        ),
        pytest.param(
            f"DCGM_FI_DEV_RETIRED_SBE{{{LABELS}}} 5\n"
            f"DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL{{{LABELS}}} 5\n",
            {Signal.RETIRED_PAGES_SINGLE_BIT: 5},
            id="both spellings count once",
        ),
        pytest.param(
            f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE{{{LABELS}}} 2",
            {Signal.REMAP_HISTOGRAM: (None, None, None, None, 2)},
            id="the last bin of the histogram",
        ),
    ],
)
def test_series_of_one_counter_are_counted_once(page: str, value: dict[Signal, object]) -> None:
    seen, bad = read_page(page, 1.0)
    assert bad == 0
    assert seen.gpus == {GPU: value}


@pytest.mark.parametrize(
    ("value", "energy"),
    [("5551899580", {GPU: 5551899580}), ("0", {}), ("NaN", {}), ("9223372036854775794", {})],
    ids=["counted", "nothing used", "no number", "blank"],
)
def test_the_energy_that_a_gpu_has_used_is_kept_apart(
    value: str, energy: dict[str, float]
) -> None:
    seen, _ = read_page(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{LABELS}}} {value}", 1.0)

    assert seen.energy == energy
    assert not any(seen.gpus.values()), "it is no signal"


def test_a_real_page_of_default_counters_has_it() -> None:
    page = SHARED / "real_l40s_driver595_default_counters.prom"
    if not page.is_file():
        pytest.skip("the folder of recorded pages is not next to this checkout")
    seen, _ = read_page(page.read_text(), 1.0)

    assert list(seen.energy.values()) == [5551899580]


def test_the_shared_pages_are_read() -> None:
    if not SHARED.is_dir():
        pytest.skip("the folder of recorded pages is not next to this checkout")
    pages = sorted(SHARED.glob("*.prom"))
    assert pages
    for page in pages:
        seen, bad = read_page(page.read_text(), 1.0)
        assert bad == 0, page.name
        names = "DCGM_FI_DEV_GPU_TEMP{" in page.read_text()
        assert bool(seen.gpus) or not names, page.name


def scrape(url: str, within_s: float = SCRAPE_WITHIN_S) -> list[DcgmSeen | SourceChanged]:
    facts: list[DcgmSeen | SourceChanged] = []
    agent = "gpuward-agent/test"
    DcgmScraper(url, facts.append, user_agent=agent, within_s=within_s).scrape_once()
    return facts


def test_a_good_page_brings_the_source_up() -> None:
    page = f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 61\n".encode()
    with exporter(lambda sent: sent.write(page)) as url:
        changed, seen = scrape(url)
    assert isinstance(changed, SourceChanged)
    assert changed.state is SourceState.UP
    assert isinstance(seen, DcgmSeen)


def stream_for_ever(page: BinaryIO) -> None:
    while True:
        page.write(b"# nothing\n")
        time.sleep(0.02)


def send_a_gigabyte(page: BinaryIO) -> None:
    page.writelines(b"# x\n" * 262144 for _ in range(1024))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(lambda page: None, "EmptyPage", id="empty page"),
        pytest.param(stream_for_ever, "TooSlow", id="streams for ever"),
        pytest.param(send_a_gigabyte, "TooLarge", id="a gigabyte"),
    ],
)
def test_a_failing_exporter_is_a_source_down(
    answer: Callable[[BinaryIO], None], reason: str
) -> None:
    with exporter(answer) as url:
        (changed,) = scrape(url, within_s=0.3 if reason == "TooSlow" else 20.0)
    assert isinstance(changed, SourceChanged)
    assert (changed.state, changed.reason) == (SourceState.DOWN, reason)


def test_an_exporter_that_hangs_in_its_headers_is_a_source_down() -> None:
    over = threading.Event()

    def trickle(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client:
            client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.05):
                client.sendall(b"x")

    facts: queue.SimpleQueue[DcgmSeen | SourceChanged] = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        scraper = DcgmScraper(url, facts.put, user_agent="gpuward-agent/test", within_s=0.3)
        scraper.start()
        changed = facts.get(timeout=20.0)
        scraper.close()
        over.set()
        thread.join()
    assert isinstance(changed, SourceChanged)
    assert (changed.state, changed.reason) == (SourceState.DOWN, "TooSlow")


def test_a_missing_exporter_is_a_source_down() -> None:
    (changed,) = scrape("http://127.0.0.1:9/metrics")
    assert isinstance(changed, SourceChanged)
    assert changed.reason == "NoAnswer"
