"""Who is asked for a repair step, as data: the adapters that gpuward ships.

An adapter hands a step over to whatever does it in this cluster and does nothing itself. Read by
`rules.session.repair`, which decides, and by `rules.policy`, which names one for each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rules.api.names import (
    CONDITION_NEEDS_REPLACE,
    CONDITION_NEEDS_RESET,
    CONDITION_NEEDS_RESTART,
)
from rules.repair.ladder import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One way to ask for repairs."""

    name: str
    conditions: Mapping[Step, str]
    """The Node condition that asks for each step it can hand over: machine health checks match a
    condition's type and status and nothing else, so each step has a type of its own."""

    @property
    def steps(self) -> frozenset[Step]:
        """The steps it can hand over."""
        return frozenset(self.conditions)


NODE_CONDITIONS: Final = Adapter(
    name="NodeConditions",
    conditions={
        Step.RESET_GPU: CONDITION_NEEDS_RESET,
        Step.RESTART_NODE: CONDITION_NEEDS_RESTART,
        Step.REPLACE_NODE: CONDITION_NEEDS_REPLACE,
    },
)
ADAPTERS: Final[Mapping[str, Adapter]] = {each.name: each for each in (NODE_CONDITIONS,)}
REPAIR_CONDITIONS: Final = tuple(sorted(NODE_CONDITIONS.conditions.values()))
"""Every Node condition that asks for a repair."""
