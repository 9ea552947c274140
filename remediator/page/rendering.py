"""Render the values of `remediator.view.shapes` with the templates of this package.

Everything from the cluster is hostile input: jinja2 escapes every value, and `shown` bounds its
length and spells out control characters first.
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
from rules.api.quarantine import DrainStatus
from rules.catalog import explanations, why_not
from rules.catalog.why_not import WhyNot
from rules.text.printable import count, printable

MAX_TEXT: Final = 2_000
"""No single value on a page is longer; everything shown is bounded at its source too."""
_HERE: Final = Path(__file__).parent
FOLDER: Final = "docs"
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_DRAWN_BY_STYLE: Final = frozenset({1, 2, 4, 8, 16})
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KINDS: Final = {
    "ok": "healthy Released Proven pass ok",
    "warn": "degraded Degraded Storm Paused OptOut StandDown NodeUnreachable RepairProposed",
    "bad": "unhealthy Fatal Blocked NeedsHuman Replace Failed fail",
    "act": "Marked Draining Repairing Validating Enforce Asked",
    "held": "Quarantined Held",
    "wait": "Pending Planned",
}
_KIND_OF: Final = {word: kind for kind, words in _KINDS.items() for word in words.split()}
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
    """A value as an operator may see it: bounded, control and formatting characters spelled
    out.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if len(value) > MAX_TEXT:
        value = value[: MAX_TEXT - 1] + "…"
    return value if value.isprintable() else printable(value)


def headline(counts: shapes.Counts) -> str:
    """The fleet in one sentence."""
    if not counts.nodes:
        return "No agent has found a GPU yet"
    states = ("unhealthy", "unknown", "degraded")
    ill = [f"{getattr(counts, word)} {word}" for word in states if getattr(counts, word)]
    opened = counts.open_sessions
    sessions = count(opened, "open session") if opened else "no open session"
    verb = "needs" if counts.need_human == 1 else "need"
    need = f", {counts.need_human} {verb} operator action" if counts.need_human else ""
    nodes = f"{counts.nodes:,} {'node' if counts.nodes == 1 else 'nodes'}"
    return f"{nodes}: {', '.join(ill) or 'all healthy'}; {sessions}{need}"


def described(row: shapes.NodeRow) -> str:
    """A node in words: what its square shows, for those who do not see it."""
    parts = [f"{row.name}: {row.health}", f"{row.gpus_healthy} of {row.gpus} GPUs usable"]
    if row.phase:
        parts.append(row.phase if row.mode == "Enforce" else f"{row.phase} (Shadow)")
    elif row.unschedulable:
        parts.append("cordoned, not by gpuward")
    if row.ready != "True":
        parts.append("kubelet not ready")
    return ", ".join(parts)


def square_class(row: shapes.NodeRow) -> str:
    """The classes of a node's square.

    With `even` the style sheet draws all its GPUs as healthy: 5,000 nodes paint at once.
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
    """The health of each GPU that is an element of its own; none where the style sheet draws."""
    if _is_plain(row) and row.gpus in _DRAWN_BY_STYLE:
        return []
    quarantined = {mark.index: mark.health for mark in row.marks}
    rest = "healthy" if quarantined or row.health == "degraded" else row.health
    # Without a health object only the label's number is known: that many squares are healthy.
    return [
        quarantined.get(i, "healthy" if quarantined or i < row.gpus_healthy else rest)
        for i in range(min(row.gpus, fleet_view.MAX_GPUS))
    ]


def _is_plain(row: shapes.NodeRow) -> bool:
    return row.health == "healthy" and not row.marks and row.gpus == row.gpus_healthy


def query(wanted: shapes.FleetFilter, sort: str) -> str:
    """The query of the fleet page with this filter and order."""
    asked = {**msgspec.structs.asdict(wanted), "sort": sort}
    return urlencode({name: value for name, value in asked.items() if value})


def left(until: str, now: float) -> str:
    """`42s`, `14m`, `3h`: how long it is until an RFC 3339 time."""
    return timestamps.span((timestamps.parse_time(until) or now) - now)


def identifier(*names: str) -> str:
    """An element id for names that anybody may have written."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:10]


def broken(code: str) -> Markup:
    """A reason code that may be broken between its words where there is little room."""
    return Markup("<wbr>").join(escape(shown(word)) for word in _WORDS.split(code[:MAX_TEXT]))


def sentence(text: str) -> str:
    """A clause of the rules as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def drain_progress(drain: DrainStatus) -> tuple[str, list[tuple[str, float]]]:
    """How far a drain has come: in words, and as shares of the pods for a bar."""
    waiting, left = drain.waiting.total, drain.left_by_failure.total
    stuck = sum(block.pods.total for block in drain.blocked)
    leaving = messages.still_terminating(drain)
    gone = drain.evicted - len(leaving or ())
    whole = max(1, gone + waiting + stuck + left)
    on_it = f"{waiting} terminating or waiting, {stuck} blocked, {left} left by failure"
    words = f"{gone} gone, {on_it}" if leaving is not None else f"{gone} evicted; on it: {on_it}"
    return words, [("ok", gone / whole), ("act", waiting / whole), ("bad", (stuck + left) / whole)]


def commands(page: shapes.NodePage) -> list[tuple[str, str]]:
    """What an operator can type about a node, with why; none where no node can have the name."""
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
    """The values with those whose attribute is not `value` before the others."""
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
    "kind": lambda word: _KIND_OF.get(word, "dim"), "lasted": node_view.lasted,
    "is_filtered": fleet_view.is_filtered, "left": left,
    "let_go_by": messages.approved_by,
    "not_first": _not_first, "number": "{:,}".format,
    "path": functools.partial(quote, safe=""), "query": query,
    "runbook": runbook_of, "sentence": sentence,
    "span": timestamps.span, "spelled": lambda word: _SPELLED.get(word, word),
    "square_class": square_class,
    "squares": squares, "utc": timestamps.utc_of,
}  # fmt: skip
_ENVIRONMENT.globals |= {"count": count, "identifier": identifier, "places": explanations.places}
_template = functools.cache(_ENVIRONMENT.get_template)


def render(template: str, replica: shapes.ReplicaShown, **values: object) -> str:
    """An entire HTML document. `values` are what the template names; ages are as of
    `replica.at`.
    """
    now = timestamps.parse_time(replica.at) or 0.0
    return _template(f"{template}.html").render(replica=replica, now=now, **values)


def render_page(page: shapes.FleetPage | shapes.NodePage | shapes.HistoryPage) -> str:
    """The HTML document of a page."""
    names = {shapes.FleetPage: "fleet", shapes.NodePage: "node", shapes.HistoryPage: "history"}
    return render(names[type(page)], page.replica, page=page)
