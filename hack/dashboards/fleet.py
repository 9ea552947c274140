"""The fleet dashboard: is the fleet well, what is out of service, is it getting worse?"""

from __future__ import annotations

from hack.dashboards.grafana import (
    BAD,
    GOOD,
    HEALTH_COLOURS,
    PLAIN,
    WARN,
    Json,
    Query,
    Section,
    dashboard,
    grown,
    number,
    series,
    table,
)

_XIDS_A_DAY = grown(
    "gpuward_xid_total", "node, uuid, pci, xid", "1d", watched="gpuward_node_health", on="node"
)

_NOW = Section(
    title="Now",
    panels=(
        number("Nodes unhealthy", 'sum(gpuward_node_health{health="Unhealthy"})',
               steps=((None, GOOD), (1, BAD))),
        number("Nodes degraded", 'sum(gpuward_node_health{health="Degraded"})',
               steps=((None, GOOD), (1, WARN))),
        number("Nodes not seen", 'sum(gpuward_node_health{health="Unknown"})',
               help="Unknown is not failed: nothing is drained for it.",
               steps=((None, GOOD), (1, "purple"))),
        number("Out of service", "count(max by (node) (gpuward_open_session{"
               'mode="Enforce", '
               'phase=~"Marked|Draining|Quarantined|Repairing|Validating"})) or vector(0)',
               help="Nodes that carry gpuward's mark.", steps=((None, PLAIN),)),
        number("Budget in use", 'max(fleet:gpuward_budget_used_nodes:leader{scope="all"}'
               ' / fleet:gpuward_budget_size_nodes:leader{scope="all"})',
               help="Nodes unavailable for any reason, by what the policy allows.",
               unit="percentunit", steps=((None, GOOD), (0.8, WARN), (1, BAD))),
        number("Breaker", "fleet:gpuward_breaker_open:leader",
               words={"0": ("closed", GOOD), "1": ("OPEN", BAD)}),
    ),
)  # fmt: skip

_FAULTS = Section(
    title="Faults",
    panels=(
        table("Active faults",
              "max by (node, index, pci, reason, severity, level) (gpuward_incident_active"
              '{severity=~"Fatal|Degraded"}) > 0',
              help="What the agents judge now; records of severity Info are left out.", width=24),
        series("GPUs by health", Query(expr="fleet:gpuward_gpu_health:sum", legend="{{health}}"),
               colours=HEALTH_COLOURS, stacked=True),
        series("Nodes by health",
               Query(expr="fleet:gpuward_node_health:sum", legend="{{health}}"),
               colours=HEALTH_COLOURS, stacked=True),
        series("Faults by reason",
               Query(expr="topk(10, sum by (reason) (gpuward_incident_active"
                          '{severity=~"Fatal|Degraded"}))', legend="{{reason}}")),
        series("Xids a day", Query(expr=f"topk(10, sum by (xid) ({_XIDS_A_DAY}) > 0)",
                                   legend="Xid {{xid}}"),
               help="Most Xids are the program's; a number that climbs over weeks "
                    "is the fleet's."),
    ),
)  # fmt: skip

_SERVICE = Section(
    title="Out of service",
    panels=(
        table("Open sessions", "max by (node, phase, mode, severity, reason) "
                               "(gpuward_open_session)",
              width=14),
        table("What is in their way",
              "max by (node, condition, reason) (gpuward_open_session_condition)", width=10),
        series("Sessions by phase",
               Query(expr='max by (phase) (gpuward_sessions{mode="Enforce", '
                          'phase=~"Pending|Marked|Draining|Quarantined|Repairing|Validating"})',
                     legend="{{phase}}"), stacked=True),
        table("Common causes", "fleet:gpuward_node_common_cause:count or "
                               "fleet:gpuward_correlated_cause:leader",
              help="Nodes that share a reason and what few others share, drained for it or "
                   "only reported."),
    ),
)  # fmt: skip

_TRENDS = Section(
    title="Getting worse?",
    panels=(
        table("Memory that wears out",
              "(gpu:gpuward_ecc_uncorrected:increase7d > 0) or "
              "(gpu:gpuward_remapped_rows:increase7d > 0)",
              help="Uncorrectable errors or remapped rows added within a week, by GPU."),
        table("Least thermal margin", "bottomk(10, min by (node, index, pci) "
                                      "(gpuward_gpu_thermal_margin_celsius))",
              unit="celsius", help="Degrees to the slowdown threshold."),
        series("GPUs slowed down by heat",
               Query(expr='count(max by (node, uuid) '
                          '(gpuward_gpu_clock_event{reason=~"hardware_thermal|software_thermal"}) '
                          '== 1) or vector(0)',
                     legend="GPUs")),
        series("Nodes whose agent is silent",
               Query(expr="fleet:gpuward_agents_silent:leader", legend="nodes")),
    ),
)  # fmt: skip


def fleet() -> Json:
    """The dashboard."""
    return dashboard(
        "fleet",
        "gpuward / fleet",
        "Health of all GPU nodes, what is out of service and what wears out.",
        (_NOW, _FAULTS, _SERVICE, _TRENDS),
    )
