"""What a policy did with the past, as values: in numbers, node by node, and beside another
policy.
"""

from __future__ import annotations

import msgspec

from rules.backtest.decisions import Decided
from rules.text.counted import count


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the report: camelCase in JSON."""


class Taken(ReportPart, frozen=True, kw_only=True):
    """A node that the policy took out."""

    node: str
    session: str
    reason: str
    severity: str
    at: str
    drained: str
    ended: str
    phase: str
    gpu_hours: float
    likely_wrong: str
    """Why it was probably no fault; empty where nothing speaks for that."""
    decisions: tuple[Decided, ...] = ()
    guessed: tuple[str, ...] = ()
    """Steps and tests of whose outcome nothing is on record."""


class Waited(ReportPart, frozen=True, kw_only=True):
    """A session that had to wait for the fleet's sake."""

    node: str
    session: str
    reason: str
    why: str
    seconds: int
    since: str
    """When it first had to."""


class Missed(ReportPart, frozen=True, kw_only=True):
    """A Fatal fault under which work went on."""

    node: str
    reason: str
    at: str
    warned: str
    """An earlier, milder fault of the node within a week on which nobody acted; empty without."""


class PolicyResult(ReportPart, frozen=True, kw_only=True):
    """One policy over the whole past."""

    policy: str
    mode: str
    nodes: int
    """Different nodes taken."""
    sessions: int
    taken: tuple[Taken, ...]
    waited: tuple[Waited, ...]
    missed: tuple[Missed, ...]
    gpu_hours_out: float
    likely_wrong: int
    unheard: tuple[str, ...] = ()
    """`NODE REASON` of what others said that it has no trigger for."""

    @property
    def sentence(self) -> str:
        """`Enforce: 11 nodes, 3 likely wrong, 40 GPU-days out`."""
        return (
            f"{self.policy} ({self.mode}): {count(self.nodes, 'node')} in "
            f"{count(self.sessions, 'session')}, "
            f"{self.likely_wrong} likely wrong, {self.gpu_hours_out / 24:.1f} GPU-days out, "
            f"{count(len(self.missed), 'fatal fault')} left alone"
        )


class PolicyDifference(ReportPart, frozen=True, kw_only=True):
    """One node that two policies treated differently."""

    node: str
    first: str
    second: str
    parts: str
    """The first decision of each that the other did not make, and what explains it."""


class PolicyPair(ReportPart, frozen=True, kw_only=True):
    """Two policies beside each other."""

    first: str
    second: str
    settings: tuple[str, ...] = ()
    """What the one says and the other does not, `repair.mode: Off -> Auto`."""
    same: int
    """Nodes that both treated the same, decision by decision."""
    nodes: tuple[PolicyDifference, ...]
    """The others."""


class BacktestReport(ReportPart, frozen=True, kw_only=True):
    """Every policy, what really was, and what differs."""

    since: str
    until: str
    nodes: int
    faults: int
    policies: tuple[PolicyResult, ...]
    differences: tuple[PolicyPair, ...]
    cannot_tell: tuple[str, ...]
