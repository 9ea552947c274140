"""The driver's services and modules on the host: which of them is missing where it is needed.

Called by `judge.facts.sources.take_host`. Absence alone is never a finding: a service may run in a
container, on another machine of the rack, or not be needed. It takes a service that ran earlier in
this boot, or GPUs that show what its absence does. Nothing here is above Degraded, Report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import structs

from rules.catalog.reason import ClosesKind
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Threshold
from rules.judge.facts.checks import LINK_DOWN
from rules.judge.facts.standing import (
    WHOLE,
    Check,
    Look,
    Renewed,
    close_standing,
    flag,
    is_raised,
    judge_check,
    looked,
    number_of,
    remembered,
)
from rules.judge.gauge import Gauge
from rules.judge.incident import Scope
from rules.judge.observation import (
    NVIDIA_VENDOR,
    NVSWITCH_CLASS,
    HostSeen,
    Service,
    SourceName,
    SourceState,
)
from rules.judge.state import GpuView, Judging, NodeState, ServiceView, close_where
from rules.judge.topology import FABRIC_COMPLETED, Interconnect, interconnect, nvlink_domain

PROPRIETARY: Final = "P"
"""In a module's taint: the proprietary flavour of the driver. Source: Linux, tainted kernels."""
NOT_SEEN: Final = "NotSeen"
_RAN: Final = "ran earlier in this boot and does not run now"
_PEER_MEMORY: Final = ("nvidia_peermem", "nv_peer_mem")


class Host(NamedTuple):
    """A look at the host, and what is known of its GPUs."""

    state: NodeState
    seen: HostSeen


def judge_services(on: Judging, seen: HostSeen) -> Judging:
    """Take one look, unless the driver is coming, going, or out of sight."""
    reasons = {check.reason for check in CHECKS}
    on = close_where(on, lambda i: i.rebooted and i.row.reason in reasons, ClosesKind.REBOOT)
    on = on.then(structs.replace(on.state, services=_services(on.state, seen)))
    if not _settled(on):
        return on
    for check in CHECKS:
        look = looked(on, check, Host(on.state, seen))
        on = _counted_unseen(on, check, unseen=not look and not seen.services)
        if look:
            on = judge_check(on, check, look, SourceName.HOST)
    return on


def _counted_unseen(on: Judging, check: Check[Host], *, unseen: bool) -> Judging:
    """What was found while the services were in sight does not outlast that for ever.

    Nobody can say any more that it stands, or that it ended.
    """
    key = check.reason + NOT_SEEN
    old = remembered(on.state, key).get(WHOLE, Gauge())
    looks = old.step(bad=unseen, good=not unseen, threshold=check.limit(on.thresholds))
    on = on.remember(key, {WHOLE: looks})
    if not looks.raised or not is_raised(on.state, check.reason):
        return on
    return close_standing(on.remember(check.reason, {}), check.reason, None, NOT_SEEN)


def _services(state: NodeState, seen: HostSeen) -> dict[Service, ServiceView]:
    """Out of sight, what ran is remembered and what runs is not known."""
    return {
        service: ServiceView(
            running=seen.services.get(service),
            ran=seen.services.get(service, False) or _view(state, service).ran,
        )
        for service in Service
        if service in seen.services or service in state.services
    }


def _settled(on: Judging) -> bool:
    """Services come up after the boot, and go with the driver that is taken away on purpose."""
    return (
        on.state.source(SourceName.NVML) is SourceState.UP
        and not on.state.standing_down
        and on.now >= on.state.node.booted_at + on.thresholds["BootGrace"].value
    )


