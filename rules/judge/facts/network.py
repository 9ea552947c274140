"""Check the network ports: down, missing, flapping, with errors or without device files.

A port that was never active is not in use. Counters are compared with the poll before: one that
went back was reset or has wrapped, and starts again. A counter at its ceiling has no data. No
finding is above Degraded, Report.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from rules.catalog import reasons
from rules.catalog.reason import ClosesKind
from rules.judge import memory, recording
from rules.judge.facts import checks, standing
from rules.judge.facts.checks_network import HOUR_S, PortSample
from rules.judge.facts.standing import Check
from rules.judge.incident import Finding, Incident, Scope
from rules.judge.memory import NODE, Gauge
from rules.judge.observation import HostSeen, NetworkPort, PortCounter, SourceName
from rules.judge.state import MAX_PORT_CHARS, Counter, Judging, PortView

PORT_DOWN: Final = "NetworkPortDown"
PORT_MISSING: Final = "NetworkPortMissing"
_MAX_PORTS: Final = 64
_LONGEST_RATE_GAP_S: Final = 600.0
"""A rate over a longer gap is not current. Source: gpuward."""

_CEILINGS: Final = {
    PortCounter.SYMBOL_ERRORS: (1 << 16) - 1,
    PortCounter.LINK_RECOVERIES: (1 << 8) - 1,
    PortCounter.LINK_DOWNED: (1 << 8) - 1,
    PortCounter.RECEIVE_ERRORS: (1 << 16) - 1,
}
"""Where counters of InfiniBand's PortCounters attribute stay. Source: InfiniBand specification."""
_DOWNS: Final = (PortCounter.LINK_DOWNED, PortCounter.CARRIER_DOWN)
_HOURLY: Final = (PortCounter.SYMBOL_ERRORS, PortCounter.EFA_COMMANDS_LOST)
_FLAPS: Final = "flaps"


def judge_ports(on: Judging, seen: HostSeen) -> Judging:
    """Take one poll of the network ports."""
    down = _named(on, PORT_DOWN)
    clipped = (replace(port, name=port.name[:MAX_PORT_CHARS]) for port in seen.ports[:_MAX_PORTS])
    present = {port.name: port for port in clipped}
    views, samples = {}, {}
    for name, port in present.items():
        before = on.state.ports.get(name, PortView())
        counted, samples[name] = _counted(before, port, on.now)
        views[name] = _stepped(counted, port, on.now, known=name in down)
    for name, view in _absent(on, present).items():
        since = on.now if view.missing_since is None else min(view.missing_since, on.now)
        moved = seen.ports_move
        views[name] = replace(
            view, missing_since=None if moved else since, active=False, counters={}
        )
        if not moved:
            samples[name] = PortSample(name=name, missing_s=on.now - since)
    on = _judge_down(on.replace(ports=views), seen, known=bool(down))
    for check in checks.PORTS:
        on = _judge_check(on, check, samples)
    return on


def _named(on: Judging, reason: str) -> frozenset[str]:
    """Return the ports of the active incident: an earlier agent saw them active."""
    return frozenset(
        name
        for incident in on.state.incidents
        if incident.active and incident.row.reason == reason
        for name in incident.ports
    )


def _absent(on: Judging, present: Mapping[str, NetworkPort]) -> dict[str, PortView]:
    """Return the ports that were active and are absent.

    A missing port that an operator reported as replaced is no longer expected after a reboot.
    """
    known = {name: view for name, view in on.state.ports.items() if view.was_active}
    for incident in on.state.incidents:
        current = incident.active and incident.first_seen >= on.state.node.repaired_at
        if current and incident.row.reason == PORT_MISSING:
            known = {name: PortView(was_active=True) for name in incident.ports} | known
    absent = [name for name in sorted(known) if name not in present]
    return {name: known[name] for name in absent[: _MAX_PORTS - len(present)]}


def _judge_down(on: Judging, seen: HostSeen, *, known: bool) -> Judging:
    """Judge which ports are down, from their views."""
    ports = on.state.ports
    since = {name: view.down_since for name, view in ports.items() if view.down_since is not None}
    if ports and not since:
        return recording.close_where(on, lambda i: i.row.reason == PORT_DOWN, ClosesKind.STATE)
    down = [
        name
        for name, at in since.items()
        if not ports[name].good_polls and on.now - at >= on.thresholds[PORT_DOWN].value
    ]
    if known or not down:
        return on
    finding = Finding(
        at=seen.at,
        row=reasons.REASONS[PORT_DOWN],
        source=SourceName.HOST,
        evidence=f"network ports that were active and are down: {', '.join(sorted(down))}",
        ports=tuple(sorted(down)),
        scope=Scope.NODE,
    )
    return recording.record(on, finding)


