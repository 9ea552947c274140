"""Objects of other projects: which API groups are served, and objects of repair providers.

Objects of repair providers are read when a decision rests on one, never watched.

The node cycle asks with what the rules want to know and hands the answer back to them, refusals
included. What was read is kept per node until no session concerns it, so that a decision that only
follows an object need not ask each time. It never writes anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from remediator.kube.answer import Answer, ApiError
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock
from rules.api.object_name import BadSegmentError
from rules.api.repair_writes import ObjectAddress
from rules.repair.objects import ObjectSeen, ReadState
from rules.text import tolerant

_ANY_VERSION: Final = "*"
_PAGE = 500
_PAGES = 20
"""A longer list is read as far as that; whoever must find one object in it then finds none."""
_MAX_BYTES = 512 * 1024


class RepairObjects:
    """Reads them for one process."""

    def __init__(self, api: Api, groups: ApiGroups, clock: Clock) -> None:
        self._api = api
        self._groups = groups
        self._clock = clock
        self._read: dict[str, dict[ObjectAddress, ObjectSeen]] = {}

    def known(self, node: str) -> dict[ObjectAddress, ObjectSeen]:
        """What decisions about the node had read, as last read."""
        return self._read.get(node, {})

    def forget(self, node: str) -> None:
        """Nothing of it is needed any more, or it was just changed."""
        self._read.pop(node, None)

    async def read(self, node: str, query: ObjectAddress) -> None:
        """Read it for decisions about this node."""
        seen = await self._seen(query)
        before = self.known(node).get(query)
        if seen.state is ReadState.UNREAD:
            since = before.failing_since if before is not None else None
            seen = replace(seen, failing_since=seen.read_at if since is None else since)
        self._read.setdefault(node, {})[query] = seen

    async def _seen(self, address: ObjectAddress) -> ObjectSeen:
        group, _, version = address.api_version.rpartition("/")
        if version == _ANY_VERSION:
            served = (await self._groups.served()).get(group, "")
            if not served:
                return self._no(ReadState.NOT_SERVED, f"nobody serves {address.words}")
            address = replace(address, api_version=f"{group}/{served}")
        try:
            if address.name:
                return self._judged(address, await self._get(address))
            return await self._listed(address)
        except BadSegmentError as error:
            return self._no(ReadState.NOT_SERVED, str(error))
        except ApiError as error:
            return self._judged(address, error.answer)

    async def _get(self, address: ObjectAddress) -> Answer:
        return await self._api.call(CallQueue.READ, "GET", address.path)

    async def _listed(self, address: ObjectAddress) -> ObjectSeen:
        listed = await self._api.items(address.path, dict[str, Any], limit=_PAGE, pages=_PAGES)
        return ObjectSeen(
            state=ReadState.FOUND,
            read_at=self._clock.now(),
            found=listed.found,
            api_version=address.api_version,
        )

    def _judged(self, address: ObjectAddress, answer: Answer) -> ObjectSeen:
        if answer.ok:
            return self._decoded(address, answer)
        if answer.says_gone(address.name):
            return replace(
                self._no(ReadState.ABSENT, f"there is no {address.words}"),
                api_version=address.api_version,
            )
        if answer.code == 404:
            return self._no(ReadState.NOT_SERVED, f"nobody serves {address.words}")
        said = answer.sentence()
        if answer.code == 403:
            why = f"the remediator may not read {address.words} ({said})"
            return self._no(ReadState.FORBIDDEN, f"{why}, install the component of its adapter")
        return self._no(ReadState.UNREAD, f"{address.words} cannot be read: {said}")

    def _decoded(self, address: ObjectAddress, answer: Answer) -> ObjectSeen:
        if len(answer.body) > _MAX_BYTES:
            return self._no(ReadState.UNREAD, f"{address.words} is larger than 512 KiB")
        try:
            found = msgspec.json.decode(answer.body, type=dict[str, Any])
        except tolerant.UNREADABLE:
            return self._no(ReadState.UNREAD, f"{address.words} is no object")
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


class _Groups(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[_Group] = []


class ApiGroups:
    """Reads and remembers the groups that the cluster serves.

    One discovery call every few minutes: a cluster without another project's operators is never
    asked for their objects.
    """

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._versions: dict[str, str] = {}
        self._read_again_at = float("-inf")
        self._read_at = float("-inf")

    def overdue_s(self) -> float:
        """Seconds since the groups should have been read again; 0 or less when they are known."""
        return self._clock.elapsed() - self._read_at - _FRESH_S

    async def served(self) -> dict[str, str]:
        """Preferred version by group; what was known before when it cannot be read."""
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
        return self._versions
