"""The node dashboard: one node's GPUs, signal by signal, and how its agent does."""

from __future__ import annotations

from typing import Any

from hack.dashboards.grafana import (
    GOOD,
    HEALTH_COLOURS,
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


_NOW = Section(
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

_HEAT = Section(
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

_MEMORY = Section(
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

_LINKS = Section(
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

_AGENT = Section(
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
    """The dashboard."""
    return dashboard(
        "node",
        "gpuward / node",
        "One node: its GPUs, its links, its session and its agent.",
        (_NOW, _HEAT, _MEMORY, _LINKS, _AGENT),
        (variable("node", "Node", "label_values(gpuward_node_health, node)"),),
    )
