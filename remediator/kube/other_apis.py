"""Read objects of other projects: served API groups, and objects of repair providers.

Objects of repair providers are read when a decision needs one, and never watched. The node cycle
passes the answer to the rules, refusals included. The last answer is cached per node until no
session concerns the node. This module never writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from remediator.kube.answer import Answer, ApiError
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock
from rules.api import device_taints
from rules.api.object_name import BadSegmentError
from rules.api.repair_writes import ObjectAddress
from rules.repair.objects import ObjectSeen, ReadState
from rules.text import tolerant

_ANY_VERSION: Final = "*"
_PAGE = 500
_PAGES = 20
"""A longer list is cut there; an object beyond it is not found."""
_MAX_BYTES = 512 * 1024


class RepairObjects:
    """Reads and caches objects of repair providers."""

    def __init__(self, api: Api, groups: ApiGroups, clock: Clock) -> None:
        self._api = api
        self._groups = groups
        self._clock = clock
        self._read: dict[str, dict[ObjectAddress, ObjectSeen]] = {}

    def known(self, node: str) -> dict[ObjectAddress, ObjectSeen]:
        """The cached objects of the node."""
        return self._read.get(node, {})

    def forget(self, node: str) -> None:
        """Drop the cached objects of the node."""
        self._read.pop(node, None)

    async def read(self, node: str, query: ObjectAddress) -> None:
        """Read an object for decisions about this node."""
        seen = await self._seen(query)
        before = self.known(node).get(query)
        if seen.state is ReadState.UNREAD:
            since = before.failing_since if before is not None else None
            seen = replace(seen, failing_since=seen.read_at if since is None else since)
        self._read.setdefault(node, {})[query] = seen

    async def _seen(self, address: ObjectAddress) -> ObjectSeen:
        if address.resource == device_taints.RESOURCE and (why := await self._no_device_taints()):
            return self._no(ReadState.NOT_SERVED, why)
        group, _, version = address.api_version.rpartition("/")
        if version == _ANY_VERSION:
            served = (await self._groups.served()).get(group, "")
            if not served:
                return self._no(
                    ReadState.NOT_SERVED, f"the API server does not serve {address.text}"
                )
            address = replace(address, api_version=f"{group}/{served}")
        try:
            if address.name:
                return self._judged(address, await self._get(address))
            return await self._listed(address)
        except BadSegmentError as error:
            return self._no(ReadState.NOT_SERVED, str(error))
        except ApiError as error:
            return self._judged(address, error.answer)

    async def _no_device_taints(self) -> str:
        return device_taints.broken(await self._groups.server_version())

    async def _get(self, address: ObjectAddress) -> Answer:
        return await self._api.call(CallQueue.READ, "GET", address.path)

    async def _listed(self, address: ObjectAddress) -> ObjectSeen:
        query = {"fieldSelector": address.fields} if address.fields else {}
        listed = await self._api.items(
            address.path, dict[str, Any], query=query, limit=_PAGE, pages=_PAGES
        )
        return ObjectSeen(
            state=ReadState.FOUND,
            read_at=self._clock.now(),
            found=listed.found,
            api_version=address.api_version,
        )

    def _judged(self, address: ObjectAddress, answer: Answer) -> ObjectSeen:
        if answer.ok:
            return self._decoded(address, answer)
        if address.name and answer.is_not_found(address.name):
            return replace(
                self._no(ReadState.ABSENT, f"there is no {address.text}"),
                api_version=address.api_version,
            )
        if answer.code == 404:
            return self._no(ReadState.NOT_SERVED, f"the API server does not serve {address.text}")
        text = answer.sentence()
        if answer.code == 403:
            why = f"the remediator may not read {address.text} ({text})"
            return self._no(ReadState.FORBIDDEN, f"{why}; install the component of its adapter")
        return self._no(ReadState.UNREAD, f"{address.text} cannot be read: {text}")

    def _decoded(self, address: ObjectAddress, answer: Answer) -> ObjectSeen:
        if len(answer.body) > _MAX_BYTES:
            return self._no(ReadState.UNREAD, f"{address.text} is larger than 512 KiB")
        try:
            found = msgspec.json.decode(answer.body, type=dict[str, Any])
        except tolerant.UNREADABLE:
            return self._no(ReadState.UNREAD, f"{address.text} is no object")
        return ObjectSeen(
            state=ReadState.FOUND,
            read_at=self._clock.now(),
            found=(found,),
            api_version=address.api_version,
        )

    def _no(self, state: ReadState, why: str) -> ObjectSeen:
        return ObjectSeen(state=state, read_at=self._clock.now(), why=why[:300])


_FRESH_S = 300.0
_AGAIN_S = 15.0


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    version: str = ""


class _Group(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    preferred_version: _Version = _Version()
    versions: list[_Version] = []


class _Groups(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[_Group] = []


class _Server(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    git_version: str = ""


class ApiGroups:
    """Reads and caches the API groups that the cluster serves, one call every few minutes, and the
    version of the API server.

    Objects of another project are read only if the cluster serves its API group.
    """

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._versions: dict[str, str] = {}
        self._every_version: dict[str, tuple[str, ...]] = {}
        self._server = ("", float("-inf"))
        self._read_again_at = float("-inf")
        self._read_at = float("-inf")

    def overdue_s(self) -> float:
        """Seconds since the groups should have been read again; 0 or less when they are known."""
        return self._clock.elapsed() - self._read_at - _FRESH_S

    async def server_version(self) -> str:
        """The version of the API server, such as v1.36.3; "" while it cannot be read."""
        now = self._clock.elapsed()
        if now - self._server[1] > _FRESH_S:
            try:
                found = await self._api.get("/version", _Server)
            except ApiError:
                return ""
            self._server = found.git_version, now
        return self._server[0]

    async def served(self) -> dict[str, str]:
        """Preferred version by group; the last known ones if they cannot be read."""
        now = self._clock.elapsed()
        if now < self._read_again_at:
            return self._versions
        try:
            found = await self._api.get("/apis", _Groups)
        except ApiError:
            self._read_again_at = now + _AGAIN_S
            return self._versions
        self._read_at, self._read_again_at = now, now + _FRESH_S
        self._versions = {g.name: g.preferred_version.version for g in found.groups}
        self._every_version = {g.name: tuple(v.version for v in g.versions) for g in found.groups}
        return self._versions

    async def versions_of(self, group: str) -> tuple[str, ...]:
        """All served versions of the group, where its resources differ between versions."""
        await self.served()
        return self._every_version.get(group, ())
