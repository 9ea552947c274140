"""The thresholds of all checks, from `rules/data/thresholds.json`, and their overrides.

The agent passes the file of `--rules` to `parse_rules`; without a file it uses `DEFAULT_RULES`. A
file may override the numbers of a threshold and the severity, level and action of a reason.
"""

import math
from typing import Final, Literal

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.reason import Action, Level, Reason, Severity, is_reason_code


class Threshold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a reading is bad and when it is good again.

    Bad when `count` of the last `window` readings cross `value`, good again when as many are at
    `clear` or better (hysteresis). `unit`, `why` and `source` explain the number; a file cannot
    change them.
    """

    value: int | float
    clear: int | float
    count: int
    window: int
    unit: str
    why: str
    source: str


class ThresholdOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of one threshold that a file changes; others keep the default."""

    value: float | None = None
    clear: float | None = None
    count: int | None = None
    window: int | None = None


class ReasonColumns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of one reason that a file changes; others keep the default."""

    severity: Severity | None = None
    level: Level | None = None
    action: Action | None = None


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The thresholds and reason overrides in force."""

    thresholds: dict[str, Threshold]
    reasons: dict[str, ReasonColumns] = {}

    def __getitem__(self, name: str) -> Threshold:
        return self.thresholds[name]

    def apply(self, reason: Reason) -> Reason:
        """Return `reason` with the columns that the file overrides."""
        override = self.reasons.get(reason.reason)
        if override is None:
            return reason
        columns = msgspec.structs.asdict(override).items()
        changes = {name: value for name, value in columns if value is not None}
        return msgspec.structs.replace(reason, **changes, source="rules file")


class RulesError(ValueError):
    """The rules file is invalid; the message names the path in it and the remedy."""


class _RulesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    apiVersion: Literal["gpuward.io/v1alpha1"]  # noqa: N815 - the key as Kubernetes spells it
    kind: Literal["Rules"]
    thresholds: dict[str, ThresholdOverride] = {}
    reasons: dict[str, ReasonColumns] = {}


_DEFAULTS: Final = msgspec.json.decode(data_file("thresholds.json"), type=dict[str, Threshold])

FLAG: Final = Threshold(
    value=1, clear=0, count=1, window=1, unit="flag", why="one bad reading", source="gpuward"
)
"""The threshold of flags without their own."""

DEFAULT_RULES: Final = Thresholds(thresholds=dict(_DEFAULTS))


def parse_rules(text: bytes) -> Thresholds:
    """Return the thresholds of a rules file (YAML); RulesError names the path and the remedy."""
    # Imported here: only an agent with a rules file needs the YAML parser.
    import msgspec.yaml

    try:
        file = msgspec.yaml.decode(text, type=_RulesFile, strict=True)
    except msgspec.DecodeError as error:
        raise RulesError(f"rules file: {' '.join(str(error).split())[:300]}.") from None
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        # What the YAML parser raises for tagged scalars such as `!!int ""`.
        raise RulesError(f"rules file: is not YAML: {str(error)[:300]}.") from None
    unknown = sorted(set(file.thresholds) - set(_DEFAULTS))
    if unknown:
        raise RulesError(
            f"rules file: $.thresholds.{unknown[0]} is not a threshold. "
            f"Use one of {', '.join(sorted(_DEFAULTS))}."
        )
    nameless = next((code for code in file.reasons if not is_reason_code(code)), None)
    if nameless is not None:
        raise RulesError(
            f"rules file: $.reasons.{nameless[:80]!r} is not a reason. "
            "Use a reason such as Xid31MemoryPageFault."
        )
    merged = dict(_DEFAULTS)
    for name, override in file.thresholds.items():
        merged[name] = _merge(name, merged[name], override)
    return Thresholds(thresholds=merged, reasons=file.reasons)


def _merge(name: str, row: Threshold, override: ThresholdOverride) -> Threshold:
    changes = {
        field: value
        for field, value in msgspec.structs.asdict(override).items()
        if value is not None
    }
    if "value" in changes and "clear" not in changes and row.clear == row.value:
        changes["clear"] = changes["value"]
    merged: Threshold = msgspec.structs.replace(row, **changes)
    if not 1 <= merged.count <= merged.window <= 1000:
        raise RulesError(
            f"rules file: $.thresholds.{name} requires 1 <= count <= window <= 1000, "
            f"not {merged.count} of {merged.window}."
        )
    if not (0 <= merged.value < math.inf and 0 <= merged.clear < math.inf):
        raise RulesError(f"rules file: $.thresholds.{name} requires numbers of at least 0.")
    return merged
