"""The agent's main loop: take facts from the queue, assess them, submit the health status.

`agent.daemon.run` creates it and calls `run`. The loop runs in one thread and only waits for its
queue. Everything slow happens in other threads, so that a hung driver, an API server that does not
answer and a flood of kernel lines do not delay each other.
"""

import time

from agent.daemon.event_queue import EventQueue, Item, Log, Stop
from agent.daemon.judgement import Composer, Judgement
from agent.daemon.log import Logger
from agent.daemon.metrics import Latencies, XidCounts
from agent.daemon.sources import Collectors
from agent.nvml import supervisor
from agent.nvml.messages import Note, NvmlStatus
from agent.publish.publish import Accepted, Known, Publisher, Trouble, Wanted
from rules.judge import health_object, judge, messages
from rules.judge import observation as facts
from rules.judge.facts import holders
from rules.judge.health_object import Difference, Publication
from rules.judge.judge import Change, ChangeKind

LONGEST_WAIT_S = 10.0
"""The loop runs at least this often, to check timers and prove that it is alive."""
PUBLISH_WITHIN_S = 0.05
"""During a flood of facts a health status is submitted this often."""
ALIVE_WITHIN_S = 30.0
"""Three missed runs of the loop. The liveness probe waits another minute before it acts."""
REREAD_SPACING_S = 2.0
"""The least time between extra readings that confirm a new flag."""
SOURCE_OF: dict[type, facts.SourceName] = {
    facts.KernelLineSeen: facts.SourceName.KERNEL_LOG,
    facts.KernelRead: facts.SourceName.KERNEL_LOG,
    facts.Inventory: facts.SourceName.NVML,
    facts.Readings: facts.SourceName.NVML,
    facts.DcgmSeen: facts.SourceName.DCGM,
    facts.PciSeen: facts.SourceName.PCI,
    facts.HostSeen: facts.SourceName.HOST,
    facts.PodResourcesSeen: facts.SourceName.POD_RESOURCES,
}


_STAND_DOWN = {
    ChangeKind.STAND_DOWN: "Releasing the GPUs on request.",
    ChangeKind.STAND_DOWN_EXPIRED: "The GPUs were released for two hours. Reading them again.",
    ChangeKind.STAND_DOWN_ENDED: "The request to release the GPUs has ended. Reading them again.",
}


