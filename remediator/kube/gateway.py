"""The one place that sends writes: checks who, when and whether, then sends, counts and logs.

The loop and the eviction worker hand it the writes of `rules.api.writes`; nothing else in the
remediator changes anything in the cluster. Shadow writes nothing to nodes or pods, but takes off
a taint and cordon that an earlier Enforce left; only a leader writes; a disruptive write goes out
only within the first 10 s of a lease renewal, on a node whose read was answered at most a second
ago and took at most 5 s, after the rules checked that node once more. A taint and cordon needs no
read where the watch still shows the very version that it carries: the API server refuses it on any
other. No exception leaves the gateway for an answer of the API server: that comes back as a
`Sent`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from remediator.kube.answer import ApiError, HeldError, Result, Sent, classify
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock
from remediator.kube.elector import Elector
from remediator.metrics import Metrics
from rules.api import object_name, requests
from rules.api import writes as d
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.repair_writes import (
    CreateTestJob,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.session import observation

_LOG = structlog.get_logger()

# A disruptive write is decided on an answer about the node that came at most this long ago,
FRESH_NODE_S = 1.0
# and that did not take longer than this: what happened meanwhile may be missing in it. A second
# would stop every quarantine and eviction of a server that is only slow.
LONGEST_READ_S = 5.0

_LANES: dict[type, CallQueue] = {
    **dict.fromkeys(
        (d.TaintAndCordon, d.RemoveTaint, SetRepairCondition, WriteRepairObject, CreateTestJob),
        CallQueue.MARK,
    ),
    **dict.fromkeys((d.EvictPod, d.SetDisruptionTarget, d.DeletePod), CallQueue.EVICT),
    **dict.fromkeys((d.CreateSession, d.PatchSessionSpec, d.SetNodeUnknown), CallQueue.STATUS),
}
"""All else is a record."""
# Not UnmarkNode: in Shadow a taint and cordon of an earlier Enforce may only come off, and a
# session that says Released must not leave it on.
_ON_NODES_OR_PODS = (
    d.TaintAndCordon,
    d.RelabelNode,
    d.SetNodeUnknown,
    d.SetDisruptionTarget,
    d.DeletePod,
    CreateTestJob,
    SetValidated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What the API server said of a node, and when; times in seconds of CLOCK_BOOTTIME."""

    node: FreshNode
    asked_at: float
    answered_at: float

    def too_old(self, now: float) -> str:
        """Why no disruption may rest on it; "" when it may."""
        took_s, age_s = self.answered_at - self.asked_at, now - self.answered_at
        if took_s > LONGEST_READ_S:
            return f"reading the node took {took_s:.1f} s"
        return f"the node was read {age_s:.1f} s ago" if age_s > FRESH_NODE_S else ""


class AboutWrite(Protocol):
    """What a single write is about, checked once more when its turn has come."""

    async def look(self, *, again: bool = False) -> str:
        """Read it if need be, or `afresh`; why the write must not go, empty when it may."""
        ...

    def too_old(self) -> str:
        """Why what was read is too old to send the write on; empty when it may go."""
        ...

    def why_not(self) -> str:
        """The same from what was read; nothing is awaited."""
        ...


Recheck = Callable[[d.Write, NodeView], str]
"""The rules' last check at a disruptive write; empty when it may go, else why not."""


