"""Every number that judgement rests on, with its unit, its reason and its source beside it.

The agent reads the file named by `--rules` and hands its bytes to `parse_rules`; without one,
`DEFAULT_RULES` stands. A file may override any number of a threshold and, per reason,
severity, level and action. Nothing here reads a file or a clock.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from rules.catalog.reason import Action, Level, Reason, Severity, is_reason_code


class Threshold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a reading is bad and when it is good again.

    Bad once `count` of the last `window` readings cross `value`; good again once as many
    are back at `clear` (hysteresis: `clear` is the easier side). `unit`, `why` and
    `source` explain the number; a file cannot change those.
    """

    value: float
    clear: float
    count: int
    window: int
    unit: str
    why: str
    source: str


class ThresholdOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of one threshold that a file changes; what is left out stays."""

    value: float | None = None
    clear: float | None = None
    count: int | None = None
    window: int | None = None


class ReasonColumns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of one reason that a file changes; what is left out stays."""

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
        return Reason(
            reason=reason.reason,
            klass=reason.klass,
            severity=override.severity or reason.severity,
            level=override.level or reason.level,
            action=override.action or reason.action,
            closes_on=reason.closes_on,
            needs=reason.needs,
            source="rules file",
        )


class RulesError(ValueError):
    """The rules file cannot be used; the text names the path in it and the remedy."""


class _RulesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    apiVersion: Literal["gpuward.io/v1alpha1"]  # noqa: N815 - the key as Kubernetes spells it
    kind: Literal["Rules"]
    thresholds: dict[str, ThresholdOverride] = {}
    reasons: dict[str, ReasonColumns] = {}


def _row(
    value: float,
    unit: str,
    why: str,
    source: str,
    *,
    clear: float | None = None,
    count: int = 1,
    window: int = 1,
) -> Threshold:
    return Threshold(
        value=value,
        clear=value if clear is None else clear,
        count=count,
        window=window,
        unit=unit,
        why=why,
        source=source,
    )


_DCGM: Final = "DCGM hardware limits"
_NVML: Final = "NVML reference"
_MEMORY: Final = "NVIDIA GPU memory error management"
_OURS: Final = "gpuward"

