"""What was asked of the server, for assertions: counters, and every mutating call in order.

Filled by the proxy; read by tests and benchmarks.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

KEPT = 200_000
MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answered call."""

    at: float
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 200
    agent: str = ""
    user: str = ""
    dry_run: bool = False
    path: str = ""
    body: bytes = b""

    @property
    def is_mutation(self) -> bool:
        """Whether it was to change an object."""
        return self.verb in MUTATING and not self.dry_run


class RequestLog:
    """The calls a server answered."""

    def __init__(self) -> None:
        self.all: deque[Request] = deque(maxlen=KEPT)
        self._counts: Counter[tuple[str, str, str, int, str, bool]] = Counter()

    def note(self, request: Request) -> None:
        """Remember an answered HTTP call."""
        self.all.append(request)
        key = (
            request.verb,
            request.resource,
            request.subresource,
            request.code,
            request.agent,
            request.dry_run,
        )
        self._counts[key] += 1

    def count(
        self,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        *,
        code: int | None = None,
        agent: str | None = None,
        dry_run: bool | None = None,
    ) -> int:
        """How many HTTP calls match; None matches all, `agent` is the user agent's beginning."""
        return sum(
            count
            for (v, r, s, c, a, d), count in self._counts.items()
            if (verb is None or v == verb)
            and (resource is None or r == resource)
            and (subresource is None or s == subresource)
            and (code is None or c == code)
            and (agent is None or a.startswith(agent))
            and (dry_run is None or d == dry_run)
        )

    @property
    def mutations(self) -> list[Request]:
        """Every mutating HTTP call that was not a dry run, oldest first."""
        return [one for one in self.all if one.is_mutation]

    def clear(self) -> None:
        """Forget everything, to count from here."""
        self.all.clear()
        self._counts.clear()
