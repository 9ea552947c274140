"""The columns of a reason: the meaning of one kind of finding and the recommended response.

The agent publishes the values unchanged (conditions, GPUNodeHealth, metrics) and the remediator
reads them, so their meaning must never change. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache, lru_cache
from typing import Final

import msgspec

MAX_REASON_CHARS: Final = 63
"""A reason goes into taint and label values; Kubernetes allows 63 characters there."""

_REASON_CODE: Final = re.compile(rf"[A-Za-z0-9]{{1,{MAX_REASON_CHARS}}}")
_SILENCE: Final = re.compile(r"Silence\((\d{1,5})([smh])\)")
_STATE: Final = re.compile(r"State\(([A-Za-z0-9_.]{1,63}), (\d{1,3}) of (\d{1,3})\)")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600}


class ReasonClass(StrEnum):
    """How evidence for a reason becomes a finding."""

    DECISIVE = "Decisive"
    """One sighting acts at once."""
    NEEDS_CONTEXT = "NeedsContext"
    """Published as Info at once; own severity after the grouping delay or a recovery action."""
    SOFTWARE = "Software"
    """A program error unless other evidence shows a hardware fault."""
    GAUGE = "Gauge"
    """A reading that must cross its threshold N times of M."""
    LATCH = "Latch"
    """A flag or a counter that only grows: needs a second read."""
    RECORD = "Record"
    """Published, never acted upon."""


class _Ranked(StrEnum):
    """An enum with an order: declared from mildest to most severe, compared by that order."""

    @property
    def rank(self) -> int:
        """Position from the mildest (0)."""
        return _ranks(type(self))[self]

    def __lt__(self, other: str) -> bool:
        return self.rank < type(self)(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= type(self)(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > type(self)(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= type(self)(other).rank


@cache
def _ranks(ranked: type[_Ranked]) -> dict[str, int]:
    """Return the rank of each value, computed once."""
    return {value: rank for rank, value in enumerate(ranked)}


class Severity(_Ranked):
    """How urgent: Info is a record, Degraded lets work finish, Fatal means work is failing."""

    INFO = "Info"
    DEGRADED = "Degraded"
    FATAL = "Fatal"


class Level(_Ranked):
    """The default response on the node."""

    REPORT = "Report"
    CORDON = "Cordon"
    DRAIN = "Drain"


class DrainScope(_Ranked):
    """Which pods a drain evicts, from the fewest to all; each includes the ones before it."""

    HOLDERS = "Holders"
    """Pods that use an accused GPU, and GPU pods whose GPUs are not known."""
    GPU_PODS = "GPUPods"
    NODE = "Node"


class Action(StrEnum):
    """The recommended repair, published as `recommendedAction`."""

    NONE = "None"
    RESTART_APP = "RestartApp"
    RESET_GPU = "ResetGPU"
    RESTART_NODE = "RestartNode"
    POWER_CYCLE = "PowerCycle"
    REPLACE_NODE = "ReplaceNode"
    INVESTIGATE = "Investigate"
    DRAIN_P2P = "DrainP2P"
    RECOVER_IMEX_DOMAIN = "RecoverIMEXDomain"
    RESTART_FABRIC_MANAGER = "RestartFabricManager"
    RUN_DIAGNOSTICS = "RunDiagnostics"
    CHECK_MECHANICALS = "CheckMechanicals"
    UPDATE_FIRMWARE = "UpdateFirmware"


class ClosesKind(StrEnum):
    """The kinds of evidence that end an incident."""

    SILENCE = "Silence"
    RESET = "Reset"
    REBOOT = "Reboot"
    STATE = "State"
    HUMAN = "Human"


class ClosesOn(msgspec.Struct, frozen=True):
    """The evidence that ends an incident, e.g. `Silence(3m)` or `State(temperature, 3 of 5)`.

    `silence_s` is used by Silence only; `signal` (a name of the agent's readings), `count` and
    `window` (good readings out of the last ones) by State only.
    """

    kind: ClosesKind
    silence_s: int = 0
    signal: str = ""
    count: int = 0
    window: int = 0

    def __post_init__(self) -> None:
        if (self.kind is ClosesKind.SILENCE) != (self.silence_s > 0):
            raise ValueError(f"{self.kind} with a silence of {self.silence_s} s")
        if (self.kind is ClosesKind.STATE) != bool(self.signal):
            raise ValueError(f"{self.kind} with signal {self.signal!r}")
        if self.kind is ClosesKind.STATE and not 1 <= self.count <= self.window:
            raise ValueError(f"State needs 1 <= N <= M, not {self.count} of {self.window}")

    @property
    def silence(self) -> str:
        """`silence_s` in the largest unit that divides it: `3m`."""
        unit = next(unit for unit in ("h", "m", "s") if self.silence_s % _UNIT_S[unit] == 0)
        return f"{self.silence_s // _UNIT_S[unit]}{unit}"

    def __str__(self) -> str:
        if self.kind is ClosesKind.SILENCE:
            return f"Silence({self.silence})"
        if self.kind is ClosesKind.STATE:
            return f"State({self.signal}, {self.count} of {self.window})"
        return str(self.kind)

    @classmethod
    def parse(cls, text: str) -> ClosesOn:
        """Return the value of the string form; ValueError names an invalid text."""
        if silence := _SILENCE.fullmatch(text):
            return cls(ClosesKind.SILENCE, silence_s=int(silence[1]) * _UNIT_S[silence[2]])
        if state := _STATE.fullmatch(text):
            return cls(
                ClosesKind.STATE, signal=state[1], count=int(state[2]), window=int(state[3])
            )
        if text in (ClosesKind.RESET, ClosesKind.REBOOT, ClosesKind.HUMAN):
            return cls(ClosesKind(text))
        raise ValueError(
            f"{text!r} is not Silence(3m), Reset, Reboot, Human or State(signal, N of M)"
        )


SILENCE_3M: Final = ClosesOn(ClosesKind.SILENCE, silence_s=180)
ON_RESET: Final = ClosesOn(ClosesKind.RESET)
ON_REBOOT: Final = ClosesOn(ClosesKind.REBOOT)
BY_HUMAN: Final = ClosesOn(ClosesKind.HUMAN)


def closes_on_state(signal: str, count: int, window: int) -> ClosesOn:
    """Return State: closed when `count` of the last `window` readings of `signal` are good."""
    return ClosesOn(ClosesKind.STATE, signal=signal, count=count, window=window)


def is_reason_code(text: str) -> bool:
    """Return whether `text` is valid as a condition reason, taint value and label value."""
    return _REASON_CODE.fullmatch(text) is not None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a stable code with its meaning and the recommended response.

    `needs` is a short text about other evidence that must confirm its severity (empty: none);
    `source` names the origin of the row.
    """

    reason: str
    klass: ReasonClass
    severity: Severity
    level: Level
    action: Action
    closes_on: ClosesOn
    needs: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not is_reason_code(self.reason):
            raise ValueError(f"{self.reason!r} is not 1 to 63 letters and digits")


ACTIONS: Final = (
    Action.NONE,
    Action.RESTART_APP,
    Action.INVESTIGATE,
    Action.RUN_DIAGNOSTICS,
    Action.CHECK_MECHANICALS,
    Action.UPDATE_FIRMWARE,
    Action.RESTART_FABRIC_MANAGER,
    Action.RECOVER_IMEX_DOMAIN,
    Action.DRAIN_P2P,
    Action.RESET_GPU,
    Action.RESTART_NODE,
    Action.POWER_CYCLE,
    Action.REPLACE_NODE,
)
"""From the least to the most disruptive repair."""


def strength(row: Reason) -> tuple[int, int, int]:
    """Return the order of a row: severity, then level, then how disruptive the repair is.

    It selects the one reason that a health status, a list, the page and a metric show.
    """
    return row.severity.rank, row.level.rank, ACTIONS.index(row.action)


class ReasonRow(msgspec.Struct, frozen=True, kw_only=True, rename={"klass": "class"}):
    """The columns of a reason in the data files."""

    klass: ReasonClass
    severity: Severity
    level: Level
    action: Action
    closes_on: str
    needs: str = ""

    def as_reason(self, code: str, source: str) -> Reason:
        """Return the reason `code` with these columns."""
        return Reason(
            reason=code,
            klass=self.klass,
            severity=self.severity,
            level=self.level,
            action=self.action,
            closes_on=ClosesOn.parse(self.closes_on),
            needs=self.needs,
            source=source,
        )


@lru_cache(maxsize=64)
def severity_rank(severity: str) -> int:
    """Return the position from the mildest; an unknown value of a newer agent is Degraded."""
    return (Severity(severity) if severity in list(Severity) else Severity.DEGRADED).rank


@lru_cache(maxsize=64)
def level_rank(level: str) -> int:
    """Return the position from the mildest; an unknown value of a newer agent is Report."""
    return (Level(level) if level in list(Level) else Level.REPORT).rank