class Gateway:
    """Sends writes for one process."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        elector: Elector,
        metrics: Metrics,
        *,
        mode: Callable[[], Mode],
        recheck: Recheck,
        watched: Callable[[str], NodeView | None] = lambda _: None,
    ) -> None:
        """`watched` is a node as its watch shows it now; None where nothing watches it."""
        self._api = api
        self._clock = clock
        self._elector = elector
        self._metrics = metrics
        self._mode = mode
        self._recheck = recheck
        self._watched = watched
        self._reads: dict[str, _Read] = {}
        self._reading: dict[str, asyncio.Task[FreshNode]] = {}

    async def fresh_node(self, name: str, max_age_s: float = 0.0) -> FreshNode:
        """The node, read from the API server at most that long ago; ApiError when it cannot be."""
        asked_at = self._clock.elapsed()
        known = self._reads.get(name)
        if (
            known is not None
            and asked_at - known.answered_at < max_age_s
            and not known.too_old(asked_at)
        ):
            return known.node
        if max_age_s > 0:
            return await self._shared_read(name)
        return await self._read(name)

    async def _shared_read(self, name: str) -> FreshNode:
        """One read for all who ask at the same time: its answer is as fresh for each of them."""
        task = self._reading.get(name)
        if task is None:
            task = self._reading[name] = asyncio.create_task(self._read(name))
            task.add_done_callback(lambda done: self._was_read(name, done))
        # Whoever gives up must not end it for the others.
        return await asyncio.shield(task)

    def _was_read(self, name: str, done: asyncio.Task[FreshNode]) -> None:
        self._reading.pop(name, None)
        if not done.cancelled():
            # Who asked hears of a failure; if all of them gave up, nobody need.
            done.exception()

    async def _read(self, name: str) -> FreshNode:
        asked_at = self._clock.elapsed()
        try:
            node = await self._api.get(object_name.api_path("/api/v1/nodes", name), FreshNode)
        except ApiError:
            self._reads.pop(name, None)
            raise
        known = self._reads.get(name)
        if known is not None and known.asked_at > asked_at:
            # Asked after this one and answered before it: it knows what this one may lack.
            return known.node
        # Its age counts from the answer: a server that takes longer than the age allowed would
        # otherwise never let a taint and cordon or an eviction go.
        self._reads[name] = _Read(node=node, asked_at=asked_at, answered_at=self._clock.elapsed())
        return node

    def forget(self, name: str) -> None:
        """Drop what was read of a node that no session concerns."""
        self._reads.pop(name, None)

    async def send(self, write: d.Write, about: AboutWrite | None = None) -> Sent:
        """Send one write, if it may be sent; `about` has a say in a disruptive one."""
        sent = await self._checked(write, about)
        kind = d.kind_of(write)
        self._metrics.writes.labels(kind, sent.result.value).inc()
        _log(write, kind, sent)
        return sent

    async def _checked(self, write: d.Write, about: AboutWrite | None) -> Sent:
        held = self._forbidden(write)
        if held:
            return Sent(result=Result.HELD, why=held)
        asked_at: float | None = None
        if isinstance(write, d.RemoveTaint) and write.orphan:
            asked_at = self._clock.elapsed()
            kept = await self._still_owned(write)
            if kept is not None:
                return kept
        if not write.harmful:
            return await self._post(write, self._last_word(write, asked_at), in_turn=False)
        async with self._api.turn(_call_queue(write)):
            for again in (False, True):
                try:
                    node, why = await self._read_both(write, about, again=again)
                except ApiError as error:
                    why = f"its object was not read before the write: {error}"
                    return Sent(result=classify(error.answer), why=why)
                why = why or self._recheck(write, node)
                if why:
                    return Sent(result=Result.HELD, why=why)
                if about is None or not (about.too_old() or self._node_too_old(write)):
                    break
            return await self._post(write, self._last_look(write, about), in_turn=True)

    async def _read_both(
        self, write: d.Write, about: AboutWrite | None, *, again: bool
    ) -> tuple[NodeView | FreshNode, str]:
        """The node, and why the write must not go by what it is about. Both are read at the same
        time, since each ages while the other is awaited; `afresh`: even those that are fresh. One
        of two reads may take longer than the other stays fresh.
        """
        if about is None:
            return self._exactly_seen(write) or await self.fresh_node(write.node, FRESH_NODE_S), ""
        node = write.node
        read = self._shared_read(node) if again else self.fresh_node(node, FRESH_NODE_S)
        return await asyncio.gather(read, about.look(again=again))

    def _node_too_old(self, write: d.Write) -> bool:
        """Whether a later read took longer than that of the node stays fresh."""
        known = self._reads.get(write.node)
        return known is None or self._clock.elapsed() - known.answered_at > FRESH_NODE_S

    def _exactly_seen(self, write: d.Write) -> NodeView | None:
        """The node as the watch shows it, where the taint and cordon carries just that version."""
        if not isinstance(write, d.TaintAndCordon):
            return None
        node, metadata = self._watched(write.node), write.patch.get("metadata", {})
        version = metadata.get("resourceVersion", "")
        seen = node is not None and version and node.metadata.resource_version == version
        return node if seen else None

    async def _still_owned(self, write: d.RemoveTaint) -> Sent | None:
        """None when the taint and cordon's session certainly does not exist or has ended: a cache
        that lags, or holds what the server has forgotten, frees no node.
        """
        path = object_name.api_path(requests.QUARANTINES, write.session)
        answer = await self._api.call(CallQueue.READ, "GET", path)
        if answer.says_gone(write.session):
            return None
        if answer.ok:
            found = answer.decode(QuarantineView)
            if found.spec.node_name != write.node or not observation.is_open(found):
                return None
            return Sent(result=Result.HELD, why=f"session {write.session} exists")
        result = Result.HELD if answer.code == 404 else classify(answer)
        # Without the answer: it is about the session and says nothing about writes on the node.
        return Sent(result=result, why=f"session not read: {answer.sentence()}")

    def _forbidden(self, write: d.Write) -> str:
        if self._mode() is Mode.SHADOW and (
            isinstance(write, _ON_NODES_OR_PODS) or _disruptions(write)
        ):
            return "mode is Shadow"
        if not self._elector.may_write():
            return "another replica leads"
        return ""

    def _last_word(self, write: d.Write, asked_at: float | None) -> Callable[[], None]:
        """The same for a write that disrupts nobody: a deposed leader keeps quiet altogether.
        `asked_at`: when what the write rests on was asked for.
        """

        def check() -> None:
            why = self._forbidden(write)
            if asked_at is not None and self._clock.elapsed() - asked_at > LONGEST_READ_S:
                why = why or "its session was read too long ago"
            if why:
                raise HeldError(why)

        return check

    def _last_look(self, write: d.Write, about: AboutWrite | None) -> Callable[[], None]:
        """Runs with the connection in hand: time may have passed while waiting for it."""

        def check() -> None:
            why = self._forbidden(write)
            if not why and not self._elector.may_disrupt():
                why = "the lease was not renewed within 10 s"
            why = why or self._changed(write)
            if not why and about is not None:
                why = about.why_not() or about.too_old()
            if why:
                raise HeldError(why)

        return check

    def _changed(self, write: d.Write) -> str:
        """Why the write may not go on what is known of its node by now; "" when it may."""
        if (seen := self._exactly_seen(write)) is not None:
            return self._recheck(write, seen)
        known = self._reads.get(write.node)
        if known is None:
            return "the node was not read"
        # Connecting may outlast the read.
        return self._recheck(write, known.node) or known.too_old(self._clock.elapsed())

    async def _post(self, write: d.Write, last_look: Callable[[], None], *, in_turn: bool) -> Sent:
        wire = requests.request(write)
        try:
            answer = await self._api.call(
                _call_queue(write),
                wire.method,
                wire.path,
                body=wire.body,
                content_type=wire.content_type,
                before_send=last_look,
                in_turn=in_turn,
            )
        except HeldError as held:
            return Sent(result=Result.HELD, why=str(held))
        result = classify(answer)
        return Sent(result=result, answer=answer, why="" if answer.ok else answer.sentence())


def _call_queue(write: d.Write) -> CallQueue:
    return _LANES.get(type(write), CallQueue.RECORD)


def _disruptions(write: d.Write) -> bool:
    """Of the kinds that may or may not disruption: an eviction, a request for a repair."""
    kinds = d.EvictPod | SetRepairCondition | WriteRepairObject
    return isinstance(write, kinds) and write.harmful


def _log(write: d.Write, kind: str, sent: Sent) -> None:
    say = _LOG.info if sent.result in {Result.DONE, Result.CONFLICT, Result.HELD} else _LOG.warning
    say(
        "write",
        kind=kind,
        result=sent.result.value,
        **d.named(write),
        **({"why": sent.why} if sent.why else {}),
    )
