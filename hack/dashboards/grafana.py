"""Grafana's dashboard JSON in a few words: panels, a grid, variables. Called by the dashboards'
modules.

The result imports into Grafana 10 or later as it stands: the data source is a variable, so that no
uid of anybody's installation is written into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final


def grown(counter: str, by: str, over: str, *, watched: str, on: str = "") -> str:
    """By how much a counter grew within `over`, by these labels.

    `increase` misses the first event of a counter that has no series while it is 0. Here what has
    no past counts from 0, if `watched` (a selector, matched on `on`) had a series then: not what
    an agent finds when it begins. After a reset it counts from 0 as well.
    """
    now, then = f"sum by ({by}) ({counter})", f"sum by ({by}) ({counter} offset {over})"
    from_zero = f"0 * {now} and on ({on}) ({watched} offset {over})"
    return f"({now} - (({then} <= {now}) or ({from_zero})))"


SCHEMA_VERSION: Final = 38
"""Grafana 10.0's; later ones migrate it when they load it."""
WIDTH: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]

GOOD, WARN, BAD, PLAIN = "green", "orange", "red", "text"
HEALTH_COLOURS: Final = {
    "Healthy": GOOD,
    "Degraded": WARN,
    "Unhealthy": BAD,
    "Unknown": "purple",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL expression and how its series are called."""

    expr: str
    legend: str = "__auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What a person sees: a title that asks, queries that answer."""

    title: str
    kind: str
    queries: tuple[Query, ...]
    help: str = ""
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ((None, PLAIN),)
    colours: dict[str, str] = field(default_factory=dict)
    """Series name to colour."""
    words: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Value to word and colour: `{"1": ("open", "red")}`."""
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def series(title: str, *queries: Query, **options: Any) -> Panel:
    """Lines over time."""
    return Panel(title=title, kind="timeseries", queries=queries, **options)


def number(title: str, expr: str, **options: Any) -> Panel:
    """One present value; a quarter of a row and low, unless told."""
    size = {"width": 4, "height": 4, **options}
    return Panel(title=title, kind="stat", queries=(Query(expr=expr),), **size)


def table(title: str, expr: str, **options: Any) -> Panel:
    """The present series, one per line."""
    return Panel(title=title, kind="table", queries=(Query(expr=expr),), **options)


def variable(name: str, label: str, query: str, *, several: bool = False) -> Json:
    """A choice filled by a query of label values."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "Variable"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "current": {},
    }


def dashboard(
    slug: str,
    title: str,
    description: str,
    sections: Sequence[Section],
    variables: Sequence[Json] = (),
) -> Json:
    """The dashboard; `slug` makes its uid, which links between dashboards use."""
    return {
        "uid": f"gpuward-{slug}",
        "title": title,
        "description": description,
        "tags": ["gpuward"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_datasource(), *variables]},
        "links": [
            {"type": "dashboards", "tags": ["gpuward"], "title": "gpuward", "asDropdown": True,
             "includeVars": True, "keepTime": True, "icon": "external link", "url": ""}
        ],
        "panels": _placed(sections),
    }  # fmt: skip


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus", "refresh": 1, "current": {}, "hide": 0}  # fmt: skip


def _placed(sections: Sequence[Section]) -> list[Json]:
    placed: list[Json] = []
    y = 0
    for section in sections:
        placed.append(
            {"type": "row", "title": section.title, "collapsed": False, "panels": [],
             "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}
        )  # fmt: skip
        y += 1
        x = height = 0
        for panel in section.panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            grid = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            placed.append({**_panel(panel), "gridPos": grid})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    for number_, one in enumerate(placed, start=1):
        one["id"] = number_
    return placed


def _panel(panel: Panel) -> Json:
    instant = panel.kind in {"stat", "table"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "targets": [
            {"refId": _ref(position), "datasource": DATASOURCE, "expr": query.expr,
             "legendFormat": query.legend, "instant": instant, "range": not instant,
             "format": "table" if panel.kind == "table" else "time_series"}
            for position, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel.kind),
        "transformations": _TABLE if panel.kind == "table" else [],
    }  # fmt: skip


_UNSEEN: Final = ("Time", "__name__", "instance", "job", "pod", "namespace", "container")
_TABLE: Final = [
    {"id": "organize", "options": {"excludeByName": dict.fromkeys(_UNSEEN, True)}},
]


def _ref(position: int) -> str:
    return chr(ord("A") + position)


def _defaults(panel: Panel) -> Json:
    found: Json = {
        "unit": panel.unit,
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in panel.steps],
        },
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "mappings": [
            {"type": "value", "options": {
                value: {"text": text, "color": colour}
                for value, (text, colour) in panel.words.items()
            }}
        ] if panel.words else [],
    }  # fmt: skip
    if panel.kind == "timeseries":
        found["custom"] = {
            "fillOpacity": 60 if panel.stacked else 8,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "spanNulls": False,
        }
    return found


def _overrides(panel: Panel) -> list[Json]:
    return [
        {"matcher": {"id": "byName", "options": name},
         "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
        for name, colour in panel.colours.items()
    ]  # fmt: skip


def _options(kind: str) -> Json:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value",
                "graphMode": "none", "textMode": "auto"}  # fmt: skip
    if kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}}  # fmt: skip