def _stepped(view: PortView, port: NetworkPort, now: float, *, known: bool) -> PortView:
    """Return the state of one port after a poll."""
    view = replace(view, missing_since=None)
    if port.active is None:
        return view
    view = replace(view, active=port.active, was_active=view.was_active or port.active)
    if port.active:
        good = view.good_polls + 1
        if view.down_since is None or good >= reasons.REASONS[PORT_DOWN].closes_on.count:
            return replace(view, down_since=None, good_polls=0)
        return replace(view, good_polls=good)
    if not view.was_active and not known:
        return view
    since = now if view.down_since is None else min(view.down_since, now)
    return replace(view, down_since=since, good_polls=0)


def _counted(view: PortView, port: NetworkPort, now: float) -> tuple[PortView, PortSample]:
    """Return the view with the counters of this poll, and what they show."""
    values = {c: value for c, value in port.counters.items() if value != _CEILINGS.get(c)}
    rates = {
        counter: (value - base.value) / (now - base.at)
        for counter, value in values.items()
        if (base := view.counters.get(counter)) is not None
        and 0 < now - base.at <= _LONGEST_RATE_GAP_S
        and value >= base.value
    }
    went_down = int(view.active and port.active is False)
    downs = max(went_down, *(_increase(view, values, rates, each) for each in _DOWNS))
    if downs or not (view.active and port.active):
        rates = {}  # a link that is down or trains counts errors of no packet
    recent = memory.noted(view.recent, NODE, _FLAPS, now, HOUR_S, count=downs)
    for counter in _HOURLY:
        more = _increase(view, values, rates, counter)
        recent = memory.noted(recent, NODE, counter, now, HOUR_S, count=more)

    def within_hour(what: str) -> int:
        return memory.total(recent, (NODE,), what, now - HOUR_S, now)

    since = now if view.counted_since is None else min(view.counted_since, now)
    sample = PortSample(
        name=port.name,
        rates=rates,
        last_hour={each: within_hour(each) for each in _HOURLY if each in values},
        counted_s=now - since,
        flaps=None if port.active is None else within_hour(_FLAPS),
        missing_files=port.missing_files if port.active else None,
    )
    counters = {each: Counter(at=now, value=value) for each, value in values.items()}
    return replace(view, counters=counters, recent=recent, counted_since=since), sample


def _increase(
    view: PortView,
    values: Mapping[PortCounter, int],
    rates: Mapping[PortCounter, float],
    counter: PortCounter,
) -> int:
    return int(values[counter] - view.counters[counter].value) if counter in rates else 0


def _judge_check(
    on: Judging, check: Check[PortSample], samples: Mapping[str, PortSample]
) -> Judging:
    """Take the results of one check of all ports; the node has one incident for them."""
    limit, views = check.limit(on.thresholds), dict(on.state.ports)
    known = _named(on, check.reason)
    evidence = []
    for name, sample in samples.items():
        result = check.measure(sample, limit)
        if result is None:
            continue
        old = views[name].checks.get(check.reason, Gauge())
        new = old.step(bad=result.bad, good=result.good, threshold=limit)
        if new is not old:
            views[name] = replace(views[name], checks={**views[name].checks, check.reason: new})
        if new.raised and result.bad and name not in known:
            evidence.append(result.evidence)
    on = on.replace(ports=views)
    gauges = {name: view.checks.get(check.reason, Gauge()) for name, view in views.items()}
    raised = tuple(sorted(name for name, gauge in gauges.items() if gauge.raised))
    if evidence:
        finding = Finding(
            at=on.now,
            row=reasons.REASONS[check.reason],
            source=SourceName.HOST,
            evidence="; ".join(evidence),
            ports=raised,
            scope=check.scope,
        )
        return standing.record_standing(on, finding)

    def over(incident: Incident) -> bool:
        ports = [gauges[name] for name in incident.ports if name in gauges]
        if incident.row.reason != check.reason or raised:
            return False
        return all(each.over(limit) for each in ports) if ports else incident.rebooted

    return recording.close_where(on, over, ClosesKind.STATE)
