"""The commands about what happened before: lemons, one GPU's past, rates, and a person's word."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import msgspec

from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.past.gpu_named import gpu_named
from remediator.kubectl.terminal import Terminal
from remediator.view.ledger_view import (
    RateRow,
    RecordRow,
    ShareRow,
    StatsShown,
    SurvivalRow,
    called,
    is_node,
    record_row,
    record_rows,
    stats,
)
from remediator.view.text import NONE, age, document, duration, labelled, span, table
from rules.api.health import plain
from rules.api.metadata import ObjectMeta
from rules.api.names import API_VERSION, LABEL_GPUS
from rules.api.nodes import HealthView, NodeView
from rules.api.object_name import api_path, is_object_name
from rules.api.quarantine import MAX_MESSAGE
from rules.api.timestamps import format_time, utc_of
from rules.fleet.happenings import records_by_now
from rules.ledger.record import (
    ANNOTATION_KEEP,
    FaultOutcome,
    RecordEvent,
    RecordPlace,
    RecordReplaced,
    RecordStatus,
    RecordView,
    RecordWord,
    came_in_for,
)
from rules.ledger.verdict import in_vain
from rules.text.counted import count
from rules.text.printable import printable

_SHOWN = 8
_NEVER = "; it never failed, or longer than 90 days ago"


async def lemons(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """GPUs and nodes that fail again and again; with --all every record."""
    found = record_rows(await cluster.records(), cluster.now())
    rows = [row for row in found if row.lemon or options.all]
    if options.output in {"json", "yaml"}:
        return document(rows, options.output)
    if not rows:
        return (
            f"no lemon among {count(len(found), 'record')}" if found else "there is no record yet"
        )
    wide = options.output == "wide"
    header = ["WHAT", "NODE", "FAULTS", "BACK", "RETURN", "LAST", "REASON", "LEMON"]
    lines = [_cells(row, cluster.now(), wide=wide) for row in rows]
    header += ["SERIAL", "MESSAGE"] if wide else []
    return table(header, lines, spare=("LAST", "BACK", "RETURN", "FAULTS"), wide=wide)


def _cells(row: RecordRow, now: float, *, wide: bool) -> list[str]:
    return [
        "node" if is_node(row) else row.uuid,
        row.node,
        str(row.faults),
        str(row.came_back),
        f"{row.score} %",
        age(row.last_at, now),
        row.last_reason,
        f"for {age(row.lemon_since, now)}" if row.lemon else "no",
        *((row.serial, row.message) if wide else ()),
    ]


async def gpu_history(
    cluster: Cluster, options: argparse.Namespace, typed: str, otherwise: str = ""
) -> str:
    """Every fault of one GPU, or of a node's own record, oldest first. `otherwise` is said where
    no GPU is called so.
    """
    record = await _by_now(cluster, typed)
    if record is None:
        unknown = f"there is no GPU called {typed}: no UUID or serial number of one begins so"
        raise CommandError(otherwise or f"{unknown}, neither on a node nor on record")
    came = came_in_for(await cluster.records(), record.status.uuid)
    if options.output in {"json", "yaml"}:
        return document(_wire(record), options.output)
    status, now = record.status, cluster.now()
    row = record_row(record, now)
    places = " -> ".join(_place(place) for place in status.places)
    lines = [printable(row.message if status.events else status.message)]
    lines += labelled("where", [places] if places else [])
    lines += labelled("now", _elsewhere(status, await cluster.healths()))
    its = " ".join(filter(None, (status.product, status.serial)))
    lines += labelled("is", [its] if its else [])
    gone = status.replaced
    lines += labelled("out", [_put_in(gone)] if gone is not None else [])
    lines += labelled("came", [f"in for {_taken_out(one)}" for one in came])
    lines += labelled("lemon", [f"since {utc_of(row.lemon_since)}"] if row.lemon else [])
    lines += labelled("said", [_said(word, status) for word in status.said])
    if status.forgotten_until:
        lines += labelled(
            "before", [f"what was up to {utc_of(status.forgotten_until)} is only counted"]
        )
    if status.events:
        header = ["AT", "NODE", "REASON", "SEVERITY", "TIMES", "STEPS", "OUTCOME", "BACK AFTER",
                  "SESSION"]  # fmt: skip
        spare = ("SESSION", "TIMES", "BACK AFTER", "STEPS", "SEVERITY")
        cells = [_event(event) for event in status.events]
        lines += ["", table(header, cells, spare=spare, wide=options.output == "wide")]
    return "\n".join(lines)


def _said(word: RecordWord, status: RecordStatus) -> str:
    vain = " (the same fault was back within a week, so it counts no more)"
    return (
        f"{word.word} at {utc_of(word.at)}: {word.reason}{vain if in_vain(word, status) else ''}"
    )


def _place(place: RecordPlace) -> str:
    since = f"since {utc_of(place.since)}" if place.since else ""
    return " ".join(filter(None, (place.node, place.slot, since)))


def _elsewhere(status: RecordStatus, healths: Iterable[HealthView]) -> list[str]:
    """Where verdicts list the GPU now, as a record follows it only once it fails there."""
    last = status.places[-1].node if status.places else ""
    return [
        printable(f"in {health.metadata.name} {gpu.pci}, by the verdict there")
        for health in healths
        for gpu in health.status.gpus
        if gpu.uuid == status.uuid != "" and health.metadata.name != last
    ]


def _put_in(replaced: RecordReplaced) -> str:
    session = f", session {replaced.session}" if replaced.session else ""
    return f"{replaced.clause}{session}"


def _taken_out(record: RecordStatus) -> str:
    """Of a GPU that came: the one that it came for."""
    out = record.replaced
    if out is None:
        return record.called
    serial = f"serial {record.serial} ({record.uuid})" if record.serial else record.uuid
    during = f", during {out.step}" if out.step else ""
    return f"{serial} in {out.node} {out.slot} on {utc_of(out.at)}{during}, session {out.session}"


def _event(event: RecordEvent) -> list[str]:
    back = event.came_back_after
    return [
        utc_of(event.at),
        event.node,
        event.reason,
        event.severity,
        str(event.times),
        ", ".join(event.steps),
        event.outcome,
        span(back) if back is not None else NONE,
        event.session,
    ]


async def statistics(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Faults per 1,000 GPU-days, hours out, which repairs held, what people undid."""
    nodes = await cluster.nodes(LABEL_GPUS)
    found = stats(await cluster.records(), nodes, await cluster.sessions(), cluster.now())
    if options.output in {"json", "yaml"}:
        return document(found, options.output)
    return "\n".join(told(found))