def _fabric_manager(host: Host, _: Threshold) -> Look | None:
    """NVSwitches of this machine need one; those of a rack have theirs in the switch trays."""
    state = host.state
    view = _view(state, Service.FABRIC_MANAGER)
    if view.running is None or _rack(state):
        return None
    own_switches = _switches_on_bus(state)
    if not own_switches and not _behind_switches(state):
        return None
    if view.running:
        return flag(bad=False, evidence="")
    if view.ran:
        return flag(bad=True, evidence=f"{Service.FABRIC_MANAGER.value} {_RAN}")
    fabric = [f for v in _gpus(state) if (f := number_of(v.values.get(Signal.FABRIC_STATE)))]
    waiting = sum(f != FABRIC_COMPLETED for f in fabric)
    if fabric:
        said = f"{waiting} of {len(fabric)} GPUs are not registered with the fabric"
        return flag(bad=waiting > 0, evidence=f"{said} and {_unseen(Service.FABRIC_MANAGER)}")
    dark = _all_links_down(state)
    if dark is None or not own_switches:
        return None
    # Before Hopper there is no fabric state, and it is the fabric manager that trains the links.
    # Switches that a service machine holds are its business: a guest may have no link by design.
    return flag(bad=dark, evidence=f"no NVLink is up and {_unseen(Service.FABRIC_MANAGER)}")


def _persistence(host: Host, _: Threshold) -> Look | None:
    state = host.state
    view = _view(state, Service.PERSISTENCED)
    modes = [
        m
        for v in _gpus(state)
        if (m := number_of(v.values.get(Signal.PERSISTENCE_MODE))) is not None
    ]
    if view.running is None or not modes:
        return None
    off = sum(not mode for mode in modes)
    said = f"persistence mode is off on {off} of {len(modes)} GPUs"
    return flag(
        bad=off > 0 and not view.running, evidence=f"{said} and {_unseen(Service.PERSISTENCED)}"
    )


def _imex(host: Host, _: Threshold) -> Look | None:
    """Of use only where GPUs of several nodes share an NVLink domain; often it runs per
    workload.
    """
    state = host.state
    view = _view(state, Service.IMEX)
    if view.running is None or state.topology is None or not nvlink_domain(state.topology):
        return None
    return flag(bad=view.ran and not view.running, evidence=f"{Service.IMEX.value} {_RAN}")


def _peer_memory(host: Host, _: Threshold) -> Look | None:
    """The open flavour of the driver shares memory by dma-buf and needs no such module."""
    seen = host.seen
    driver = seen.modules.get("nvidia")
    if driver is None or not any(port.infiniband for port in seen.ports):
        return None
    missing = PROPRIETARY in driver and not any(name in seen.modules for name in _PEER_MEMORY)
    return flag(
        bad=missing,
        evidence="an InfiniBand adapter and the proprietary driver, but no module nvidia_peermem",
    )


def _check(
    reason: str, measure: Callable[[Host, Threshold], Look | None], scope: Scope = Scope.NODE
) -> Check[Host]:
    return Check(
        reason=reason, measure=measure, scope=scope, counts=True, renewed=Renewed.EACH_LOOK
    )


CHECKS: Final = (
    _check("FabricManagerStopped", _fabric_manager),
    _check("PersistenceModeOff", _persistence),
    _check("ImexStopped", _imex, Scope.DOMAIN),
    _check("PeermemMissing", _peer_memory),
)


def _behind_switches(state: NodeState) -> bool:
    """By what sits at the far end of the GPUs' links."""
    return state.topology is not None and interconnect(state.topology) is Interconnect.NVSWITCH


def _switches_on_bus(state: NodeState) -> bool:
    return any(
        function.vendor == NVIDIA_VENDOR and function.device_class == NVSWITCH_CLASS
        for function in state.functions
    )


def _rack(state: NodeState) -> bool:
    """Whether the NVSwitches are the rack's: an NVLink domain, or links to a Grace processor."""
    named = state.topology is not None and bool(nvlink_domain(state.topology))
    return named or any(view.values.get(Signal.C2C_STATES) for view in _gpus(state))


def _all_links_down(state: NodeState) -> bool | None:
    """None where no link tells; with MIG on, links are off by design."""
    states = [
        link
        for view in _gpus(state)
        if not view.seen.mig_mode
        and isinstance(links := view.values.get(Signal.NVLINK_STATES), tuple)
        for link in links
        if link is not None
    ]
    return all(link == LINK_DOWN for link in states) if states else None


def _gpus(state: NodeState) -> list[GpuView]:
    return [view for view in state.gpus.values() if view.enumerated]


def _view(state: NodeState, service: Service) -> ServiceView:
    return state.services.get(service, ServiceView())


def _unseen(service: Service) -> str:
    return f"no {service.value} is seen running"