class JudgingLoop:
    """Consumes the queue and submits health statuses."""

    def __init__(
        self,
        event_queue: EventQueue[Item],
        judgement: Judgement,
        *,
        composer: Composer,
        publisher: Publisher,
        collectors: Collectors,
        log: Logger,
        latencies: Latencies,
        xids: XidCounts,
    ) -> None:
        self._event_queue = event_queue
        self._judgement = judgement
        self._composer = composer
        self._publisher = publisher
        self._collectors = collectors
        self._log = log
        self._latencies = latencies
        self._xids = xids
        self._published: Publication | None = None
        self._serial = 0
        self._lines_at: list[float] = []
        self._stale = True
        self._published_at = time.monotonic()
        self._stops: list[Stop] = []
        self._released = False
        self._holders_wanted = False
        self._reread_at = 0.0
        self._beat = time.monotonic()
        self.heard_at: dict[facts.SourceName, float] = {}
        """Wall time of each collector's last fact, for the metrics."""

    @property
    def alive(self) -> bool:
        """Whether the loop has run recently."""
        return time.monotonic() - self._beat < ALIVE_WITHIN_S

    def stop(self, stop: Stop) -> None:
        """Stop the loop after the current fact; from any thread or a signal handler.

        Facts that are still queued are dropped, because a pod has 30 s to stop. Their kernel lines
        are after the published cursor, so the next agent process reads them.
        """
        self._stops.append(stop)
        self._event_queue.put(stop)

    def run(self) -> Stop:
        """Assess facts until a stop is requested; submit the last status and return the stop."""
        while not self._stops:
            self._beat = time.monotonic()
            item = self._event_queue.get(self._wait_s())
            if item is None:
                self._observe(facts.Tick(at=time.time()))
                self._stale = True
            else:
                self._take(item)
            late = time.monotonic() - self._published_at > PUBLISH_WITHIN_S
            if self._stale and (late or self._event_queue.queue.empty()):
                self.publish()
        if self._stale:
            self.publish()
        first = self._stops[0]
        self._stops.clear()
        return first

    def publish(self) -> None:
        """Submit the current health status if it differs from the last one."""
        self._stale = False
        self._published_at = time.monotonic()
        if not self._judgement.knows_past:
            return
        publication = self._composer.compose(self._judgement.state, time.time())
        difference = health_object.differs(self._published, publication)
        if difference is not Difference.NONE:
            self._serial, self._published = self._serial + 1, publication
            if difference is Difference.NOW:
                for line_at in self._lines_at:
                    self._latencies.changed_health(self._serial, line_at)
            self._publisher.submit(Wanted(serial=self._serial, publication=publication))
        self._lines_at.clear()

    def _wait_s(self) -> float:
        if self._stale:
            return 0.0
        deadline = judge.next_deadline(self._judgement.state)
        if deadline is None:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, deadline - time.time()))

    def _take(self, item: Item) -> None:
        match item:
            case Stop():
                self._stops.append(item)
            case Known():
                self._judgement.remember(item.status)
                state = self._judgement.state
                self._collectors.open_log(boot_id=state.cursor_boot, after=state.cursor_seq)
                self._stale = True
            case Accepted():
                self._latencies.accepted(item.wanted.serial, item.at)
            case Trouble():
                self._log_trouble(item)
            case Log():
                (self._log.info if item.info else self._log.warning)(item.message)
            case Note(text):
                self._log.info(text, source="nvml")
            case NvmlStatus():
                self._log.info(item.message, source="nvml", state=str(item.state))
                if item.restart_agent:
                    self._stops.append(Stop(1, item.message))
            case facts.GpuEvent(kind=facts.EventKind.XID | facts.EventKind.OPERATIONAL):
                self._collectors.read_log_now()
                self._observe(item)
            case facts.KernelLineSeen():
                self._take_line(item)
            case facts.KernelGap():
                self._event_queue.task_done()
                self._log.warning(
                    "Kernel log records were overwritten before they were read.", lost=item.lost
                )
                self._observe(item)
            case facts.KernelRead():
                self._event_queue.task_done()
                self._observe(item)
            case _:
                self._observe(item)

    def _take_line(self, fact: facts.KernelLineSeen) -> None:
        self._event_queue.task_done()
        line = fact.line
        if line.xid is not None:
            self._xids.add("xid", line.pci or "", line.xid)
            if line.xid in supervisor.GSP_XIDS:
                self._collectors.nvml.gsp_timeout_seen()
        elif line.sxid is not None:
            self._xids.add("sxid", line.pci or "", line.sxid)
        if not fact.lookback:
            self._latencies.observed.observe(max(0.0, time.time() - fact.at))
        self._observe(fact)
        if not fact.lookback:
            self._latencies.decided.observe(max(0.0, time.time() - fact.at))
            if len(self._lines_at) < 256:
                self._lines_at.append(fact.at)

    def _observe(self, observation: facts.Observation) -> None:
        source = SOURCE_OF.get(type(observation))
        if source is not None:
            self.heard_at[source] = time.time()
        changes = self._judgement.observe(observation)
        if not isinstance(observation, facts.KernelRead):
            self._stale = True
        for change in changes:
            self._log_change(change)
        for event in messages.events_for(self._judgement.state, changes):
            self._publisher.announce(event)
        now = time.monotonic()
        if judge.wants_reread(self._judgement.state) and now >= self._reread_at:
            self._reread_at = now + REREAD_SPACING_S
            self._collectors.nvml.request_refresh()
        self._stand_down()
        wanted = holders.wanted(self._judgement.state)
        if wanted != self._holders_wanted:
            self._holders_wanted = wanted
            self._collectors.want_holders(wanted)

    def _stand_down(self) -> None:
        """Release the driver or use it again, as the state requires."""
        state = self._judgement.state
        if state.standing_down == self._released:
            return
        self._released = state.standing_down
        if state.stand_down is not None and self._released:
            self._collectors.nvml.release(state.stand_down.reason)
        else:
            self._collectors.nvml.resume()

    def _log_change(self, change: Change) -> None:
        incident = change.incident
        if incident is None:
            if change.source is None:
                self._log.info(_STAND_DOWN[change.kind], reason=change.reason)
            else:
                self._log.info(
                    f"Data source {change.source} is {change.state}.", reason=change.reason
                )
            return
        more_severe = change.kind in (ChangeKind.OPENED, ChangeKind.RAISED)
        (self._log.warning if more_severe else self._log.info)(
            f"Incident {change.kind}.",
            reason=change.reason,
            severity=str(incident.row.severity),
            action=str(incident.row.level),  # "level" is the log's own field
            pci=" ".join(incident.pci),
            incident=incident.id,
        )

    def _log_trouble(self, trouble: Trouble) -> None:
        if trouble.sentence:
            self._log.warning(trouble.sentence)
        else:
            self._log.info("The API server accepts the health status again.")
