"""What the tests of the simulated API server share: raw HTTP calls and small objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from hack.sim.cluster.resource import MERGE_PATCH
from hack.sim.cluster.server import SimulatedApiServer
from hack.sim.proxy.server import RunningProxy, proxy_before

Object = dict[str, Any]
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVENTS = "/api/v1/namespaces/default/events"


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    headers: Any

    @property
    def reason(self) -> str:
        return self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body.get("message", "")

    @property
    def details(self) -> Object:
        return self.body.get("details", {})

    @property
    def causes(self) -> list[Object]:
        return self.details.get("causes", [])


class Http:
    """Raw HTTP against one server, as a client in another language would speak it."""

    def __init__(
        self,
        server: SimulatedApiServer,
        session: aiohttp.ClientSession,
        proxy: RunningProxy | None = None,
    ) -> None:
        self.server = server
        self.session = session
        self.url = proxy.url if proxy else server.url
        self.faults = proxy.faults if proxy else server.faults
        self.requests = proxy.requests if proxy else server.requests

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Accept": accept, **(headers or {})}
        if data is not None:
            given["Content-Type"] = content_type
        params = {key.rstrip("_"): str(value) for key, value in query.items()}
        async with self.session.request(
            method, self.url + path, data=data, headers=given, params=params
        ) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            read = json.loads(raw) if is_json else raw.decode()
            return Answer(response.status, read, response.headers)

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self("GET", path, **query)
        assert answer.code == 200, answer.body
        return answer.body

    async def post(self, path: str, body: Any, **query: Any) -> Any:
        answer = await self("POST", path, body, **query)
        assert answer.code == 201, answer.body
        return answer.body

    async def put(self, path: str, body: Any, **query: Any) -> Any:
        answer = await self("PUT", path, body, **query)
        assert answer.code == 200, answer.body
        return answer.body

    async def patch(
        self, path: str, body: Any, content_type: str = MERGE_PATCH, **query: Any
    ) -> Any:
        answer = await self("PATCH", path, body, content_type=content_type, **query)
        assert answer.code == 200, answer.body
        return answer.body

    async def delete(self, path: str, body: Any = None, **query: Any) -> Any:
        answer = await self("DELETE", path, body, **query)
        assert answer.code == 200, answer.body
        return answer.body

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watch]:
        accept = query.pop("accept", "application/json")
        params = {"watch": "true", **{key: str(value) for key, value in query.items()}}
        async with self.session.get(
            self.url + path, params=params, headers={"Accept": accept}
        ) as response:
            yield Watch(response)


class Watch:
    """A running watch stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.code = response.status
        self._content = response.content
        self.response = response

    async def next(self) -> tuple[str, Object]:
        line = await self._content.readline()
        assert line, "the stream ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def ended(self) -> bool:
        return await self._content.readline() == b""


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Http]:
    async with SimulatedApiServer(**options) as server, aiohttp.ClientSession() as session:
        yield Http(server, session)


@asynccontextmanager
async def serving_afar(**options: Any) -> AsyncIterator[Http]:
    """The same behind a proxy that reaches it over HTTP, as it does a real server."""
    async with serving(**options) as near:
        users = {token: caller.name for token, caller in (options.get("tokens") or {}).items()}
        async with proxy_before(near.server.url, ca_pem=near.server.ca_pem, users=users) as proxy:
            yield Http(near.server, near.session, proxy)


def node(name: str = "n1", **metadata: Any) -> Object:
    return {
        "metadata": {"name": name, **metadata},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str = "p1", node_name: str | None = "n1", **metadata: Any) -> Object:
    spec: Object = {"containers": [{"name": "main", "image": "img:1"}]}
    if node_name:
        spec["nodeName"] = node_name
    metadata = {"name": name, "labels": {"app": "web"}, **metadata}
    return {"metadata": metadata, "spec": spec}


async def running_pod(
    api: Http,
    name: str = "p1",
    *,
    ready: bool = True,
    phase: str = "Running",
    node_name: str | None = "n1",
    **metadata: Any,
) -> Object:
    """Create a pod and report its status as a kubelet would."""
    await api.post(PODS, pod(name, node_name, **metadata))
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    return await api.patch(f"{PODS}/{name}/status", {"status": status})


async def budget(
    api: Http, name: str = "b1", *, observed: bool = True, spec: Any = None, **status: Any
) -> Object:
    """Create a budget over app=web and report its status as the disruption controller would."""
    wanted = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}, **(spec or {})}
    made = await api.post(BUDGETS, {"metadata": {"name": name}, "spec": wanted})
    full = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
        **status,
    }
    if observed:
        full["observedGeneration"] = made["metadata"]["generation"]
    return await api.patch(f"{BUDGETS}/{name}/status", {"status": full})


def eviction(name: str = "p1", **options: Any) -> Object:
    body: Object = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    if options:
        body["deleteOptions"] = options
    return body


async def eventually(condition: Callable[[], Any]) -> None:
    """Give other tasks their turn until the condition holds."""
    while not condition():  # noqa: ASYNC110 - the condition is another task's state, without an event
        await asyncio.sleep(0.001)
