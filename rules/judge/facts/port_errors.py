"""Error rates of the InfiniBand and RoCE ports: a link that keeps losing data is a finding.

Called by `judge_sources.take_host`. A rate needs two looks at the same counters; where one of
them went back, the port starts afresh. What was not measured is neither good nor bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from rules.catalog.thresholds import Threshold
from rules.judge.facts.standing import Check, Look, Renewed, above, judge_check, looked, remembered
from rules.judge.gauge import Gauge
from rules.judge.incident import Scope
from rules.judge.judging import Judging
from rules.judge.observation import HostSeen, NetworkPort, SourceName
from rules.judge.state import PortErrors

_MAX_PORTS: Final = 64
_LONGEST_RATE_GAP_S: Final = 600.0
"""A rate over a longer gap says nothing about now. Source: gpuward, ten looks."""


class Ports(NamedTuple):
    """The ports that count errors, what each counted at the look before, and the time."""

    seen: Sequence[NetworkPort]
    before: Mapping[str, PortErrors]
    now: float


def _rates(ports: Ports, limit: Threshold) -> dict[str, Look]:
    looks = {}
    for port in ports.seen:
        old = ports.before.get(port.name)
        grown = _grown(old.errors, port.errors) if old else {}
        passed = ports.now - old.at if old else 0
        if min(grown.values(), default=-1) < 0 or not 0 < passed <= _LONGEST_RATE_GAP_S:
            continue
        kinds = " ".join(f"{kind}=+{more}" for kind, more in sorted(grown.items()) if more)
        evidence = f"network port {port.name} loses data: {kinds} since the last look"
        looks[port.name] = above(limit, sum(grown.values()) * 60 / passed, evidence)
    return looks


_CHECK: Final = Check(
    reason="NetworkPortErrors",
    measure=_rates,
    scope=Scope.NODE,
    counts=True,
    renewed=Renewed.NEVER,
)


def judge_port_errors(on: Judging, seen: HostSeen) -> Judging:
    """Take one look at the error counters; a host without adapters has none."""
    ports = [port for port in seen.ports[:_MAX_PORTS] if port.errors]
    looks = looked(on, _CHECK, Ports(ports, on.state.port_errors, on.now))
    counted = {port.name: PortErrors(at=on.now, errors=port.errors) for port in ports}
    if not counted and not on.state.port_errors:
        return on
    on = on.then(structs.replace(on.state, port_errors=counted))
    # A port that has just come says nothing yet, and is not good for that.
    fresh = dict.fromkeys(counted, Gauge())
    on = on.remember(_CHECK.reason, {**fresh, **remembered(on.state, _CHECK.reason)})
    return judge_check(on, _CHECK, looks, SourceName.HOST, keep=counted)


def _grown(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    return {kind: count - old[kind] for kind, count in new.items() if kind in old}
