"""Check the host: hung tasks, the fabric manager.

A hung task is reported by the kernel log; it ends with a reboot, or when the log is silent and all
GPUs answer. A fabric manager is missed only if it ran earlier in this boot. No finding is above
Degraded, Report.
"""

from typing import Final, NamedTuple

from rules.catalog.reason import ClosesKind
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Threshold
from rules.judge import observation, present, recording
from rules.judge.facts import standing
from rules.judge.facts.standing import Check, CheckResult
from rules.judge.incident import Scope
from rules.judge.memory import Gauge
from rules.judge.observation import HostSeen, Service, SourceName, SourceState
from rules.judge.present import Present
from rules.judge.state import Judging, NodeState, ServiceView
from rules.judge.topology import Interconnect, interconnect, nvlink_domain

HUNG: Final = "HungNvidiaTask"
_REPEATS_WITHIN_S: Final = 150.0
"""The kernel checks for hung tasks every 120 s and reports each that still hangs. Source: Linux
kernel.hung_task_timeout_secs, its default plus slack."""


def end_hung_tasks(on: Judging) -> Judging:
    """Close hung tasks once the kernel log is silent about them and all GPUs answer."""
    on = recording.close_where(
        on, lambda i: i.rebooted and i.row.reason == HUNG, ClosesKind.REBOOT
    )
    hung = [i for i in on.state.incidents if i.active and i.row.reason == HUNG]
    if not hung:
        return on.remember(HUNG, Gauge())
    over = all(
        on.now - i.last_seen > _REPEATS_WITHIN_S
        and present.present_of(on.state, i, since=i.last_seen) is Present.GOOD
        for i in hung
    )
    old = standing.memory_of(on.state, HUNG) or Gauge()
    new = old.step(bad=False, good=over, threshold=on.thresholds[HUNG])
    on = on.remember(HUNG, new)
    if not new.over(on.thresholds[HUNG]):
        return on
    return standing.close_standing(on, HUNG, None, ClosesKind.STATE)


NO_SERVICES: Final = "NotSeen"


class Host(NamedTuple):
    """A poll of the host and the state of its GPUs."""

    state: NodeState
    seen: HostSeen


def _fabric_manager(host: Host, _: Threshold) -> CheckResult | None:
    """Return whether a fabric manager that ran in this boot has stopped.

    NVSwitches of this machine need one; in a rack it runs in the switch trays. One that never ran
    shows in the GPUs: they do not register with the fabric, or no link comes up.
    """
    view = _view(host.state, Service.FABRIC_MANAGER)
    if view.running is None or not view.ran or not _has_own_switches(host.state):
        return None
    evidence = f"{Service.FABRIC_MANAGER.value} ran earlier in this boot and is not running now"
    return standing.flag(bad=not view.running, evidence=evidence)


_FABRIC_MANAGER: Final = Check(
    reason="FabricManagerStopped",
    measure=_fabric_manager,
    scope=Scope.NODE,
    counts=True,
    renews=True,
)


def judge_services(on: Judging, seen: HostSeen) -> Judging:
    """Take one poll of the services, unless the driver is starting, stopping or not visible."""
    check = _FABRIC_MANAGER
    on = recording.close_where(
        on, lambda i: i.rebooted and i.row.reason == check.reason, ClosesKind.REBOOT
    )
    on = on.replace(services=_services(on.state, seen))
    if not _settled(on):
        return on
    result = check.measure(Host(on.state, seen), check.limit(on.thresholds))
    on = _counted_unknown(on, check, no_data=not (result or seen.services))
    return standing.judge_check(on, check, result, SourceName.HOST) if result else on


def _counted_unknown(on: Judging, check: Check[Host], *, no_data: bool) -> Judging:
    """Close a finding about services after enough polls without data about them."""
    key = check.reason + NO_SERVICES
    old = standing.memory_of(on.state, key) or Gauge()
    polls = old.step(bad=no_data, good=not no_data, threshold=check.limit(on.thresholds))
    on = on.remember(key, polls)
    if not polls.raised or not standing.is_raised(on.state, check.reason):
        return on
    return standing.close_standing(
        on.remember(check.reason, Gauge()), check.reason, None, NO_SERVICES
    )


def _services(state: NodeState, seen: HostSeen) -> dict[Service, ServiceView]:
    """Return the services: whether each runs (None: unknown) and whether it ran in this boot."""
    return {
        service: ServiceView(
            running=seen.services.get(service),
            ran=seen.services.get(service, False) or _view(state, service).ran,
        )
        for service in Service
        if service in seen.services or service in state.services
    }


def _settled(on: Judging) -> bool:
    """Return whether services should run: not during boot, nor while the driver is released."""
    return (
        on.state.source(SourceName.NVML) is SourceState.UP
        and not on.state.standing_down
        and on.now >= on.state.node.booted_at + on.thresholds["BootGrace"].value
    )


def _has_own_switches(state: NodeState) -> bool:
    """Return whether the GPUs are connected by NVSwitches of this machine, not of a rack.

    A rack has an NVLink domain, or links to a Grace processor.
    """
    topology = state.topology
    if topology is not None and nvlink_domain(topology):
        return False
    if any(v.enumerated and v.values.get(Signal.C2C_STATES) for v in state.gpus.values()):
        return False
    return (topology is not None and interconnect(topology) is Interconnect.NVSWITCH) or any(
        function.vendor == observation.NVIDIA_VENDOR
        and function.device_class == observation.NVSWITCH_CLASS
        for function in state.functions
    )


def _view(state: NodeState, service: Service) -> ServiceView:
    return state.services.get(service, ServiceView())
