"""API servers that show the pods of one etcd late, from watch caches of their own.

A list with a version is answered from the cache of one of them as soon as it has that version, a
watch sends what its cache gets, and a list of one pod returns the version of etcd.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

import aiohttp

from remediator.kube.answer import Answer
from tests.support.remediator.virtual_loop import VirtualLoop
from tests.support.scenario.server.apiserver import answer_of, encoded, refusal

_WAITS_S = 3.0
"""An API server waits so long until its cache has the version that a list asks for."""
_TOO_LARGE = {"kind": "Status", "code": 504, "details": {"causes": ["ResourceVersionTooLarge"]}}


@dataclass
class Pod:
    """A pod in etcd, and since when and until when it was bound to its node."""

    name: str
    uid: str
    node: str = ""
    bound_at: float = inf
    gone_at: float = inf

    def stored(self, version: int) -> dict[str, Any]:
        meta = {"name": self.name, "namespace": "a", "uid": self.uid}
        spec = {"nodeName": self.node} if self.node else {}
        return {"metadata": {**meta, "resourceVersion": str(version)}, "spec": spec}


@dataclass
class Server:
    """An API server; its cache has the pods as of version `has`."""

    has: int
    lag_s: float = 0.0
    streams: "list[Stream]" = field(default_factory=list)

    def catch_up(self, version: int) -> None:
        self.has = max(self.has, version)
        for stream in self.streams:
            stream.moved.set()


class Cluster:
    """etcd and the API servers in front of it, as the API that a `PodWatch` calls."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.version = 100
        self._compacted = 0
        self.log: list[tuple[int, str, dict[str, Any], bytes]] = []
        """Version, type and object of each event, and the line of a watch."""
        self.servers = [Server(self.version), Server(self.version)]
        self.pods: dict[str, Pod] = {}
        self.all: list[Pod] = []
        self._lists_at = self._watches_at = 0
        self._there_s = self._back_s = 0.0
        self._down = False
        self._damage = ""

    def touch(self, name: str, node: str, scheduled: bool) -> None:
        """Create the pod, bind it if it is not bound, or delete it."""
        pod = self.pods.get(name)
        if pod is None:
            pod = self.pods[name] = Pod(name, uid=f"{name}-{len(self.all)}")
            self.all.append(pod)
            if scheduled:
                pod.node, pod.bound_at = node, self.loop.time()
            self._write("ADDED", pod)
        elif not pod.node:
            pod.node, pod.bound_at = node, self.loop.time()
            self._write("MODIFIED", pod)
        else:
            del self.pods[name]
            pod.gone_at = self.loop.time()
            self._write("DELETED", pod)

    def _write(self, kind: str, pod: Pod) -> None:
        self.version += 1
        stored = pod.stored(self.version)
        shown = {"type": kind, "object": stored}
        if self._damage == "node":
            shown["object"] = {**stored, "spec": {"nodeName": 7}}
        elif self._damage == "version":
            shown["object"] = {**stored, "metadata": {"name": pod.name, "namespace": "a"}}
        line = b"{" if self._damage == "line" else encoded(shown)
        self._damage = ""
        self.log.append((self.version, kind, stored, line + b"\n"))
        for server in self.servers:
            self.loop.call_later(server.lag_s, server.catch_up, self.version)

    # ------------------------------------------------------------------ what happens to them

    def write_other_object(self) -> None:
        self.version += 1

    def use(self, lags: tuple[float, float], lists_at: int, watches_at: int) -> None:
        """Set the lag of each server, and which one answers lists and which one watches."""
        for index, lag_s in enumerate(lags):
            self.lag(index, lag_s)
        self.route(lists_at, watches_at)

    def lag(self, server: int, seconds: float) -> None:
        self.servers[server].lag_s = seconds

    def route(self, lists_at: int, watches_at: int) -> None:
        self._lists_at, self._watches_at = lists_at, watches_at

    def slow(self, there_s: float, back_s: float) -> None:
        self._there_s, self._back_s = there_s, back_s

    def refuse(self, down: bool) -> None:
        self._down = down

    def damage_next(self, what: str) -> None:
        """Make the line of the next event unreadable: all of it, its node or its version."""
        self._damage = what

    def suffer(self, fate: str) -> None:
        """All open watches hang, end, break or expire."""
        for stream in self._open():
            stream.suffer(fate)

    def fail_over(self, server: int, fate: str) -> None:
        self.route(server, server)
        self.suffer(fate)

    def bookmark(self) -> None:
        for stream in self._open():
            stream.owes_bookmark = True
            stream.moved.set()

    def compact(self) -> None:
        """Watches from an older version are refused with 410."""
        self._compacted = self.version

    def heal(self) -> None:
        """All is well from now on, and the watch has to start again."""
        self.write_other_object()
        self.compact()
        self.use((0.0, 0.0), 0, 0)
        for server in self.servers:
            server.catch_up(self.version)
        self.refuse(down=False)
        self.slow(0.0, 0.0)
        self.damage_next("")
        self.suffer("expires")

    def _open(self) -> "list[Stream]":
        return [stream for server in self.servers for stream in server.streams]

    # ------------------------------------------------------------------ what they answer

    async def call(self, queue: Any, method: str, path: str, *, query: dict[str, str]) -> Answer:
        there_s, back_s, server = self._there_s, self._back_s, self.servers[self._lists_at]
        await asyncio.sleep(there_s)
        if self._down:
            answer = refusal(503)
        elif "limit" in query:
            version = server.has if "resourceVersion" in query else self.version
            answer = answer_of(200, {"metadata": {"resourceVersion": str(version)}, "items": []})
        else:
            answer = await self._cached(server, query)
        await asyncio.sleep(back_s)
        return answer

    async def _cached(self, server: Server, query: dict[str, str]) -> Answer:
        """List the pods of a node not older than the version, once the cache has it."""
        until = self.loop.time() + _WAITS_S
        while server.has < int(query["resourceVersion"]):
            if self.loop.time() >= until:
                return answer_of(504, _TOO_LARGE)
            await asyncio.sleep(0.1)
        node = query["fieldSelector"].partition("=")[2]
        items: dict[str, dict[str, Any]] = {}
        for version, kind, stored, _ in self.log:
            if version <= server.has:
                items.pop(stored["metadata"]["name"], None)
                if kind != "DELETED" and stored["spec"].get("nodeName") == node:
                    items[stored["metadata"]["name"]] = stored
        meta = {"resourceVersion": str(server.has)}
        return answer_of(200, {"metadata": meta, "items": list(items.values())})

    @asynccontextmanager
    async def stream(
        self, path: str, query: dict[str, str], silence_s: float
    ) -> "AsyncIterator[Stream]":
        server, version = self.servers[self._watches_at], int(query["resourceVersion"])
        await asyncio.sleep(self._there_s)
        if self._down:
            raise aiohttp.ClientConnectionError
        stream = Stream(self, server, version, 410 if version < self._compacted else 200)
        server.streams.append(stream)
        try:
            yield stream
        finally:
            server.streams.remove(stream)

    async def read_answer(self, response: "Stream") -> Answer:
        return refusal(response.status)


