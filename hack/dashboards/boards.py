"""The three dashboards: the fleet, one node, the remediator."""

from __future__ import annotations

from typing import Any

from hack.dashboards.grafana import (
    BAD,
    GOOD,
    HEALTH_COLOURS,
    PLAIN,
    WARN,
    Json,
    Panel,
    Query,
    Section,
    dashboard,
    grown,
    number,
    series,
    table,
    variable,
)

_XIDS_A_DAY = grown(
    "gpuward_xid_total", "node, uuid, pci, xid", "1d", watched="gpuward_node_health", on="node"
)

_FLEET_NOW = Section(
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

_FLEET_FAULTS = Section(
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

_FLEET_SERVICE = Section(
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

_FLEET_TRENDS = Section(
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
    """Return the dashboard."""
    return dashboard(
        "fleet",
        "gpuward / fleet",
        "Health of all GPU nodes, what is out of service and what wears out.",
        (_FLEET_NOW, _FLEET_FAULTS, _FLEET_SERVICE, _FLEET_TRENDS),
    )


_N = 'node="$node"'


def _gpu(title: str, metric: str, legend: str = "GPU {{index}}", **options: Any) -> Panel:
    return series(title, Query(expr=f"{metric}{{{_N}}}", legend=legend), **options)


def _grown(
    title: str, counter: str, label: str = "", watched: str = "gpuward_gpu_read", **more: str
) -> Panel:
    """Events within an hour by GPU; none is no line."""
    matchers = ", ".join([_N, *(f'{name}="{value}"' for name, value in more.items())])
    expr = grown(
        f"{counter}{{{matchers}}}",
        f"index, {label}" if label else "index",
        "1h",
        watched=f"{watched}{{{_N}}}",
        on="index" if watched == "gpuward_gpu_read" else "",
    )
    legend = f"GPU {{{{index}}}} {{{{{label}}}}}" if label else "GPU {{index}}"
    return series(title, Query(expr=f"{expr} > 0", legend=legend))


_NODE_NOW = Section(
    title="Now",
    panels=(
        table("Health", f"max by (health) (gpuward_node_health{{{_N}}}) == 1", width=6, height=5),
        number("GPUs expected", f"max(gpuward_node_gpus_expected{{{_N}}})", width=3, height=5),
        number("Usable GPUs", f"max(gpuward_node_gpus_healthy{{{_N}}})", width=3, height=5,
               help="No value while the GPUs cannot be seen."),
        table("Session", f"max by (phase, mode, severity, reason) (gpuward_open_session{{{_N}}})",
              width=6, height=5),
        table("Conditions", f"max by (condition, reason) (gpuward_open_session_condition{{{_N}}})",
              width=6, height=5),
        table("Active incidents",
              "max by (index, pci, uuid, reason, severity, level) "
              f"(gpuward_incident_active{{{_N}}}) > 0", width=12),
        table("GPUs", "max by (index, pci, uuid, product, serial, vbios, driver) "
                      f"(gpuward_gpu_info{{{_N}}})", width=12),
    ),
)  # fmt: skip

_NODE_HEAT = Section(
    title="Heat, power, clocks",
    panels=(
        _gpu("Temperature", "gpuward_gpu_temperature_celsius", "GPU {{index}} {{sensor}}",
             unit="celsius"),
        _gpu("Margin to slowdown", "gpuward_gpu_thermal_margin_celsius", unit="celsius",
             steps=((None, WARN), (5, GOOD))),
        _gpu("Power", "gpuward_gpu_power_watts", unit="watt"),
        _gpu("SM clock", "gpuward_gpu_sm_clock_hertz", unit="hertz"),
        _gpu("Utilization", "gpuward_gpu_utilization_ratio", unit="percentunit"),
        series("Clocks kept down",
               Query(expr="max by (index, reason) (gpuward_gpu_clock_event{" + _N
                     + ', reason!="idle"}) == 1', legend="GPU {{index}} {{reason}}")),
    ),
)  # fmt: skip

_NODE_MEMORY = Section(
    title="Memory",
    panels=(
        _grown("ECC errors an hour", "gpuward_gpu_ecc_errors_total", "kind",
               memory="all", scope="volatile"),
        _gpu("Remapped rows", "gpuward_gpu_remapped_rows_total", "GPU {{index}} {{cause}}"),
        table("Repairs that wait for a reset",
              f"max by (index, pci, repair) (gpuward_gpu_repair_pending{{{_N}}}) == 1"),
        table("Beyond repair",
              f"(max by (index, pci) (gpuward_gpu_row_remap_failed{{{_N}}}) == 1) or "
              f"(max by (index, pci) (gpuward_gpu_unrepairable_memory{{{_N}}}) == 1) or "
              f"(max by (index, pci) (gpuward_gpu_sram_threshold_exceeded{{{_N}}}) == 1)",
              help="Row remap failed, memory unrepairable, or too many SRAM errors."),
    ),
)  # fmt: skip

_NODE_LINKS = Section(
    title="Links",
    panels=(
        _gpu("PCIe lanes", "gpuward_gpu_pcie_lanes", "GPU {{index}} {{value}}"),
        _grown("PCIe errors an hour", "gpuward_gpu_pcie_errors_total", "kind"),
        _grown("PCIe replays an hour", "gpuward_gpu_pcie_replays_total"),
        _grown("NVLink errors an hour", "gpuward_gpu_nvlink_errors_total", "kind"),
        table("NVLinks down", f"max by (index, pci, link) (gpuward_gpu_nvlink_up{{{_N}}}) == 0"),
        _grown("Xids an hour", "gpuward_xid_total", "xid", watched="gpuward_node_health"),
    ),
)  # fmt: skip

_NODE_AGENT = Section(
    title="The agent",
    panels=(
        table("Sources", "max by (source, state, reason) "
              f"(gpuward_source_info{{{_N}}})", width=8),
        series("Seconds since a source spoke",
               Query(expr="time() - max by (source) "
                     f"(gpuward_source_last_success_timestamp_seconds{{{_N}}})",
                     legend="{{source}}"), unit="s", width=8),
        series("Failed attempts to publish",
               Query(expr=f"max(gpuward_publish_failures{{{_N}}})", legend="attempts"), width=8),
        series("Kernel line to API server, 99 of 100 below",
               Query(expr="histogram_quantile(0.99, sum by (le) (rate("
                     f"gpuward_kernel_line_published_seconds_bucket{{{_N}}}[1h])))",
                     legend="published"), unit="s", width=8),
        series("Kernel records", Query(expr="sum by (result) (rate("
               f"gpuward_kernel_records_total{{{_N}}}[5m]))", legend="{{result}}"), width=8),
        series("GPUs by health", Query(expr=f"sum by (health) (gpuward_gpu_health{{{_N}}})",
               legend="{{health}}"), colours=HEALTH_COLOURS, stacked=True, width=8),
    ),
)  # fmt: skip


def node() -> Json:
    """Return the dashboard."""
    return dashboard(
        "node",
        "gpuward / node",
        "One node: its GPUs, its links, its session and its agent.",
        (_NODE_NOW, _NODE_HEAT, _NODE_MEMORY, _NODE_LINKS, _NODE_AGENT),
        (variable("node", "Node", "label_values(gpuward_node_health, node)"),),
    )


_REMEDIATOR_NOW = Section(
    title="Now",
    panels=(
        number("Leaders", "sum(gpuward_leader)", steps=((None, BAD), (1, GOOD), (2, BAD)),
               help="One, or for a few seconds none."),
        number("Mode", "max(gpuward_enforcing)",
               words={"0": ("Shadow", WARN), "1": ("Enforce", GOOD)}),
        number("Policy", "min(gpuward_policy_reload_ok) - max(gpuward_policy_unread)",
               words={"-1": ("NONE READ", BAD), "0": ("INVALID", BAD), "1": ("valid", GOOD)},
               help="NONE READ: a replica has had none since it started, and is in Shadow, which "
               "nobody chose. INVALID: the last good one goes on."),
        number("Nodes guarded", "fleet:gpuward_nodes:leader", steps=((None, BAD), (1, GOOD))),
        number("Agents silent", "fleet:gpuward_agents_silent:leader",
               steps=((None, GOOD), (1, WARN))),
        number("Breaker", "fleet:gpuward_breaker_open:leader",
               words={"0": ("closed", GOOD), "1": ("OPEN", BAD)}),
    ),
)  # fmt: skip

_REMEDIATOR_WORK = Section(
    title="Sessions and drains",
    panels=(
        series("Sessions by phase",
               Query(expr='max by (phase, mode) '
                          '(gpuward_sessions{phase!~"Released|Cancelled|NodeGone"})',
                     legend="{{phase}} ({{mode}})"), stacked=True),
        series("Conditions of open sessions",
               Query(expr="max by (condition, reason) (gpuward_session_conditions)",
                     legend="{{condition}}: {{reason}}")),
        series("Evictions a second, by answer",
               Query(expr="sum by (result) (rate(gpuward_evictions_total[5m]))",
                     legend="{{result}}")),
        series("PodDisruptionBudgets that keep a drain waiting",
               Query(expr='max(gpuward_blocked_pdbs{permanent="true"})', legend="for ever"),
               Query(expr='max(gpuward_blocked_pdbs{permanent="false"})', legend="for now")),
        series("Fault to unschedulable",
               *(Query(expr=f"histogram_quantile({share}, sum by (le) (rate("
                            "gpuward_fault_to_unschedulable_seconds_bucket[1h])))", legend=words)
                 for share, words in ((0.5, "half below"), (0.99, "99 of 100 below"))),
               unit="s"),
        series("Budget by scope",
               Query(expr="fleet:gpuward_budget_used_nodes:leader", legend="used {{scope}}"),
               Query(expr="fleet:gpuward_budget_size_nodes:leader", legend="size {{scope}}")),
        table("Needs a person",
              'max by (node, reason) (gpuward_open_session_condition{condition="NeedsHuman"})'),
        table("Common causes", "fleet:gpuward_correlated_cause:leader"),
    ),
)  # fmt: skip

_REMEDIATOR_API = Section(
    title="API server",
    panels=(
        series("Calls a second, by code",
               Query(expr="sum by (code) (rate(gpuward_api_requests_total[5m]))",
                     legend="{{code}}"), help="Code 0: no answer."),
        series("Share of calls that fail", Query(expr="fleet:gpuward_api_errors:ratio_rate10m",
               legend="failing"), unit="percentunit"),
        series("Time to the answer, 99 of 100 below",
               Query(expr="histogram_quantile(0.99, sum by (le, lane) (rate("
                          "gpuward_api_request_duration_seconds_bucket[5m])))",
                     legend="{{lane}}"), unit="s"),
        series("Writes a second, by result",
               Query(expr="sum by (kind, result) (rate(gpuward_writes_total[5m]))",
                     legend="{{kind}} {{result}}"),
               help="`held` was not sent: Shadow, no fresh lease, or a pause in between."),
    ),
)  # fmt: skip

_REMEDIATOR_SIGHT = Section(
    title="What each replica sees",
    panels=(
        series("Silence of watches",
               Query(expr="max by (instance, resource) (gpuward_watch_staleness_seconds)",
                     legend="{{resource}} ({{instance}})"), unit="s", width=8),
        table("Caches that are not complete",
              "max by (instance, resource) (gpuward_watch_synced) == 0", width=8),
        table("Objects not understood",
              "max by (instance, resource) (gpuward_undecodable_objects) > 0", width=8),
        series("API server's clock minus ours",
               Query(expr="max by (instance) (gpuward_clock_skew_seconds)",
                     legend="{{instance}}"), unit="s"),
        series("Who leads", Query(expr="max by (instance) (gpuward_leader)",
                                  legend="{{instance}}")),
    ),
)  # fmt: skip


def remediator() -> Json:
    """Return the dashboard."""
    return dashboard(
        "remediator",
        "gpuward / remediator",
        "Leadership, sessions, drains, budget and the API server's answers.",
        (_REMEDIATOR_NOW, _REMEDIATOR_WORK, _REMEDIATOR_API, _REMEDIATOR_SIGHT),
    )
