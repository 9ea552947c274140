"""The state of one node's drain in this process."""

import asyncio
from dataclasses import replace

from remediator.controller.evictions import Listed
from remediator.controller.pod_watch import NodePods, PodWatch
from remediator.kube import gateway
from remediator.kube.clock import Clock
from rules.api import writes as d
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.drain.drain_plan import DrainInput, DrainPlan
from rules.drain.memory import DrainMemory
from rules.session.repair import readiness

# The pods of a watched node are listed this often, in case the watch is wrong.
_CHECK_WATCH_S = 50.0
# The watch may have been certain so long before a node is declared empty. A repair may start from
# an older list (`readiness.LISTS_FRESH_S`).
_CERTAIN_S = 2.0
# A pod is read before its eviction if the watch had no event for longer.
_WATCH_SILENT_S = 20.0


class NodeDrain:
    """The drain of one node in this process: its pods, its plan and its answers."""

    def __init__(self, session: QuarantineView, steered: d.Evicting, began: float) -> None:
        self.session_uid = session.metadata.uid
        self.steered = steered
        self.dry_run = steered is d.Evicting.PROBE
        self.memory = DrainMemory.resume(None if self.dry_run else session.status.drain)
        self.plan: DrainPlan | None = None
        self.wanted: tuple[d.EvictPod, ...] = ()
        self.unannounced = False
        """Whether notices wait until the stored status lists the pods."""
        self.failures = 0
        self.input: DrainInput | None = None
        """What the plan was made from."""
        self.planned_at = float("-inf")
        """CLOCK_BOOTTIME when that plan was begun."""
        self.listed_at = began
        """CLOCK_BOOTTIME when the node's pods were last certain, or of the start of the drain."""
        self.checked_at = began
        """CLOCK_BOOTTIME of the last uncached list, or of the start of the drain."""
        self.read_at = float("-inf")
        """CLOCK_BOOTTIME of the last list of any kind."""
        self.answered_at: dict[str, float] = {}
        """CLOCK_BOOTTIME of the last answer about each pod, by UID."""
        self._prepared_for: float | None = None
        """The `clear_since` of the memory for which the watch is made certain."""
        self.changed = asyncio.Event()
        self.watch: NodePods | None = None
        """Only of a drain that evicts."""
        self.task: asyncio.Task[None] | None = None

    def listed(self, uid: str, clock: Clock) -> Listed | None:
        """The node's pods by the watch or the last list, if they are newer than the last answer
        about this pod and the watch does not contradict them; else None.
        """
        answered_at = self.answered_at.get(uid, float("-inf"))
        if self.watch is not None and (pods := self.watch.pods(_WATCH_SILENT_S)) is not None:
            # The event of an eviction may come after its answer.
            now = clock.elapsed()
            return Listed(pods, now) if now - answered_at > gateway.FRESH_NODE_S else None
        if self.input is None or self.read_at <= answered_at:
            return None
        return Listed(self.input.pods, self.read_at)

    def is_known_idle(self) -> bool:
        """Whether the plan has the pods of the drained node, and no pod arrived since."""
        if self.plan is None or self.plan.listed_at is None:
            return False
        if self.watch is None:
            return True
        return self.input is not None and self.watch.shows(self.input.pods)

    def is_settled(self, elapsed: float) -> bool:
        """Whether the node is drained, its watch shows no change, and the list that a repair may
        start from is recent. `elapsed` is CLOCK_BOOTTIME.
        """
        drained = self.plan is not None and self.plan.drained and self.watch is not None
        recent = elapsed - self.listed_at < readiness.LISTS_FRESH_S / 2
        return drained and recent and self.is_known_idle()

    def must_be_certain(self, settle_s: float, now: float, elapsed: float) -> bool:
        """Whether the pods must be certain: to declare the node empty, and from time to time in
        case the watch or a cached list is wrong. `elapsed` is CLOCK_BOOTTIME.
        """
        if self.watch is not None and self.watch.contradicted:
            return True
        clear_s = self._clear_s(now)
        return (clear_s is not None and clear_s >= settle_s) or self.must_check(elapsed)

    def must_check(self, elapsed: float) -> bool:
        """Whether the watch must be compared with an uncached list now (CLOCK_BOOTTIME)."""
        return elapsed - self.checked_at >= _CHECK_WATCH_S

    def _clear_s(self, now: float) -> float | None:
        """Seconds since the last pod to evict left; None before."""
        since = None if self.memory.detaching else self.memory.clear_since
        return None if since is None else max(0.0, now - since)

    def prepares_in_s(self, settle_s: float, now: float) -> float | None:
        """Seconds until the watch has to be made certain, so that the node can be declared empty;
        None if there are pods to evict, or if that was returned before.
        """
        clear_s, since = self._clear_s(now), self.memory.clear_since
        if clear_s is None or clear_s >= settle_s or since == self._prepared_for:
            return None
        self._prepared_for = since
        return max(0.0, settle_s - clear_s - _CERTAIN_S)

    async def seen(
        self, watch: PodWatch, elapsed: float, *, certain: bool
    ) -> tuple[tuple[PodView, ...] | None, bool]:
        """Return the pods by the watch, None if they must be listed, and whether they are listed
        now. If they must be `certain`, the watch has to show what an uncached list would show.
        `elapsed` is CLOCK_BOOTTIME. Raises ApiError.
        """
        watched = self.watched()
        if self.watch is None or (watched is None and certain):
            return None, True
        if watched is None:
            return await watch.read(self.watch), True
        if not certain:
            return watched, False
        if self.must_check(elapsed) or not await watch.is_certain(_CERTAIN_S):
            return None, True
        watched = self.watched()
        return watched, watched is None

    def may_ask(self, eviction: d.EvictPod) -> bool:
        """Whether the pod's last answer allows another eviction, or a first dry run."""
        outcome = self.memory.outcomes.get(eviction.uid)
        return outcome is None or not (outcome.done or self.dry_run)

    def book(self, memory: DrainMemory) -> None:
        """Store the memory after an answer."""
        self.memory = memory
        if self.plan is not None:
            self.plan = replace(self.plan, memory=memory)

    def watched(self) -> tuple[PodView, ...] | None:
        """The node's pods by its watch; None if they must be listed."""
        return self.watch.pods() if self.watch is not None else None

    def planned(self, given: DrainInput, plan: DrainPlan, began: float, *, listed: bool) -> None:
        """Take over a new plan. `began` is CLOCK_BOOTTIME before its pods were read."""
        if listed:
            self.read_at = began
        if given.certain:
            self.listed_at = began
            if listed:
                self.checked_at = began
            if listed and self.watch is not None:
                self.watch.compare(given.pods)
        self.plan, self.memory, self.wanted = plan, plan.memory, plan.evict
        self.input, self.planned_at = given, began
