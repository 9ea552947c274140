"""The remediator dashboard: does it lead, does it act, how fast, and what does the API server
say?
"""

from __future__ import annotations

from hack.dashboards.grafana import (
    BAD,
    GOOD,
    WARN,
    Json,
    Query,
    Section,
    dashboard,
    number,
    series,
    table,
)

_NOW = Section(
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

_WORK = Section(
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

_API = Section(
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

_SIGHT = Section(
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
    """The dashboard."""
    return dashboard(
        "remediator",
        "gpuward / remediator",
        "Leadership, sessions, drains, budget and the API server's answers.",
        (_NOW, _WORK, _API, _SIGHT),
    )
