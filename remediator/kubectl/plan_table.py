"""The plan of each node, as `kubectl gpuward plan` prints it."""

from collections.abc import Sequence
from typing import Final

import msgspec

from remediator.kubectl import command
from rules.api import names

_SHOWN_BLOCKS: Final = 3


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node: what would be done, why not more, what its pods answer; printed by `-o json`."""

    api_version: str = names.API_VERSION
    kind: str = "GPUNodePlan"
    metadata: dict[str, str]
    would: str
    then: str = ""
    """What comes after a wait; the answers of its pods are about that."""
    reason: str = ""
    because: str = ""
    blocked_by: str = ""
    """What holds it back, a reason of `rules.catalog.why_not`; "" where nothing does."""
    evictable: int = 0
    blocked: tuple[str, ...] = ()
    left: int = 0
    repair: str = ""
    """Where the repair ladder would begin after the drain."""
    people: tuple[str, ...] = ()
    """What people decided about the node: held, paused, opted out."""
    policy: str | msgspec.UnsetType = msgspec.UNSET
    """The policy of the node, where the file has pools."""

    @property
    def node(self) -> str:
        """Its name."""
        return self.metadata["name"]


def table(planned: Sequence[NodePlan]) -> str:
    """Return one row for each node."""
    delayed = any(one.blocked_by for one in planned)
    header = ["REASON", "PEOPLE", "EVICT", "BLOCKED", "LEFT"]
    pools = any(one.policy for one in planned)
    header = [
        "NODE",
        *(["POLICY"] if pools else []),
        "WOULD",
        *(["WHY"] if delayed else []),
        *header,
    ]
    rows = [
        [
            one.node,
            *([str(one.policy or "")] if pools else []),
            f"{one.would}, then {one.then}" if one.then else one.would,
            *([one.blocked_by] if delayed else []),
            one.reason,
            ", ".join(one.people),
            str(one.evictable),
            str(len(one.blocked)),
            str(one.left),
        ]
        for one in planned
    ]
    return command.table(header, rows)


def details(one: NodePlan, *, wide: bool) -> list[str]:
    """Why it waits and what blocks it."""
    lines = [one.because] if one.because else []
    blocked = one.blocked if wide else one.blocked[:_SHOWN_BLOCKS]
    lines += [f"blocked: {text}" for text in blocked]
    if len(one.blocked) > len(blocked):
        lines.append(f"and {len(one.blocked) - len(blocked)} more blocks: -o wide")
    if one.repair:
        lines.append(one.repair)
    return lines
