"""After an eviction: its budget is asked again once the disruption controller has counted it.

The API server writes the pod down in the budget's status, the controller takes it off again within
milliseconds when it counts anew. An eviction that meets that write is kept by the API server for
half a second before it tries again, and with it everybody who waits for the same budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from rules.api.budgets import PdbView
from rules.api.writes import EvictPod

# A controller that takes longer than this is not waited for: the budget itself says who may go.
_LONGEST_S = 0.1


class Counting:
    """Who waits for a budget's watch."""

    def __init__(self, pdbs: Callable[[], Mapping[str, PdbView]]) -> None:
        """`pdbs`: the budgets as their watch shows them now."""
        self._pdbs = pdbs
        self._waiting: dict[str, asyncio.Event] = {}

    def version(self, key: str) -> str:
        """Of the budget as it is known; "" where it is not."""
        pdb = self._pdbs().get(key)
        return pdb.metadata.resource_version if pdb is not None else ""

    def changed(self, key: str) -> None:
        """The budget's watch brought something."""
        if (event := self._waiting.get(key)) is not None:
            event.set()

    async def counted(self, eviction: EvictPod, asked_at: str) -> None:
        """Wait until the controller has counted the pod; `asked_at` is the budget's version when
        the eviction was sent.
        """
        event = self._waiting[eviction.pdb] = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_S):
                while not self._is_counted(eviction, asked_at):
                    await event.wait()
                    event.clear()
        self._waiting.pop(eviction.pdb, None)

    def _is_counted(self, eviction: EvictPod, asked_at: str) -> bool:
        pdb = self._pdbs().get(eviction.pdb)
        if pdb is None:
            return True
        new = pdb.metadata.resource_version != asked_at
        return new and eviction.name not in pdb.status.disrupted_pods
