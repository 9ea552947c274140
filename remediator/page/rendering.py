"""Render the values of `remediator.view.shapes` with the templates of this package.

All data from the cluster is untrusted: jinja2 escapes every value, and `shown` limits its length
and escapes control characters.
"""

import functools
import hashlib
import itertools
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from remediator.view import fleet_view, node_view, operators, shapes
from rules.api import messages, object_name, timestamps
from rules.api.health import GpuReadings
from rules.api.quarantine import DrainStatus, Phase
from rules.catalog import explanations, why_not
from rules.catalog.why_not import WhyNot
from rules.text.printable import count, printable

MAX_TEXT: Final = 2_000
"""Longest value on a page."""
_HERE: Final = Path(__file__).parent
FOLDER: Final = "docs"
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_DRAWN_BY_STYLE: Final = frozenset({1, 2, 4, 8, 16})
_BREAKS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KINDS: Final = {
    "ok": "healthy Released Proven pass ok",
    "warn": "degraded Degraded Storm Paused OptOut StandDown NodeUnreachable RepairProposed",
    "bad": "unhealthy Fatal Blocked NeedsHuman Replace Failed fail",
    "act": f"{Phase.MARKED} Draining Repairing Validating Enforce Asked",
    "held": "Quarantined Held",
    "wait": "Pending Planned",
}
_KIND_OF: Final = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_SPELLED: Final = {
    "NeedsHuman": "needs operator action",
    "RepairProposed": "repair proposed",
    "NodeUnreachable": "node unreachable",
    "NodeGone": "node gone",
    "Replace": "replace the part",
    "Storm": "breaker open",
    "OptOut": "opted out",
    "StandDown": "another owner works on it",
    "NotSelected": "not selected by the policy",
}


def shown(value: object) -> object:
    """Return a value for display: shortened, with control characters escaped."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if len(value) > MAX_TEXT:
        value = value[: MAX_TEXT - 1] + "…"
    return value if value.isprintable() else printable(value)


def headline(counts: shapes.Counts) -> str:
    """Return the summary of the fleet in one sentence."""
    if not counts.nodes:
        return "No agent has found a GPU yet"
    states = ("unhealthy", "unknown", "degraded")
    ill = [f"{getattr(counts, state)} {state}" for state in states if getattr(counts, state)]
    opened = counts.open_sessions
    sessions = count(opened, "open session") if opened else "no open session"
    verb = "needs" if counts.need_human == 1 else "need"
    need = f", {counts.need_human} {verb} operator action" if counts.need_human else ""
    nodes = f"{counts.nodes:,} {'node' if counts.nodes == 1 else 'nodes'}"
    return f"{nodes}: {', '.join(ill) or 'all healthy'}; {sessions}{need}"


def described(row: shapes.NodeRow) -> str:
    """Return the text for the square of a node, for tooltips and screen readers."""
    parts = [f"{row.name}: {row.health}", f"{row.gpus_healthy} of {row.gpus} GPUs usable"]
    if isolated := [f"GPU {gpu.index}" for gpu in row.unhealthy_gpus if gpu.isolated]:
        parts.append(f"{', '.join(isolated)} isolated")
    if row.phase:
        parts.append(row.phase if row.mode == "Enforce" else f"{row.phase} (Shadow)")
    elif row.unschedulable:
        parts.append("cordoned, not by gpuward")
    if row.ready != "True":
        parts.append("kubelet not ready")
    return ", ".join(parts)


def square_class(row: shapes.NodeRow) -> str:
    """Return the CSS classes of the square of a node.

    With `even` the style sheet draws all GPUs as healthy, which is fast for 5,000 nodes.
    """
    classes = ["n", row.health]
    if row.phase:
        classes.append("session" if row.mode == "Enforce" else "shadow")
    elif row.unschedulable:
        classes.append("cordoned")
    if row.gpus in _DRAWN_BY_STYLE:
        classes += [f"g{row.gpus}", *(["even"] if _is_plain(row) else [])]
    return " ".join(classes)


def squares(row: shapes.NodeRow) -> list[str]:
    """Return the health of each GPU to draw; empty if the style sheet draws the node."""
    if _is_plain(row) and row.gpus in _DRAWN_BY_STYLE:
        return []
    sick = {
        gpu.index: f"{gpu.health} isolated" if gpu.isolated else gpu.health
        for gpu in row.unhealthy_gpus
    }
    rest = "healthy" if sick or row.health == "degraded" else row.health
    # Without a GPUNodeHealth, the label of the node has the number of healthy GPUs.
    return [
        sick.get(i, "healthy" if sick or i < row.gpus_healthy else rest)
        for i in range(min(row.gpus, fleet_view.MAX_GPUS))
    ]


def _is_plain(row: shapes.NodeRow) -> bool:
    return row.health == "healthy" and not row.unhealthy_gpus and row.gpus == row.gpus_healthy


def query(wanted: shapes.FleetFilter, sort: str) -> str:
    """The query of the fleet page with this filter and order."""
    asked = {**msgspec.structs.asdict(wanted), "sort": sort}
    return urlencode({name: value for name, value in asked.items() if value})


def left(until: str, now: float) -> str:
    """`42s`, `14m`, `3h`: how long it is until an RFC 3339 time."""
    return timestamps.span((timestamps.parse_time(until) or now) - now)


def identifier(*names: str) -> str:
    """Return an element id for untrusted names."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:10]


def broken(code: str) -> Markup:
    """Return a reason code with optional line breaks before its capitals."""
    return Markup("<wbr>").join(escape(shown(part)) for part in _BREAKS.split(code[:MAX_TEXT]))


