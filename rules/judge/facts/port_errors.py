"""Error rates of the InfiniBand and RoCE ports: a link that keeps losing data is a finding.

Called by `judge_sources.take_host`. A rate needs two looks at the same counters; where one of
them went back, the port starts afresh. What was not measured is neither good nor bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rules.catalog.reason import ClosesKind
from rules.catalog.reasons import REASONS
from rules.catalog.thresholds import Thresholds
from rules.judge.closing import close_where
from rules.judge.incident import Finding, Scope
from rules.judge.judging import Judging
from rules.judge.observation import HostSeen, NetworkPort, SourceName
from rules.judge.recording import record
from rules.judge.state import PortErrors

PORT_ERRORS: Final = "NetworkPortErrors"
_MAX_PORTS: Final = 64
_LONGEST_RATE_GAP_S: Final = 600.0
"""A rate over a longer gap says nothing about now. Source: gpuward, ten looks."""


def judge_port_errors(on: Judging, seen: HostSeen) -> Judging:
    """Take one look at the error counters; a host without adapters has none."""
    before = on.state.port_errors
    after = {
        port.name: _stepped(before.get(port.name), port, on.now, on.thresholds)
        for port in seen.ports[:_MAX_PORTS]
        if port.errors
    }
    if not after and not before:
        return on
    on = on.then(replace(on.state, port_errors=after))
    bad = sorted(name for name, view in after.items() if view.gauge.raised)
    if not bad:
        count = on.thresholds[PORT_ERRORS].count
        if after and all(sum(view.gauge.good) >= count for view in after.values()):
            return on.then(
                close_where(
                    on.state, lambda i: i.row.reason == PORT_ERRORS, on.now, ClosesKind.STATE
                )
            )
        return on
    fresh = [name for name in bad if name not in before or not before[name].gauge.raised]
    for name in fresh:
        grown = _grown(before[name].errors, after[name].errors) if name in before else {}
        kinds = " ".join(f"{kind}=+{more}" for kind, more in sorted(grown.items()) if more)
        finding = Finding(
            at=seen.at,
            row=REASONS[PORT_ERRORS],
            source=SourceName.HOST,
            evidence=f"network port {name} loses data: {kinds} since the last look",
            scope=Scope.NODE,
        )
        on = record(on, finding)
    return on


def _stepped(
    old: PortErrors | None, port: NetworkPort, now: float, thresholds: Thresholds
) -> PortErrors:
    """One port after a look."""
    if old is None:
        return PortErrors(at=now, errors=port.errors)
    grown = _grown(old.errors, port.errors)
    passed = now - old.at
    if min(grown.values(), default=-1) < 0 or not 0 < passed <= _LONGEST_RATE_GAP_S:
        return replace(old, at=now, errors=port.errors)
    per_minute = sum(grown.values()) * 60 / passed
    gauge = old.gauge.measure(per_minute, thresholds[PORT_ERRORS])
    return PortErrors(at=now, errors=port.errors, gauge=gauge)


def _grown(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    return {kind: count - old[kind] for kind, count in new.items() if kind in old}
