"""Scrape the dcgm-exporter of this node and convert its page to signals.

One thread; time and size of a scrape are limited. Each valid page becomes a fact. A failed scrape
makes the source Down and has no meaning for any GPU. `rules` checks that the page is of this node.
Only lines of known fields are parsed, because the parser is slow and one bad label would lose the
page. Lines that cannot be parsed are counted. Old and new field names are supported.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import msgspec
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from rules.catalog import signals
from rules.catalog.signals import Signal, SignalInfo, SignalKind, SignalShape
from rules.judge.observation import DcgmSeen, SourceChanged, SourceName, SourceState, Value
from rules.text import pci_address

ENERGY_PREFIX: Final = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""Not a signal: it only shows that the exporter still reads the GPU. Newer exporters append a unit
to the name."""
XID_FIELDS: Final = ("DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_XID_ERRORS")
UUID_LABELS: Final = ("UUID", "gpu_uuid", "uuid")
PCI_LABELS: Final = ("pci_bus_id", "pciBusId")
DRIVER_LABEL: Final = "DCGM_FI_DRIVER_VERSION"
INSTANCE_LABELS: Final = ("GPU_I_ID", "gpu_i_id")
LINK_LABELS: Final = ("nvlink",)
RATIO_SUFFIX: Final = "_RATIO"
PERCENT: Final = "percent"
"""DCGM 4.6 exports ratios from 0 to 1, older versions export per cent."""
PACKED_SUFFIXES: Final = ("_BER", "_BER_RAW")
"""Bit error ratios in the driver's packed format; DCGM also exports them unpacked."""

MAX_GPUS: Final = 64
MAX_LINE_CHARS: Final = 4096

BLANK_64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_32: Final = 0x7FFFFFF0
BLANK_FLOAT: Final = 140737488355328.0
"""DCGM's values for "no value" start here (dcgm_structs.h); old exporters print them."""


class _Page(msgspec.Struct):
    """The values of a page that is being read."""

    gpus: dict[str, dict[Signal, Value]] = msgspec.field(default_factory=dict)
    counts: dict[tuple[str, Signal], dict[str, dict[str, float]]] = msgspec.field(
        default_factory=dict
    )
    """Counter values by GPU and signal, then by field and link."""
    xids: dict[str, int] = msgspec.field(default_factory=dict)
    instance_xids: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    pci: dict[str, str] = msgspec.field(default_factory=dict)
    energy: dict[str, float] = msgspec.field(default_factory=dict)
    driver: str = ""
    bad_lines: int = 0


@cache
def _fields() -> Mapping[str, Signal]:
    return signals.dcgm_signals()


@cache
def _table() -> Mapping[Signal, SignalInfo]:
    return signals.signal_table()


def read_page(text: str, at: float) -> tuple[DcgmSeen, int]:
    """Return the fact in a page, and how many relevant lines could not be parsed."""
    page = _Page()
    fields = _fields()
    for line in text.split("\n"):
        name = line[: line.find("{")] if "{" in line else line.partition(" ")[0]
        if name in XID_FIELDS or name in fields or name.startswith(ENERGY_PREFIX):
            _read_line(page, line, name)
    seen = DcgmSeen(
        at=at,
        gpus=page.gpus,
        xids=page.xids,
        instance_xids=page.instance_xids,
        pci=page.pci,
        driver=page.driver,
        energy=page.energy,
    )
    return seen, page.bad_lines


def _read_line(page: _Page, line: str, name: str) -> None:
    try:
        if len(line) > MAX_LINE_CHARS:
            raise ValueError("line too long")
        (family,) = text_string_to_metric_families(f"{line.rstrip()}\n")
        (sample,) = family.samples
    except (ValueError, IndexError, KeyError, TypeError):
        # The parser documents ValueError and raises others too.
        page.bad_lines += 1
        return
    labels = sample.labels
    uuid = _first(labels, UUID_LABELS)
    if not uuid or (uuid not in page.gpus and len(page.gpus) >= MAX_GPUS):
        # NVSwitch, CPU and other entities have no signals.
        return
    values = page.gpus.setdefault(uuid, {})
    if address := _first(labels, PCI_LABELS):
        page.pci[uuid] = pci_address.normal_pci(address)
    page.driver = labels.get(DRIVER_LABEL, page.driver)
    value = _value(sample.value)
    if name in XID_FIELDS:
        if isinstance(value, int):
            _note_xid(page, uuid, _first(labels, INSTANCE_LABELS), value)
        return
    if name.startswith(ENERGY_PREFIX):
        if isinstance(value, int | float) and value > 0:
            page.energy[uuid] = max(value, page.energy.get(uuid, 0))
        return
    signal = _fields()[name]
    if _first(labels, INSTANCE_LABELS):
        # Readings of a MIG instance are not the GPU's.
        return
    info = _table()[signal]
    if name.endswith(RATIO_SUFFIX) and info.unit == PERCENT and value is not None:
        value = round(sample.value * 100, 3)
    elif (
        signal in signals.BIT_ERROR_RATIOS and name.endswith(PACKED_SUFFIXES) and value is not None
    ):
        value = signals.bit_error_ratio(sample.value)
    if signal in signals.BIT_ERROR_RATIOS and isinstance(value, int | float):
        known = values.get(signal)
        value = max(value, known) if isinstance(known, int | float) else value
    if info.kind is SignalKind.COUNTER and isinstance(value, int | float):
        value = _count(page, (uuid, signal), name, _first(labels, LINK_LABELS), value)
    elif info.shape is SignalShape.HISTOGRAM and isinstance(value, int):
        value = (None, None, None, None, value)  # only the last bin is exported
    values[signal] = value


