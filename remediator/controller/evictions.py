"""One eviction: the pod read once more before it, its budget and its owner afterwards.

`drains` makes a `PodLook` for every eviction and every forced deletion and hands it to the
gateway, which asks it when the write's turn has come: at a low rate that is minutes after the
plan. The last list of the node serves as the read while it is fresh.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from remediator.kube import gateway
from remediator.kube.answer import Answer, ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.world import EdgePart
from rules.api import object_name
from rules.api.pods import PodView
from rules.api.workloads import PdbView
from rules.api.writes import DeletePod, EvictPod
from rules.drain import blockers
from rules.drain.eviction import EvictionKind, EvictionOutcome, classify, no_answer
from rules.session.causes import causes_in_effect


@dataclass(frozen=True, slots=True)
class Listed:
    """All pods of a node as one list had them, and when it was asked for (CLOCK_BOOTTIME)."""

    pods: Sequence[PodView]
    asked_at: float


class PodLook:
    """The pod as of the last read, or why there is nothing to ask."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        write: EvictPod | DeletePod,
        kept: Callable[[PodView], str],
        listed: Callable[[], Listed | None] = lambda: None,
    ) -> None:
        """`kept` says why the plan does not hold for the pod any more; empty while it does.
        `listed` is the last list of the node's pods: no older, it serves as well as a read.
        """
        self.pod: PodView | None = None
        self._known: EvictionOutcome | None = None
        self._api = api
        self._clock = clock
        self._write = write
        self._kept = kept
        self._listed = listed
        self._read_at = float("-inf")

    async def look(self, *, again: bool = False) -> str:
        """Read the pod unless that was a moment ago; why it is not to be asked. ApiError."""
        if again or (self.too_old() and not self._found_listed()):
            self._known = await self._read()
            self._read_at = self._clock.elapsed()
        return self._known.message if self._known is not None else self.why_not()

    def too_old(self) -> str:
        """Why the pod has to be read again before it is asked to go; "" while it is fresh."""
        age_s = self._clock.elapsed() - self._read_at
        return f"the pod was read {age_s:.1f} s ago" if age_s > gateway.FRESH_NODE_S else ""

    def known(self) -> EvictionOutcome | None:
        """What is known without asking: the pod is gone, leaving, or another one."""
        return self._known

    async def confirmed(self, outcome: EvictionOutcome) -> EvictionOutcome:
        """What an answer means that says the pod is gone: a read decides, and where the pod is
        still there, the eviction was refused. ApiError.
        """
        found = await self._read()
        return found or replace(outcome, kind=EvictionKind.REFUSED)

    def why_not(self) -> str:
        """Why the pod is not to be asked any more, from what was read; nothing is awaited."""
        return self._kept(self.pod) if self.pod is not None else "the pod was not read"

    def _found_listed(self) -> bool:
        """Take the pod from a list that was asked for a moment ago, if it is there."""
        listed, write = self._listed(), self._write
        if listed is None or self._clock.elapsed() - listed.asked_at > gateway.FRESH_NODE_S:
            return False
        pod = next((pod for pod in listed.pods if pod.uid == write.uid), None)
        if pod is None:
            return False
        self._known, self._read_at = self._take(pod), listed.asked_at
        return True

    async def _read(self) -> EvictionOutcome | None:
        write = self._write
        path = object_name.api_path("/api/v1/namespaces", write.namespace, "pods", write.name)
        try:
            pod = await self._api.get(path, PodView)
        except ApiError as error:
            if error.answer.says_gone(write.name):
                return EvictionOutcome(kind=EvictionKind.POD_GONE, message="it is gone")
            raise
        return self._take(pod)

    def _take(self, pod: PodView) -> EvictionOutcome | None:
        write, self.pod = self._write, pod
        if pod.uid != write.uid or pod.spec.node_name != write.node:
            return EvictionOutcome(kind=EvictionKind.OTHER_POD, message="another pod by that name")
        if pod.terminating:
            # Somebody else was faster; asking again could only shorten its grace.
            return EvictionOutcome(kind=EvictionKind.LEAVING, message="it is terminating")
        return None


# A controller that takes longer than this is not waited for: the budget itself says who may go.
_LONGEST_S = 0.1


class Counting:
    """After an eviction its budget is asked again once the disruption controller counted it.

    The API server notes the pod in the budget's status, and the controller removes it within
    milliseconds when it counts. An eviction that meets that write is kept by the API server for
    half a second before it tries again, and with it everybody who waits for the same budget.
    """

    def __init__(self, pdbs: Callable[[], Mapping[str, PdbView]]) -> None:
        """`pdbs`: the budgets as their watch shows them now."""
        self._pdbs = pdbs
        self._waiting: dict[str, asyncio.Event] = {}

    def version(self, key: str) -> str:
        """Of the budget as it is known; "" where it is not."""
        pdb = self._pdbs().get(key)
        return pdb.metadata.resource_version if pdb is not None else ""

    def changed(self, key: str) -> None:
        """The budget's watch brought something."""
        if (event := self._waiting.get(key)) is not None:
            event.set()

    async def counted(self, eviction: EvictPod, asked_at: str) -> None:
        """Wait until the controller has counted the pod; `asked_at` is the budget's version when
        the eviction was sent.
        """
        event = self._waiting[eviction.pdb] = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_S):
                while not self._is_counted(eviction, asked_at):
                    await event.wait()
                    event.clear()
        self._waiting.pop(eviction.pdb, None)

    def _is_counted(self, eviction: EvictPod, asked_at: str) -> bool:
        pdb = self._pdbs().get(eviction.pdb)
        if pdb is None:
            return True
        new = pdb.metadata.resource_version != asked_at
        return new and eviction.name not in pdb.status.disrupted_pods


class OwnersReported(EdgePart):
    """Tells of evictions that were accepted and of deletions by force: never waited for."""

    def tell(self, gone: EvictPod | DeletePod) -> None:
        """`gone` was accepted; a dry run took nobody away, and a session that is gone says
        nothing.
        """
        if isinstance(gone, EvictPod) and gone.dry_run:
            return
        with self._isolation.guard("owners", f"pod {gone.namespace}/{gone.name}"):
            session = self._world.caches.quarantines.items.get(gone.session)
            if session is None:
                return
            causes = causes_in_effect(session, self._world.snapshot())
            health = self._world.healths.get(gone.node)
            verdict = health.status if health is not None and not health.doubt else None
            event = blockers.owner_reported(gone, session.name, causes, verdict, self._clock.now())
            self._telling.tell(event)


def outcome_of(
    answer: Answer, pod: PodView, pdbs: tuple[PdbView, ...], now: float
) -> EvictionOutcome:
    """What the API server's answer to one eviction means for the pod."""
    if answer.code == 0:
        return no_answer(answer.failure)
    wait = answer.retry_after_s
    headers = {"Retry-After": str(round(wait))} if wait else {}
    return classify(answer.code, headers, answer.body, pod, pdbs, now)
