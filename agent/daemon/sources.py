"""All collectors of one agent: made from the settings, started, and ended in order.

Owned by `agent.daemon.run`. Each collector has its own thread and puts facts into the queue; what
this machine lacks becomes a source that is Absent.
"""

import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.daemon.event_queue import EventQueue, Item, Log
from agent.nvml.link import NvmlLink
from agent.nvml.messages import Message, NvmlStatus
from agent.settings import USER_AGENT, AgentSettings, SettingsError
from agent.sources import kernel_log
from agent.sources.dcgm import DcgmScraper
from agent.sources.kernel_log import OpenedLog, boot_id
from agent.sources.kernel_record import RecordCounts, Sieve
from agent.sources.machine import (
    REAL,
    Machine,
    MachineCollector,
    MachineFact,
    UdevError,
    UdevMonitor,
    simulated,
)
from rules.judge import observation as facts

SIMULATED = "sim:"
DRIVER = "nvidia"
"""How sysfs names the driver that NVML speaks for."""


class CollectorsError(SettingsError):
    """A collector cannot be what the settings say; the text is one sentence with the remedy."""


class Collectors:
    """The kernel log, NVML, the machine, udev and dcgm-exporter. Raises SensesError.

    `udev` makes the monitor of PCI announcements, given what to call.
    """

    def __init__(
        self,
        settings: AgentSettings,
        event_queue: EventQueue[Item],
        udev: Callable[
            [Callable[[bool], None], Callable[[Exception], None]], UdevMonitor
        ] = UdevMonitor,
    ) -> None:
        self._settings = settings
        self._event_queue = event_queue
        self.boot_id = _boot_id(settings.boot_id)
        _check_log(settings.kmsg)
        machine = _machine(settings.nvml)
        self.counts = RecordCounts()
        self.nvml = NvmlLink(settings.nvml, self._nvml_said, poll_s=settings.poll_s)
        self._bound: set[str] | None = None
        self._machine = MachineCollector(self._machine_seen, machine, every_s=settings.poll_s)
        self._make_monitor = udev
        self._udev: UdevMonitor | None = None
        self.dcgm: DcgmScraper | None = None
        if settings.dcgm != "off":
            self.dcgm = DcgmScraper(
                settings.dcgm, event_queue.put, user_agent=USER_AGENT, every_s=settings.poll_s
            )
        self._log: OpenedLog | None = None
        self._log_lock = threading.Lock()
        self._log_closed = False
        self._timeout: threading.Timer | None = None

    def start(self, *, past_within_s: float) -> None:
        """Start all; the kernel log when `open_log` is called, or after `past_within_s`."""
        self._machine.start()
        self.nvml.start()
        self._start_udev()
        if self.dcgm is not None:
            self.dcgm.start()
        else:
            self._source(facts.SourceName.DCGM, facts.SourceState.ABSENT, "Off")
        self._timeout = threading.Timer(past_within_s, self.open_log)
        self._timeout.daemon = True
        self._timeout.start()

    def open_log(self, boot_id: str = "", after: int = -1) -> None:
        """Open the kernel log behind what an earlier run of this boot has judged; once."""
        with self._log_lock:
            if self._log is not None or self._log_closed:
                return
            same_boot = boot_id == self.boot_id
            self._log = kernel_log.open_kernel_log(
                self._settings.kmsg,
                self._sieve(),
                self._put_kernel_fact,
                after=after if same_boot else -1,
            )
            opened = self._log
        if self._timeout is not None:
            self._timeout.cancel()
        self._event_queue.put(Log(opened.sentence, well=opened.reader is not None))
        self._source(facts.SourceName.KERNEL_LOG, opened.state, opened.reason)

    def _sieve(self) -> Sieve:
        return Sieve(
            boot_id=self.boot_id,
            accept_user=self._settings.accept_user_kmsg,
            counts=self.counts,
        )

    def read_log_now(self) -> None:
        """The driver says that it printed something."""
        if self._log is not None and self._log.reader is not None:
            self._log.reader.read_now()

    def check_soon(self) -> None:
        """Look at the bus and ask NVML and the exporter for everything once more."""
        self._machine.look_now()
        self.nvml.request_refresh()
        if self.dcgm is not None:
            self.dcgm.scrape_now()

    def close_log(self) -> None:
        """Stop reading the kernel log; no fact comes from it after this."""
        with self._log_lock:
            self._log_closed = True
            opened = self._log
        if opened is not None and opened.reader is not None:
            opened.reader.close()

    def close(self, nvml_grace_s: float) -> bool:
        """End the rest; False when NVML hangs and its child was left to end by itself."""
        self._machine.close()
        if self._udev is not None:
            self._udev.close()
        if self.dcgm is not None:
            self.dcgm.close()
        return self.nvml.close(nvml_grace_s)

    def _put_kernel_fact(
        self, fact: facts.KernelLineSeen | facts.KernelGap | facts.KernelRead | facts.SourceChanged
    ) -> None:
        if isinstance(fact, facts.SourceChanged):
            self._event_queue.put(fact)
        else:
            self._event_queue.put_when_room(fact, give_up=lambda: self._log_closed)

    def _nvml_said(self, message: Message) -> None:
        if isinstance(message, NvmlStatus):
            # The fact first: the status may end the agent, and the last health status has to hold
            # it.
            self._source(facts.SourceName.NVML, message.state, message.reason)
        self._event_queue.put(message)

    def _machine_seen(self, fact: MachineFact) -> None:
        self._event_queue.put(fact)
        if not isinstance(fact, facts.PciSeen):
            return
        bound = {each.address for each in fact.functions if each.driver == DRIVER}
        if self._bound is not None and bound - self._bound:
            # NVML counts GPUs once per initialisation: reading again would not see these.
            self.nvml.reinitialise()
        self._bound = bound

    def _start_udev(self) -> None:
        if self._settings.udev == "off":
            self._source(facts.SourceName.UDEV, facts.SourceState.ABSENT, "Off")
            return
        monitor = self._make_monitor(self._bus_changed, self._announcements_lost)
        try:
            monitor.start()
        except UdevError as error:
            self._event_queue.put(Log(f"{error}; the PCI bus is checked every 15 s instead"))
            self._source(facts.SourceName.UDEV, facts.SourceState.ABSENT, "NoUdev")
            return
        self._udev = monitor
        self._source(facts.SourceName.UDEV, facts.SourceState.UP, "")

    def _bus_changed(self, arrived: bool) -> None:
        if arrived:
            self._machine.look_now()
            self.nvml.reinitialise()
        else:
            self.check_soon()

    def _announcements_lost(self, error: Exception) -> None:
        self._event_queue.put(Log(f"PCI announcements were lost ({error}): the bus is polled now"))

    def _source(self, source: facts.SourceName, state: facts.SourceState, reason: str) -> None:
        self._event_queue.put(
            facts.SourceChanged(at=time.time(), source=source, state=state, reason=reason)
        )


