"""A watch of pods that is certain misses no pod, whatever API servers and connections do.

Two API servers show the pods of one etcd from caches that lag. Watches hang, break, expire and
send events that cannot be read. Lists are old, slow or refused. Meanwhile pods come and go, and
callers ask every 0.1 s whether the watch is certain. If it is, its pods are compared with etcd.
"""

import asyncio
from contextlib import suppress
from itertools import count
from math import inf
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from remediator.controller.pod_watch import PodWatch
from remediator.kube.answer import ApiError
from remediator.kube.isolation import Isolation
from tests.support.remediator.edge_world import some_edge
from tests.support.remediator.lagging_servers import Cluster
from tests.support.remediator.virtual_loop import LoopClock, VirtualLoop
from tests.support.scenario.examples import examples

FOLLOWED = ("n0", "n1")
ELSEWHERE = "n2"
CHURNED = 24
"""Pods that come and go. One changes every 0.1 s, so each lives longer than the 2 s of `ASKS`."""
EPSILON_S = 1e-6
ASKS = ((0.1, 0.0), (0.13, 0.3), (0.37, 2.0))
"""Every so many seconds a caller asks whether the watch was certain so many seconds ago."""


class Drain:
    """A watch in that cluster, its callers, and the answers that were wrong."""

    def __init__(self, poll_s: float) -> None:
        self.loop = VirtualLoop()
        self.cluster = Cluster(self.loop)
        clock = LoopClock(self.loop, 1.8e9)
        self.wrong: list[str] = []
        self.proved_at = -inf
        """When a certain watch last showed all nodes."""
        self.changing: tuple[str, ...] = (*FOLLOWED, ELSEWHERE)
        self.asks: list[asyncio.Task[None]] = []
        isolation = Isolation(clock, lambda part: self.wrong.append(f"unexpected error: {part}"))
        edge = some_edge(clock, api=self.cluster, isolation=isolation)
        self.watch = PodWatch(edge, lambda _: None)
        self.pods = {node: self.watch.follow(node) for node in FOLLOWED}
        for part in (
            self.watch.run(),
            self._churn(),
            *(self._poll(node, poll_s * turn) for turn, node in enumerate(FOLLOWED, 1)),
            *(self._keep_asking(*every) for every in ASKS),
        ):
            self.loop.create_task(part)

    def wait(self, seconds: float) -> None:
        self.loop.work_until(self.loop.time() + seconds)
        assert not self.loop.surprises, self.loop.surprises
        assert not self.wrong, self.wrong[0]

    def end(self) -> None:
        self.loop.cancel_all()
        self.loop.close()

    async def _churn(self) -> None:
        for turn in count():
            await asyncio.sleep(0.1)
            if self.changing:
                node = self.changing[turn % len(self.changing)]
                self.cluster.touch(f"c{turn % CHURNED}", node, scheduled=turn % 5 > 0)

    async def _poll(self, node: str, poll_s: float) -> None:
        while True:
            if self.pods[node].pods() is None:
                await self._read(node)
            await asyncio.sleep(poll_s)

    async def _read(self, node: str) -> None:
        with suppress(ApiError):
            await self.watch.read(self.pods[node])

    async def _keep_asking(self, every_s: float, within_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.asks = [ask for ask in self.asks if not ask.done()]
            self.asks.append(asyncio.create_task(self._ask(within_s)))

    async def _ask(self, within_s: float) -> None:
        asked_at, task = self.loop.time(), asyncio.current_task()
        try:
            with suppress(ApiError):
                if await self.watch.is_certain(within_s):
                    self._compare(asked_at, within_s)
        except asyncio.CancelledError:
            if task is not None and not task.cancelling():
                self.wrong.append("cancelled with another caller")
            raise

    def _compare(self, asked_at: float, within_s: float) -> None:
        """Compare the certain watch with etcd."""
        due, now = asked_at - within_s - EPSILON_S, self.loop.time()
        shown = {node: pods.pods() for node, pods in self.pods.items()}
        if None not in shown.values():
            self.proved_at = now
        for node, views in shown.items():
            if views is None:
                continue
            uids = {view.uid for view in views}
            about = f"on {node} at {now:.2f}, asked at {asked_at:.2f} within {within_s}"
            for pod in self.cluster.all:
                bound = pod.node == node and pod.bound_at <= due and pod.gone_at == inf
                if bound and pod.uid not in uids:
                    self.wrong.append(f"missing {about}: {pod}")
                elif pod.gone_at <= due and pod.uid in uids:
                    self.wrong.append(f"deleted, but shown {about}: {pod}")

    # ------------------------------------------------------------------ what happens

    def change(self, nodes: tuple[str, ...]) -> None:
        self.changing = nodes

    def read(self, node: str) -> None:
        self.loop.create_task(self._read(node))

    def cancel(self) -> None:
        if self.asks:
            self.asks[0].cancel()

    def follow_again(self, node: str) -> None:
        self.watch.leave(self.pods[node])
        self.pods[node] = self.watch.follow(node)


def becomes_certain(drain: Drain, limit_s: float) -> bool:
    """Whether the watch shows all nodes for certain within that time."""
    began = drain.loop.time()
    while drain.proved_at <= began and drain.loop.time() < began + limit_s:
        drain.wait(0.5)
    return drain.proved_at > began


def act(name: str, *given: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *given)


followed, server = st.sampled_from(FOLLOWED), st.integers(0, 1)
lag = st.sampled_from([0.0, 0.3, 1.0, 5.0])
latency = st.sampled_from([0.0, 0.1, 0.4, 1.5])
fates = st.sampled_from(["hangs", "ends", "breaks", "expires"])
acts = st.one_of(
    act("bookmark"),
    act("touch", st.sampled_from("pqr"), st.sampled_from([*FOLLOWED, ELSEWHERE]), st.booleans()),
    act("change", st.sampled_from([(), (ELSEWHERE,), ("n0",), (*FOLLOWED, ELSEWHERE)])),
    act("write_other_object"),
    act("lag", server, lag),
    act("route", server, server),
    act("slow", latency, latency),
    act("refuse", st.booleans()),
    act("damage_next", st.sampled_from(["line", "node", "version"])),
    act("suffer", fates),
    act("fail_over", server, fates),
    act("compact"),
    act("read", followed),
    act("cancel"),
    act("follow_again", followed),
)
waits = st.sampled_from([0.0, 0.05, 0.15, 0.25, 0.45, 1.0, 2.5])


# The watch starts again at a server that lags, a moment after it was certain.
@example(
    poll_s=0.1,
    lags=(0.0, 5.0),
    routes=(0, 0),
    script=[(("bookmark",), 2.5), (("bookmark",), 2.5), (("fail_over", 1, "expires"), 2.5)],
)
@settings(max_examples=examples(300), derandomize=True)
@given(
    poll_s=st.sampled_from([0.1, 0.7, 2.0]),
    lags=st.tuples(lag, lag),
    routes=st.tuples(server, server),
    script=st.lists(st.tuples(acts, waits), min_size=12, max_size=40),
)
def test_a_certain_watch_shows_every_pod_and_none_that_is_gone(
    poll_s: float,
    lags: tuple[float, float],
    routes: tuple[int, int],
    script: list[tuple[tuple[Any, ...], float]],
) -> None:
    drain = Drain(poll_s)
    with capture_logs():
        try:
            drain.cluster.use(lags, *routes)
            for (name, *given_), wait_s in script:
                part = drain if hasattr(drain, name) else drain.cluster
                getattr(part, name)(*given_)
                drain.wait(wait_s)
            drain.cluster.heal()
            drain.change((*FOLLOWED, ELSEWHERE))
            assert becomes_certain(drain, 90), "it is stuck, or the back-off is too long"
        finally:
            drain.end()


@settings(max_examples=examples(15), derandomize=True)
@given(
    lags=st.tuples(*[st.sampled_from([0.0, 0.1, 0.25])] * 2),
    routes=st.tuples(server, server),
    latencies=st.tuples(*[st.sampled_from([0.0, 0.1, 0.3])] * 2),
    changing=st.sampled_from([(ELSEWHERE,), ("n0",), (*FOLLOWED, ELSEWHERE)]),
)
def test_a_watch_with_events_becomes_certain_within_seconds(
    lags: tuple[float, float],
    routes: tuple[int, int],
    latencies: tuple[float, float],
    changing: tuple[str, ...],
) -> None:
    drain = Drain(0.5)
    with capture_logs():
        try:
            drain.cluster.use(lags, *routes)
            drain.cluster.slow(*latencies)
            drain.change(changing)
            assert becomes_certain(drain, 4)
        finally:
            drain.end()