def _count(
    page: _Page, key: tuple[str, Signal], name: str, link: str, value: int | float
) -> int | float:
    """Return one counter from its series: the sum of links, the highest of all other series.

    A GPU that several pods share has a series for each of them, and two fields may count the same.
    """
    names = page.counts.setdefault(key, {})
    links = names.setdefault(name, {})
    links[link] = max(value, links.get(link, value))
    return max(sum(counted.values()) for counted in names.values())


def _note_xid(page: _Page, uuid: str, instance: str, xid: int) -> None:
    if not instance:
        page.xids[uuid] = max(xid, page.xids.get(uuid, 0))
    elif instance.isascii() and instance.isdecimal() and len(instance) < 4:
        key = (uuid, int(instance))
        page.instance_xids[key] = max(xid, page.instance_xids.get(key, 0))
    else:
        page.bad_lines += 1


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _value(value: float) -> Value:
    """Return the number; None for the values that mean "no value" in DCGM and Prometheus."""
    if value != value or value in (float("inf"), float("-inf")):
        return None
    if value >= BLANK_64 - 1024 or BLANK_FLOAT <= value < BLANK_FLOAT + 16:
        return None
    if float(value).is_integer():
        number = int(value)
        return None if BLANK_32 <= number <= BLANK_32 + 0xF else number
    return value


SCRAPE_EVERY_S = 15.0
SCRAPE_WITHIN_S = 2.0
MAX_PAGE_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024

NO_ANSWER = "NoAnswer"
REFUSED = "Refused"
TOO_SLOW = "TooSlow"
TOO_LARGE = "TooLarge"
EMPTY_PAGE = "EmptyPage"


class ScrapeError(Exception):
    """A scrape failed; the text is a CamelCase reason."""


class DcgmScraper:
    """Scrapes in a thread and passes facts to `put`."""

    def __init__(
        self,
        url: str,
        put: Callable[[DcgmSeen | SourceChanged], None],
        *,
        user_agent: str,
        every_s: float = SCRAPE_EVERY_S,
        within_s: float = SCRAPE_WITHIN_S,
    ) -> None:
        self._url = url
        self._every_s = every_s
        self._within_s = within_s
        self._put = put
        self._pool = urllib3.PoolManager(maxsize=1, retries=False)
        self._headers = {"User-Agent": user_agent, "Accept": "text/plain"}
        self._reason: str | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dcgm", daemon=True)
        self.bad_lines = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def scrape_now(self) -> None:
        """Scrape at once."""
        self._wake.set()

    def close(self) -> None:
        """Ask the thread to end; a scrape in progress ends within seconds."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self.scrape_once()
            self._wake.wait(self._every_s)

    def scrape_once(self) -> None:
        """Scrape once and report the result; a scrape that hangs is reported as Down."""
        # Reading headers has a timeout for each read only, so a timer reports a slow scrape.
        overdue = threading.Timer(
            2 * self._within_s, self._report_state, (SourceState.DOWN, TOO_SLOW)
        )
        overdue.daemon = True
        with contextlib.suppress(RuntimeError):
            # No thread for the timer (EAGAIN): scrape without it.
            overdue.start()
        try:
            self._scrape()
        finally:
            overdue.cancel()

    def _scrape(self) -> None:
        try:
            text = self._fetch()
            fact, bad_lines = read_page(text, time.time())
            self.bad_lines += bad_lines
            if not fact.gpus:
                raise ScrapeError(EMPTY_PAGE)
        except ScrapeError as error:
            self._report_state(SourceState.DOWN, str(error))
            return
        self._report_state(SourceState.UP, "")
        self._put(fact)

    def _report_state(self, state: SourceState, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._put(
                SourceChanged(at=time.time(), source=SourceName.DCGM, state=state, reason=reason)
            )

    def _fetch(self) -> str:
        """Return the page; the total time is limited too, since an exporter may send slowly."""
        deadline = time.monotonic() + self._within_s
        timeout = urllib3.Timeout(connect=self._within_s, read=self._within_s)
        try:
            response = self._pool.request(
                "GET",
                self._url,
                headers=self._headers,
                timeout=timeout,
                preload_content=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ScrapeError(NO_ANSWER) from error
        complete = False
        try:
            if response.status != 200:
                raise ScrapeError(REFUSED)
            page = bytearray()
            while chunk := response.read1(CHUNK_BYTES):
                page += chunk
                if len(page) > MAX_PAGE_BYTES:
                    raise ScrapeError(TOO_LARGE)
                if time.monotonic() > deadline:
                    raise ScrapeError(TOO_SLOW)
            complete = True
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ScrapeError(TOO_SLOW) from error
        finally:
            # A connection with unread data must not be reused.
            response.release_conn() if complete else response.close()
        return page.decode("utf-8", "replace")
