"""The collectors of one agent: create them from the settings, start and stop them in order.

Owned by `agent.daemon.run`. Each collector has its own thread and puts facts into the queue. A
data source that this machine lacks becomes Absent.
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
from agent.sources.kernel_record import RecordCounts, RecordFilter
from agent.sources.machine import (
    REAL,
    Machine,
    MachineCollector,
    MachineFact,
    UdevError,
    UdevMonitor,
    simulated,
)
from agent.sources.pod_resources import PodResourcesPoller
from rules.judge import observation as facts

SIMULATED = "sim:"
DRIVER = "nvidia"
"""The name of NVIDIA's driver in sysfs."""


class CollectorsError(SettingsError):
    """A collector cannot be created from the settings; the text has the remedy."""


class Collectors:
    """The collectors of kernel log, NVML, machine, udev, dcgm-exporter and PodResources.

    `udev` creates the monitor of PCI changes from its callbacks. Raises CollectorsError.
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
        self.nvml = NvmlLink(
            settings.nvml, self._on_nvml_message, poll_s=settings.poll_s, goe=settings.goe
        )
        self._bound: set[str] | None = None
        self._machine = MachineCollector(self._machine_seen, machine, every_s=settings.poll_s)
        self._make_monitor = udev
        self._udev: UdevMonitor | None = None
        self.dcgm: DcgmScraper | None = None
        if settings.dcgm != "off":
            self.dcgm = DcgmScraper(
                settings.dcgm, event_queue.put, user_agent=USER_AGENT, every_s=settings.poll_s
            )
        self._pod_resources: PodResourcesPoller | None = None
        if settings.pod_resources != "off":
            self._pod_resources = PodResourcesPoller(settings.pod_resources, event_queue.put)
        self._log: OpenedLog | None = None
        self._log_lock = threading.Lock()
        self._log_closed = False
        self._timeout: threading.Timer | None = None

    def start(self, *, past_within_s: float) -> None:
        """Start all collectors; the kernel log on `open_log`, or after `past_within_s`."""
        self._machine.start()
        self.nvml.start()
        self._start_udev()
        if self.dcgm is not None:
            self.dcgm.start()
        else:
            self._source(facts.SourceName.DCGM, facts.SourceState.ABSENT, "Off")
        if self._pod_resources is not None:
            self._pod_resources.start()
        else:
            self._source(facts.SourceName.POD_RESOURCES, facts.SourceState.ABSENT, "Off")
        self._timeout = threading.Timer(past_within_s, self.open_log)
        self._timeout.daemon = True
        self._timeout.start()

    def open_log(self, boot_id: str = "", after: int = -1) -> None:
        """Open the kernel log once, after the last record that an earlier process assessed."""
        with self._log_lock:
            if self._log is not None or self._log_closed:
                return
            same_boot = boot_id == self.boot_id
            self._log = kernel_log.open_kernel_log(
                self._settings.kmsg,
                self._record_filter(),
                self._put_kernel_fact,
                after=after if same_boot else -1,
            )
            opened = self._log
        if self._timeout is not None:
            self._timeout.cancel()
        self._event_queue.put(Log(opened.sentence, info=opened.reader is not None))
        self._source(facts.SourceName.KERNEL_LOG, opened.state, opened.reason)

    def _record_filter(self) -> RecordFilter:
        return RecordFilter(
            boot_id=self.boot_id,
            accept_user=self._settings.accept_user_kmsg,
            counts=self.counts,
        )

    def read_log_now(self) -> None:
        """Read the kernel log at once: the driver reported a new line."""
        if self._log is not None and self._log.reader is not None:
            self._log.reader.read_now()

    def poll_now(self) -> None:
        """Read the PCI bus, NVML and the exporter once more."""
        self._machine.poll_now()
        self.nvml.request_refresh()
        if self.dcgm is not None:
            self.dcgm.scrape_now()

    def want_holders(self, wanted: bool) -> None:
        """Read which pods hold GPUs every 10 s, with the MIG devices of now; or stop that."""
        if self._pod_resources is not None:
            self._pod_resources.want(wanted)
            if wanted:
                self.nvml.request_refresh()

    def close_log(self) -> None:
        """Stop reading the kernel log; it adds no facts after this."""
        with self._log_lock:
            self._log_closed = True
            opened = self._log
        if opened is not None and opened.reader is not None:
            opened.reader.close()

    def close(self, nvml_grace_s: float) -> bool:
        """Stop the other collectors; return False if the NVML child hangs and was left running."""
        self._machine.close()
        if self._udev is not None:
            self._udev.close()
        if self.dcgm is not None:
            self.dcgm.close()
        if self._pod_resources is not None:
            self._pod_resources.close()
        return self.nvml.close(nvml_grace_s)

    def _put_kernel_fact(
        self, fact: facts.KernelLineSeen | facts.KernelGap | facts.KernelRead | facts.SourceChanged
    ) -> None:
        if isinstance(fact, facts.SourceChanged):
            self._event_queue.put(fact)
        else:
            self._event_queue.put_when_room(fact, give_up=lambda: self._log_closed)

    def _on_nvml_message(self, message: Message) -> None:
        if isinstance(message, NvmlStatus):
            # The fact first: the status may stop the agent after its last health status.
            self._source(facts.SourceName.NVML, message.state, message.reason)
        self._event_queue.put(message)

    def _machine_seen(self, fact: MachineFact) -> None:
        self._event_queue.put(fact)
        if not isinstance(fact, facts.PciSeen):
            return
        bound = {each.address for each in fact.functions if each.driver == DRIVER}
        if self._bound is not None and bound - self._bound:
            # NVML counts GPUs once per initialisation: a refresh would not find these.
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
            self._event_queue.put(Log(f"{error} Polling the PCI bus every 15 s instead."))
            self._source(facts.SourceName.UDEV, facts.SourceState.ABSENT, "NoUdev")
            return
        self._udev = monitor
        self._source(facts.SourceName.UDEV, facts.SourceState.UP, "")

    def _bus_changed(self, arrived: bool) -> None:
        if arrived:
            self._machine.poll_now()
            self.nvml.reinitialise()
        else:
            self.poll_now()

    def _announcements_lost(self, error: Exception) -> None:
        self._event_queue.put(Log(f"udev events were lost ({error}). Polling the PCI bus now."))

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
        ) from error


def _check_log(kmsg: str) -> None:
    """Raise CollectorsError if the log does not exist; one that cannot be opened becomes Down."""
    if kmsg in (kernel_log.OFF, kernel_log.SYSLOG, kernel_log.DEFAULT_PATH):
        return
    try:
        problem = "is a directory" if stat.S_ISDIR(Path(kmsg).stat().st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        problem = "does not exist"
    except OSError:
        return  # no access: opening it reports the cause
    if problem:
        raise CollectorsError(f"--kmsg {kmsg} {problem}: name a kernel log, or syslog or off")


def _machine(nvml: str) -> Machine:
    if not nvml.startswith(SIMULATED):
        return REAL
    path = nvml.removeprefix(SIMULATED)
    try:
        return simulated(path)
    except ImportError as error:
        raise CollectorsError(
            f"--nvml {nvml} needs the simulator, which only a checkout has:"
            " use --nvml real or off, or run from a checkout"
        ) from error
    except OSError as error:
        raise CollectorsError(
            f"--nvml {nvml} cannot be read ({error.strerror}): name a node description"
        ) from error
    except ValueError as error:
        why = " ".join(str(error).split())
        raise CollectorsError(f"--nvml {nvml} is not a node description: {why}") from error
