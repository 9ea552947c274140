"""One pod that is about to be asked to go: read fresh, and looked at once more before the request.

The last list of its node serves as the read while it is fresh. `drains` makes one for every
eviction and every forced deletion and hands it to the gateway, which looks through it when the
write's turn has come: at a low rate that is minutes after the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.kube.gateway import FRESH_NODE_S
from rules.api.object_name import api_path
from rules.api.pods import PodView
from rules.api.writes import DeletePod, EvictPod
from rules.drain.eviction import EvictionKind, EvictionOutcome


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

    async def look(self, *, afresh: bool = False) -> str:
        """Read the pod unless that was a moment ago; why it is not to be asked. ApiError."""
        if afresh or (self.too_old() and not self._found_listed()):
            self._known = await self._read()
            self._read_at = self._clock.elapsed()
        return self._known.message if self._known is not None else self.why_not()

    def too_old(self) -> str:
        """Why the pod has to be read again before it is asked to go; "" while it is fresh."""
        age_s = self._clock.elapsed() - self._read_at
        return f"the pod was read {age_s:.1f} s ago" if age_s > FRESH_NODE_S else ""

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
        if listed is None or self._clock.elapsed() - listed.asked_at > FRESH_NODE_S:
            return False
        pod = next((pod for pod in listed.pods if pod.uid == write.uid), None)
        if pod is None:
            return False
        self._known, self._read_at = self._take(pod), listed.asked_at
        return True

    async def _read(self) -> EvictionOutcome | None:
        write = self._write
        path = api_path("/api/v1/namespaces", write.namespace, "pods", write.name)
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