_DEFAULTS: Final[dict[str, Threshold]] = {
    # presence
    "GPULost": _row(2, "polls", "one failed call is a hiccup, two of three are not", _OURS,
                    count=2, window=3),
    "GPULostForGood": _row(600, "seconds",
                           "the driver has given the GPU up, even where its configuration space "
                           "still "
                           "answers: it never comes back by itself", _OURS),
    "GPUCountMismatch": _row(1, "missing GPUs", "fewer GPUs than expected", _OURS,
                             clear=0, count=2, window=3),
    # heat and power
    "ThermalSlowdown": _row(1, "flag", "the clocks are held down by heat, not by a short peak",
                            _NVML, clear=0, count=3, window=5),
    "SlowdownShare": _row(0.25, "share of the time since the last reading",
                          "slowdowns that come and go between two looks; a quarter of the time is "
                          "no "
                          "short peak", _OURS, clear=0.05),
    "MemoryTemperature": _row(0, "degrees Celsius below the memory's highest operating "
                                 "temperature",
                              "from there on the clocks are lowered to save the memory", _NVML,
                              clear=3, count=3, window=5),
    "TemperatureMargin": _row(0, "degrees Celsius below slowdown",
                              "at no margin left the hardware slows itself down",
                              "NVIDIA thermal limits (T.Limit)", clear=3, count=3, window=5),
    "TemperatureDoubt": _row(25, "degrees Celsius below slowdown",
                             "so far below it a margin that is used up is the sensor's nonsense",
                             _OURS),
    "PowerBrake": _row(1, "flag", "the power supply asked the GPU to slow down", _NVML,
                       clear=0, count=3, window=5),
    "HardwareSlowdown": _row(1, "flag", "the hardware halves its clocks for a reason of its own",
                             _NVML, clear=0, count=3, window=5),
    # PCIe
    "PCIeWidthDegraded": _row(1, "lanes missing", "fewer lanes than the slot and GPU can do",
                              _NVML, clear=0, count=3, window=5),
    "PCIeGenDegraded": _row(1, "generations missing",
                            "idle GPUs lower the generation on purpose: only under load", _NVML,
                            clear=0, count=3, window=5),
    "PCIeLoadUtilization": _row(20, "percent", "above this use the link runs at full generation",
                                _OURS),
    "PCIeReplayRateGen1": _row(0.15, "replays per lane and minute", "bit error rate 1e-12", _DCGM,
                               count=3, window=5),
    "PCIeReplayRateGen2": _row(0.30, "replays per lane and minute", "bit error rate 1e-12", _DCGM,
                               count=3, window=5),
    "PCIeReplayRateGen3": _row(0.48, "replays per lane and minute", "bit error rate 1e-12", _DCGM,
                               count=3, window=5),
    "PCIeReplayRateGen4": _row(0.96, "replays per lane and minute", "bit error rate 1e-12", _DCGM,
                               count=3, window=5),
    "PCIeReplayRateGen5": _row(1.92, "replays per lane and minute", "bit error rate 1e-12", _DCGM,
                               count=3, window=5),
    "PCIeReplayRateGen6": _row(3.84, "replays per lane and minute", "bit error rate 1e-12", _DCGM,
                               count=3, window=5),
    "PcieAerUncorrected": _row(1, "errors since the last finding, or the first look",
                               "a sound link never loses a packet for good; the kernel counts "
                               "what it also prints", "Linux PCI core", count=2, window=2),
    # NVLink
    "NVLinkDown": _row(1, "links down", "a link of the design topology is not "
                                        "active, and that lasts",
                       _NVML, clear=0, count=3, window=5),
    "NVLinkStateUnknown": _row(1, "links in no known state",
                               "a newer driver may know more states than this version", _OURS,
                               clear=0, count=3, window=5),
    "NVLinkErrorRate": _row(100, "CRC errors per second",
                            "above this the link replays all the time",
                            _DCGM, clear=1, count=3, window=5),
    "NVLinkRecoveryRate": _row(1, "recoveries, replays or bad packets per minute",
                               "a sound link never has to retrain, nor to drop a packet", _DCGM,
                               clear=0, count=3, window=5),
    "NVLinkBitErrors": _row(1e-12, "wrong bits of all bits after error correction",
                            "nothing wrong should be left after it", "InfiniBand specification",
                            clear=1e-14, count=3, window=5),
    "C2CLinkDown": _row(1, "links down", "a link between GPU and CPU is down while others are up",
                        _NVML, clear=0, count=2, window=3),
    "C2CErrorRate": _row(100, "CRC errors per second",
                         "nobody publishes a limit; the one of an NVLink is taken", _OURS,
                         clear=1, count=3, window=5),
    "FabricStateFailed": _row(1, "flag", "registration with the fabric failed", _NVML,
                              clear=0, count=3, window=5),
    "FabricDegraded": _row(1, "flag", "the fabric runs with reduced bandwidth", _NVML,
                           clear=0, count=3, window=5),
    # memory: counters and flags, one confirming re-read
    "EccUncorrectableVolatile": _row(1, "errors since the driver loaded",
                                     "data was lost at least once", _MEMORY, count=2, window=2),
    "EccCorrectedStorm": _row(100, "corrected errors in each ten minutes of an hour",
                              "chance and a hot hour bring a few; so many, without a pause, come "
                              "from "
                              "one bad place", _OURS, clear=10),
    "EccCorrectedStormSiblings": _row(10, "times the median of the node's other GPUs",
                                      "what all GPUs of a node show is not this GPU's fault",
                                      _OURS),
    "EccSramThreshold": _row(1, "flag", "the GPU itself says its SRAM errors are too many",
                             _MEMORY, count=2, window=2),
    "RowRemapFailure": _row(1, "flag", "a bank has no spare row left", _MEMORY, count=2, window=2),
    "RowRemapPending": _row(1, "flag", "the spare row is used after the next reset", _MEMORY,
                            count=2, window=2),
    "RowRemapMany": _row(512, "rows remapped for uncorrectable errors",
                         "the most a GPU has spare rows for", _DCGM, count=2, window=2),
    "MemorySparesExhausted": _row(1, "banks or bank groups without a spare",
                                  "the next uncorrectable error there cannot be remapped", _MEMORY,
                                  count=2, window=2),
    "RepairPending": _row(1, "flag", "the spare channel or TPC is used after the next reset",
                          _NVML,
                          count=2, window=2),
    "RetiredPagesPending": _row(1, "flag", "the page is retired at the next reset", _MEMORY,
                                count=2, window=2),
    "RetiredPagesMany": _row(15, "pages", "a quarter of the table of retired pages is used up",
                             _DCGM,
                             count=2, window=2),
    # dcgm-exporter beside NVML
    "SourcesDiffer": _row(1, "difference of a flag or counter",
                          "each source reads on its own clock, at most a minute apart: only what "
                          "lasts "
                          "through ten pages is no delay", _OURS, clear=0, count=8, window=10),
    "SourcesDifferTemperature": _row(15, "degrees Celsius of difference",
                                     "a GPU warms up and cools down by less within a minute of "
                                     "steady "
                                     "work", _OURS, clear=10, count=8, window=10),
    # kernel log
    "CommonCause": _row(0.5, "share of the node's GPUs",
                        "GPUs fail one by one; half of them at once have something in common",
                        _OURS),
    "CommonCauseWindow": _row(60, "seconds", "one poll of the tier that reads links and fabric",
                              _OURS),
    "IncidentGrouping": _row(5, "seconds", "one fault prints the same Xid many times", _OURS),
    "ContextDelay": _row(2, "seconds", "members of a burst and the driver's answer "
                                       "arrive within it",
                         _OURS),
    "AnswerDelay": _row(30, "seconds",
                        "Xid 109 and 155 mean what the driver's recovery action says, which is "
                        "read "
                        "every 15 s", _OURS),
    "RepeatBursts": _row(3, "bursts of Xid 13 or 31",
                         "a program crashes now and then, hardware again and again", _OURS),
    "RepeatWindow": _row(86400, "seconds", "the bursts must fall within a day", _OURS),
    "RepeatWorkloads": _row(2, "workloads", "one crash-looping program is not bad hardware",
                            _OURS),
    # what adds up (the ledger)
    "FlapClosings": _row(3, "endings of a state within FlapWindow",
                         "from there on it is one trouble that comes and goes", _OURS),
    "FlapWindow": _row(3600, "seconds", "and it is over when it stayed away as long", _OURS),
    "RepairsThatDidNotLast": _row(2, "resets, or restarts, after which the same reason came again",
                                  "a repair that failed twice will fail again: the next heavier "
                                  "one",
                                  "GPUd"),
    "RepairWindow": _row(7 * 86400, "seconds", "what comes again later may be new", _OURS),
    "BudgetWindow": _row(86400, "seconds", "daily budgets", _OURS),
    "ContainedErrorsOften": _row(6, "Xids 94 within BudgetWindow",
                                 "each one costs a program; chance does not bring so many", _OURS),
    "NVLinkErrorsOften": _row(10, "recoveries, replays or bad packets within BudgetWindow",
                              "a sound link has none, a bad one may have too few for a rate",
                              _OURS),
    "GPULostOften": _row(5, "times lost and back within BudgetWindow",
                         "one failed poll is a hiccup, one every few hours is not", _OURS),
    # foresight: hours in which one GPU is worse than its siblings
    "ForesightWindow": _row(7 * 86400, "seconds", "days of warning before a link or board fails",
                            "NVLink that failed 5 days after 3 recoveries in 21 minutes"),
    "ForesightSiblings": _row(10, "times the median of the node's other GPUs in the same hour",
                              "what all GPUs of a node show is not this GPU's fault", _OURS),
    "ForesightUtilization": _row(90, "percent", "clocks compare under full load only", _OURS),
    "NVLinkRecoveriesAnHour": _row(1, "recoveries in an hour", "a sound link has none", _OURS),
    "NVLinkRecoveriesCreeping": _row(3, "such hours within ForesightWindow",
                                     "one hiccup is chance, three hours of one GPU alone are not",
                                     _OURS),
    "PCIeReplaysAnHour": _row(60, "replays in an hour", "one a minute is far below any limit",
                              _OURS),
    "PCIeReplaysCreeping": _row(12, "such hours within ForesightWindow",
                                "half a day of one GPU alone is no burst of traffic", _OURS),
    "RowRemapsAnHour": _row(1, "correctable rows remapped in an hour",
                            "a sound GPU remaps a few in its life",
                            _OURS),
    "RowRemapsCreeping": _row(3, "such hours within ForesightWindow",
                              "a GPU with 8 correctable remaps hung its monitor; its siblings had "
                              "none",
                              "seen in the field"),
    "ClockBesideSiblings": _row(0.9, "share of the median clock of GPUs under the same load",
                                "sound GPUs of a node differ by a few per cent", _OURS),
    "SlowerThanSiblings": _row(12, "such hours within ForesightWindow",
                               "half a day under load; a job's odd share of work ends sooner",
                               _OURS),
    # host
    "HungNvidiaTask": _row(1, "looks that find the task in D state",
                           "a driver call that does not come back in five minutes", "GPUd",
                           clear=0, count=5, window=5),
    "ZombieNvidiaTask": _row(1, "looks that find the task a zombie",
                             "a parent takes notice of an ended child in seconds", _OURS,
                             clear=0, count=5, window=5),
    "FabricManagerStopped": _row(1, "flag", "a restart on purpose is over in less than five looks",
                                 _OURS, clear=0, count=5, window=5),
    "PersistenceModeOff": _row(1, "flag", "the mode is set once, some time after the driver loads",
                               _OURS, clear=0, count=5, window=5),
    "ImexStopped": _row(1, "flag", "a restart on purpose is over in less than five looks", _OURS,
                        clear=0, count=5, window=5),
    "PeermemMissing": _row(1, "flag", "the module is loaded some time after the driver", _OURS,
                           clear=0, count=5, window=5),
    "NetworkPortDown": _row(240, "seconds", "a flap recovers by itself in less", _OURS),
    "NetworkPortErrors": _row(12, "errors per minute of a port",
                              "bit error rate 1e-12 at 200 Gb/s", "InfiniBand specification",
                              clear=0, count=3, window=5),
    "BootGrace": _row(900, "seconds", "drivers load late on a fresh node", _OURS),
    "HungCall": _row(5, "seconds", "an NVML call that takes longer says nothing", _OURS),
}  # fmt: skip

FLAG: Final = _row(1, "flag", "bad is bad", _OURS, clear=0)
"""Of what has no numbers."""

DEFAULT_RULES: Final = Thresholds(thresholds=dict(_DEFAULTS))


def parse_rules(text: bytes) -> Thresholds:
    """Read a rules file (YAML); RulesError names the path inside it and the remedy."""
    # Imported here: only the edge that was given a file pays for the YAML parser.
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
            f"rules file: $.thresholds.{unknown[0]} is no threshold; "
            f"use one of {', '.join(sorted(_DEFAULTS))}."
        )
    nameless = next((code for code in file.reasons if not is_reason_code(code)), None)
    if nameless is not None:
        raise RulesError(
            f"rules file: $.reasons.{nameless[:80]!r} is no reason; give one like "
            "Xid31MemoryPageFault."
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
            f"rules file: $.thresholds.{name} needs 1 <= count <= window <= 1000, "
            f"not {merged.count} of {merged.window}."
        )
    if not (0 <= merged.value < math.inf and 0 <= merged.clear < math.inf):
        raise RulesError(f"rules file: $.thresholds.{name} needs numbers from 0 up.")
    return merged
