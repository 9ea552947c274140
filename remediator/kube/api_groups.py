"""Which API groups the cluster serves: asked before anything of another project is read.

Other operators' objects matter only where their operators are installed; one discovery call every
few minutes says so, and a cluster without them is never asked for what it does not have.
"""

from __future__ import annotations

import msgspec

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock

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
    """Reads and remembers the groups."""

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