def _boot_id(path: str) -> str:
    try:
        return boot_id(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        raise CollectorsError(
            f"--boot-id {path} cannot be read ({error}): name a readable file"
        ) from (error)


def _check_log(kmsg: str) -> None:
    """A log that was named must be there; one that is, or may be, and cannot be opened is Down."""
    if kmsg in (kernel_log.OFF, kernel_log.SYSLOG, kernel_log.DEFAULT_PATH):
        return
    try:
        what = "is a folder" if stat.S_ISDIR(Path(kmsg).stat().st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        what = "does not exist"
    except OSError:
        return  # not to be seen by us: opening it says why
    if what:
        raise CollectorsError(f"--kmsg {kmsg} {what}: name a kernel log, or syslog or off")


def _machine(nvml: str) -> Machine:
    if not nvml.startswith(SIMULATED):
        return REAL
    path = nvml.removeprefix(SIMULATED)
    try:
        return simulated(path)
    except ImportError as error:
        raise CollectorsError(
            f"--nvml {nvml} needs the simulator, which is part of a checkout only:"
            " use --nvml real or off, or run from a checkout"
        ) from error
    except OSError as error:
        raise CollectorsError(
            f"--nvml {nvml} cannot be read ({error.strerror}): name a node description"
        ) from error
    except ValueError as error:
        said = " ".join(str(error).split())
        raise CollectorsError(f"--nvml {nvml} is no node description: {said}") from error