class Stream:
    """The response to a watch."""

    def __init__(self, cluster: Cluster, server: Server, version: int, status: int) -> None:
        self.status, self.content = status, self
        self.moved = asyncio.Event()
        self.owes_bookmark = False
        """A bookmark is due."""
        self.fate = ""
        self._cluster, self._server, self._sent = cluster, server, version

    def suffer(self, fate: str) -> None:
        """It hangs, ends, breaks or expires."""
        self.fate = fate
        self.moved.set()

    def close(self) -> None:
        self.suffer("ends")

    async def iter_any(self) -> AsyncIterator[bytes]:
        while self.fate in {"", "hangs"}:
            self.moved.clear()
            if chunk := b"" if self.fate else self._due():
                yield chunk
            else:
                await self.moved.wait()
        if self.fate == "breaks":
            raise aiohttp.ClientPayloadError
        if self.fate == "expires":
            yield encoded({"type": "ERROR", "object": {"code": 410, "message": "old"}}) + b"\n"

    def _due(self) -> bytes:
        has, sent = self._server.has, self._sent
        lines = [line for version, _, _, line in self._cluster.log if sent < version <= has]
        if self.owes_bookmark and has >= sent:
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(has)}}}
            lines.append(encoded(bookmark) + b"\n")
        self.owes_bookmark, self._sent = False, max(has, sent)
        return b"".join(lines)