def told(found: StatsShown) -> list[str]:
    """The lines of `stats`: no rate of a time that is too short for one."""
    total = found.total
    out = found.out
    lemons = [called(row) for row in found.records if row.lemon][:_SHOWN]
    lines = [
        f"{count(total.faults, 'fault')} in {found.over}"
        + (
            ", too short for rates: look at the counts"
            if found.young
            else f": {_interval(total)} per 1,000 GPU-days"
        ),
        *(
            [f"{count(found.elsewhere, 'fault')} on nodes that are gone: in no rate"]
            if found.elsewhere
            else []
        ),
        *(f"{printable(old.clause)}: in no row below" for old in found.old_groups[:_SHOWN]),
        (
            f"{count(out.absences, 'absence')}: median {duration(3600 * out.median)}, "
            f"9 of 10 within {duration(3600 * out.p90)}, {duration(3600 * out.total)} in all"
            if out.absences
            else "no absence has ended yet"
        ),
        f"drains that a person undid: {_share(found.undone)}; lemons: {found.lemons}",
        *(f"  {printable(name)}" for name in lemons),
    ]
    for what, rows in (
        ("product", found.by_product),
        ("driver", found.by_driver),
        ("rack", found.by_rack),
        ("reason", found.by_reason),
    ):
        if rows:
            header = [what.upper(), "FAULTS", "GPU-DAYS", "PER 1,000 GPU-DAYS"]
            cells = [_rate(row) for row in rows[:_SHOWN]]
            shown = len(header) - found.young  # a rate of hours would be any number
            lines += ["", table(header[:shown], [row[:shown] for row in cells])]
    if found.steps:
        held = [[step.what, _share(step)] for step in found.steps]
        lines += ["", table(["STEP", "HELD FOR A WEEK"], held)]
    if found.survival:
        header = ["STEP", "REPAIRS", "WELL AFTER 1 DAY", "7 DAYS", "28 DAYS", "HALF BACK AFTER"]
        lines += ["", table(header, [_lasting(row) for row in found.survival])]
    return lines