def sentence(text: str) -> str:
    """Return a clause as a sentence."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def drain_progress(drain: DrainStatus) -> tuple[str, list[tuple[str, float]]]:
    """Return the progress of a drain as text, and as shares of its pods for a bar."""
    waiting, left = drain.waiting.total, drain.left_by_failure.total
    stuck = sum(block.pods.total for block in drain.blocked)
    leaving = messages.still_terminating(drain)
    gone = drain.evicted - len(leaving or ())
    total = max(1, gone + waiting + stuck + left)
    on_it = f"{waiting} terminating or waiting, {stuck} blocked, {left} failed to leave"
    text = f"{gone} gone, {on_it}" if leaving is not None else f"{gone} evicted; on it: {on_it}"
    return text, [("ok", gone / total), ("act", waiting / total), ("bad", (stuck + left) / total)]


def readings(read: GpuReadings) -> str:
    """Return readings as text, values without data left out: `71 °C; 412 of 700 W`."""
    limit = "" if read.power_limit_watts is None else f" of {read.power_limit_watts}"
    flags = ((read.remap_pending, "row remap pending"), (read.remap_failure, "row remap failed"))
    numbers = (
        ("{} °C", (read.temperature_celsius,)),
        ("memory {} °C", (read.memory_temperature_celsius,)),
        (f"{{}}{limit} W", (read.power_watts,)),
        ("clocks: {}", (", ".join(read.clock_event_reasons) or None,)),
        (
            "ECC errors: {} correctable, {} uncorrectable",
            (read.ecc_correctable, read.ecc_uncorrectable),
        ),
        (
            "remapped rows: {} correctable, {} uncorrectable",
            (read.remapped_rows_correctable, read.remapped_rows_uncorrectable),
        ),
    )
    parts = [form.format(*values) for form, values in numbers if None not in values]
    return "; ".join([*parts, *(text for on, text in flags if on)])


def commands(page: shapes.NodePage) -> list[tuple[str, str]]:
    """Return commands for a node with a description; none if the name is invalid."""
    if not object_name.is_object_name(page.name):
        return []
    why = (f"kubectl gpuward why {page.name}", "the same in the terminal")
    return [why, *((act.command, act.does) for act in page.acts)]


@functools.cache
def runbooks() -> Mapping[str, str]:
    """Return the Markdown of runbooks and blocking reasons by path under `docs`."""
    return msgspec.json.decode((_HERE / "runbooks.json").read_bytes(), type=dict[str, str])


def runbook_title(path: str) -> str:
    """Return the first heading of a runbook; KeyError for an unknown path."""
    return runbooks()[path].partition("\n")[0].removeprefix("# ")


@functools.cache
def runbook_html(path: str) -> Markup:
    """Return a runbook as HTML. Headings have anchors; links to other documents are plain text."""
    tokens = _MARKDOWN.parse(runbooks()[path])
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            before.attrs["id"] = re.sub(r"[^\w-]", "", token.content.lower().replace(" ", "-"))
        if token.children:
            token.children = _with_own_links(token.children, path)
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 (escaped)


def _with_own_links(tokens: list[Token], path: str) -> list[Token]:
    kept: list[Token] = []
    leads = False
    for token in tokens:
        if token.type == "link_open":
            target, hash_sign, anchor = str(token.attrs["href"]).partition("#")
            folder = posixpath.dirname(path)
            inside = posixpath.normpath(posixpath.join(folder, target)) if target else path
            leads = inside in runbooks()
            token.attrs["href"] = f"/{FOLDER}/{inside}{hash_sign}{anchor}"
        if leads or token.type not in {"link_open", "link_close"}:
            kept.append(token)
    return kept


def runbook_of(reason: str) -> str:
    """Return the address of the section about a blocking reason; "" for another reason."""
    return f"/{why_not.runbook(reason)}" if reason in set(WhyNot) else ""


def _not_first(values: Sequence[Any], attribute: str, value: str) -> list[Any]:
    """Return the values, those without `value` in the attribute first."""
    return sorted(values, key=lambda one: getattr(one, attribute) == value)


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=shown,
)
_ENVIRONMENT.filters |= {
    "age": timestamps.age, "broken": broken, "commands": commands,
    "degraded": operators.degraded_of, "described": described,
    "drain_progress": drain_progress, "headline": headline,
    "kind": lambda name: _KIND_OF.get(name, "dim"), "lasted": node_view.lasted,
    "is_filtered": fleet_view.is_filtered, "left": left,
    "approved_by": messages.approved_by,
    "not_first": _not_first, "number": "{:,}".format,
    "path": functools.partial(quote, safe=""), "query": query, "readings": readings,
    "runbook": runbook_of, "sentence": sentence,
    "span": timestamps.span, "spelled": lambda name: _SPELLED.get(name, name),
    "square_class": square_class,
    "squares": squares, "utc": timestamps.utc_of,
}  # fmt: skip
_ENVIRONMENT.globals |= {
    "count": count, "gpus_with_readings": node_view.gpus_with_readings, "identifier": identifier,
    "places": explanations.places,
}  # fmt: skip
_template = functools.cache(_ENVIRONMENT.get_template)


def render(template: str, replica: shapes.ReplicaShown, **values: object) -> str:
    """Render a template as an HTML document; ages are relative to `replica.at`."""
    now = timestamps.parse_time(replica.at) or 0.0
    return _template(f"{template}.html").render(replica=replica, now=now, **values)


def render_page(page: shapes.FleetPage | shapes.NodePage | shapes.HistoryPage) -> str:
    """Render a page as an HTML document."""
    names = {shapes.FleetPage: "fleet", shapes.NodePage: "node", shapes.HistoryPage: "history"}
    return render(names[type(page)], page.replica, page=page)
