"""The client without a wire, for controllers in the process of the simulated server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from hack.sim.cluster.clients.client import JSON, Client, Object
from hack.sim.cluster.http.addresses import read_address
from hack.sim.cluster.http.resource_calls import Asked, ResourceCalls
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.store import decode, encode


class InProcessClient(Client):
    """Hands requests to the server's logic; `agent` is its name in managedFields."""

    def __init__(self, engine: Engine, agent: str = "in-process") -> None:
        self._engine = engine
        self._calls = ResourceCalls(engine)
        self._agent = agent

    def named(self, agent: str) -> InProcessClient:
        """The same client under another name."""
        return InProcessClient(self._engine, agent)

    async def close(self) -> None:
        """There are no connections."""

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """Send one request; the object in its answer, or ApiError."""
        asked = Asked(
            address=read_address(method, path, watch=False),
            query=query or {},
            body=b"" if body is None else encode(body),
            content_type=content_type,
            agent=self._agent,
        )
        answer: Object = decode(self._calls.answer(asked).body)
        return answer

    async def events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """The events of a watch; they end only with the server's watches."""
        asked = Asked(address=read_address("GET", path, watch=True), query=query)
        subscription = self._calls.watch(asked)
        try:
            while notices := await subscription.drain():
                for notice in notices:
                    yield decode(notice.line())
        finally:
            self._engine.forget(subscription)
