"""One eviction: read the pod again before it; wait for its PDB and notify its owner afterwards.

`drains` makes a `PodRecheck` for every eviction and forced deletion. The gateway calls it when the
write is about to be sent, which may be minutes after the plan. The watch of the node's pods, or a
fresh list, replaces the read.
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
    """All pods of a node, and since when they may be outdated (CLOCK_BOOTTIME)."""

    pods: Sequence[PodView]
    asked_at: float


class PodRecheck:
    """The pod as of the last read, or why it must not be evicted."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        write: EvictPod | DeletePod,
        kept: Callable[[PodView], str],
        listed: Callable[[], Listed | None] = lambda: None,
    ) -> None:
        """`kept` returns why the plan no longer holds for the pod; "" while it does. `listed`
        returns the node's pods if they are known, which replaces a read while they are fresh.
        """
        self.pod: PodView | None = None
        self._known: EvictionOutcome | None = None
        self._api = api
        self._clock = clock
        self._write = write
        self._kept = kept
        self._listed = listed
        self._read_at = float("-inf")

    async def check(self, *, again: bool = False) -> str:
        """Read the pod if the last read is old; return why it must not be evicted. ApiError."""
        if again or (self.too_old() and not self._found_listed()):
            self._known = await self._read()
            self._read_at = self._clock.elapsed()
        return self._known.message if self._known is not None else self.why_not()

    def too_old(self) -> str:
        """Why the pod must be read again before its eviction; "" while the read is fresh."""
        age_s = self._clock.elapsed() - self._read_at
        return f"the pod was read {age_s:.1f} s ago" if age_s > gateway.FRESH_NODE_S else ""

    def known(self) -> EvictionOutcome | None:
        """The outcome known from the read alone: the pod is gone, terminating or another one."""
        return self._known

    async def confirmed(self, outcome: EvictionOutcome) -> EvictionOutcome:
        """Verify an answer that reports the pod as gone. If the pod still exists, the eviction was
        refused. ApiError.
        """
        found = await self._read()
        return found or replace(outcome, kind=EvictionKind.REFUSED)

    def why_not(self) -> str:
        """Why the pod must not be evicted now, from the last read; awaits nothing."""
        return self._kept(self.pod) if self.pod is not None else "the pod was not read"

    def _found_listed(self) -> bool:
        """Take the pod from a fresh list, if the list has it."""
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
            if error.answer.is_not_found(write.name):
                return EvictionOutcome(kind=EvictionKind.POD_GONE, message="it is gone")
            raise
        return self._take(pod)

    def _take(self, pod: PodView) -> EvictionOutcome | None:
        write, self.pod = self._write, pod
        if pod.uid != write.uid or pod.spec.node_name != write.node:
            return EvictionOutcome(kind=EvictionKind.OTHER_POD, message="another pod by that name")
        if pod.terminating:
            # Already deleted by another client: a second request could only shorten its grace.
            return EvictionOutcome(kind=EvictionKind.LEAVING, message="it is terminating")
        return None


# Do not wait longer than this for the controller: the PDB still limits evictions.
_LONGEST_S = 0.1


class Counting:
    """Delay the next eviction of a PDB until the disruption controller counted the last one.

    The API server notes the pod in the status of the PDB, and the controller removes it within
    milliseconds when it counts. An eviction that conflicts with that write waits half a second in
    the API server, and all other evictions of that PDB wait with it.
    """

    def __init__(
        self, pdbs: Callable[[], Mapping[str, PdbView]], longest_s: float = _LONGEST_S
    ) -> None:
        """`pdbs` returns the PDBs as their watch shows them now."""
        self._pdbs = pdbs
        self._longest_s = longest_s
        self._waiting: dict[str, asyncio.Event] = {}

    def version(self, key: str) -> str:
        """The resource version of the PDB; "" if it is unknown."""
        pdb = self._pdbs().get(key)
        return pdb.metadata.resource_version if pdb is not None else ""

    def changed(self, key: str) -> None:
        """Wake the wait for this PDB."""
        if (event := self._waiting.get(key)) is not None:
            event.set()

    async def counted(self, eviction: EvictPod, asked_at: str) -> None:
        """Wait until the controller has counted the pod. `asked_at` is the version of the PDB when
        the eviction was sent.
        """
        event = self._waiting[eviction.pdb] = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest_s):
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


class OwnerEvents(EdgePart):
    """Sends Events to pod owners about accepted evictions and forced deletions."""

    def report(self, gone: EvictPod | DeletePod) -> None:
        """Send the Event of an accepted write, unless it was a dry run or its session is gone."""
        if isinstance(gone, EvictPod) and gone.dry_run:
            return
        with self._isolation.guard("owners", f"pod {gone.namespace}/{gone.name}"):
            session = self._world.caches.quarantines.items.get(gone.session)
            if session is None:
                return
            causes = causes_in_effect(session, self._world.snapshot())
            health = self._world.healths.get(gone.node)
            status = health.status if health is not None and not health.doubt else None
            event = blockers.owner_event(gone, session.name, causes, status, self._clock.now())
            self._events.send(event)


def outcome_of(
    answer: Answer, pod: PodView, pdbs: tuple[PdbView, ...], now: float
) -> EvictionOutcome:
    """Classify the answer of the API server to one eviction."""
    if answer.code == 0:
        return no_answer(answer.failure)
    wait = answer.retry_after_s
    headers = {"Retry-After": str(round(wait))} if wait else {}
    return classify(answer.code, headers, answer.body, pod, pdbs, now)