def _lasting(row: SurvivalRow) -> list[str]:
    shares = (row.day1, row.day7, row.day28)
    half = "never yet" if row.half_days is None else f"{row.half_days} days"
    told = ["not known yet" if share is None else f"{share} %" for share in shares]
    return [row.what, str(row.repairs), *told, half]


def _rate(row: RateRow) -> list[str]:
    return [row.group, str(row.faults), f"{row.gpu_days:,}", _interval(row)]


def _interval(row: RateRow) -> str:
    return f"{row.rate:.2f} ({row.low:.2f} to {row.high:.2f})"


def _share(row: ShareRow) -> str:
    if not row.of:
        return "none to judge by yet"
    return f"{row.hits} of {row.of}, {row.percent} % ({row.low} to {row.high})"


async def keep(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Say that GPUs are fine: what was before makes no lemon of them. Of none where one of them
    has no record.
    """
    records = [await _record(cluster, text) for text in dict.fromkeys(options.records)]
    word = f"{format_time(cluster.now())} {options.reason} ({await cluster.who()})"
    said: list[str] = []
    for record in records:
        try:
            await cluster.patch(
                api_path(f"{GROUP_PATH}/gpurecords", record.name),
                {"metadata": {"annotations": {ANNOTATION_KEEP: word[:MAX_MESSAGE]}}},
            )
        except CommandError as error:
            raise CommandError(
                f"{record.status.called}: {error}", forbidden=error.forbidden,
                report="\n".join(said),
            ) from error  # fmt: skip
        called = printable(record.status.called)
        said.append(f"{called}: what was before now makes no lemon of it")
    return "\n".join(said)


async def _by_now(cluster: Cluster, text: str) -> RecordView | None:
    """The record with what is known by now of the nodes where a fault of it may go on; also one
    that is yet to be written, and an empty one of a GPU that never failed. None where no GPU is
    called so.
    """
    named = await gpu_named(cluster, text)
    if named is None:
        return None
    found, status = named.record, named.seen
    active = [e.node for e in status.events if e.outcome == FaultOutcome.ACTIVE]
    for node in filter(is_object_name, dict.fromkeys([status.node, *active])):
        records = records_by_now(
            node,
            await _readable(cluster, node),
            await cluster.health(node),
            await cluster.sessions(node),
            [found] if found is not None else [],
            cluster.now(),
        )
        found = next((one for one in records if one.name == named.name), found)
    if found is not None:
        return found
    nothing = f"{status.called}: nothing is on record of it{_NEVER}."
    empty = msgspec.structs.replace(status, message=nothing)
    return RecordView(metadata=ObjectMeta(name=named.name), status=empty)


async def _readable(cluster: Cluster, name: str) -> NodeView | None:
    """The node, for what people said on it; None where there is none, or none to be seen."""
    try:
        return await cluster.node(name)
    except CommandError as error:
        if not error.forbidden:
            raise
        return None


async def _record(cluster: Cluster, text: str) -> RecordView:
    """The record that a person's word goes on."""
    named = await gpu_named(cluster, text)
    if named is None or named.record is None:
        raise CommandError(f"there is no record of {text}{_NEVER}")
    return named.record


def _wire(record: RecordView) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPURecord",
        "metadata": {"name": record.name, "annotations": record.metadata.annotations},
        "status": plain(record.status),
    }
