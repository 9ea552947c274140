"""Every moment that a person reads names its zone, and is spelled by one function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules.api.timestamps import utc, utc_of

REPOSITORY = Path(__file__).parents[4]
_MACHINES = {
    # Annotations that a program reads again, and the agent's state.
    ("remediator/kubectl/act.py", "format_time"),
    ("remediator/kubectl/past/ledger_look.py", "format_time"),
    ("rules/judge/ledger.py", "format_time"),
    # The kernel log as evidence keeps it: a record for tools, line by line.
    ("rules/publish/evidence.py", "format_micro_time"),
    # A kernel line as a simulated machine writes it.
    ("rules/simulate/node/machine.py", "format_time"),
    # What somebody typed, said back.
    ("agent/commands/decode.py", "since"),
}
_SPELLERS = {"format_time", "format_micro_time", "strftime", "isoformat"}
_FIELDS = re.compile(
    r"(\w+_(at|since|until)|first_seen|last_seen|since|until|creation_timestamp)$"
)


def _spelled_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where a sentence is made with a time that `utc` did not spell."""
    keys = {
        id(part)
        for call in ast.walk(tree)
        if isinstance(call, ast.keyword) and call.arg == "key"
        for part in ast.walk(call.value)
    }
    for part in ast.walk(tree):
        if not isinstance(part, ast.FormattedValue) or id(part) in keys:
            continue
        for call in ast.walk(part.value):
            if isinstance(call, ast.Call):
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                if name in _SPELLERS:
                    yield part.lineno, name
        bare = [part.value, *(part.value.values if isinstance(part.value, ast.BoolOp) else ())]
        spec = ast.unparse(part.format_spec) if part.format_spec is not None else ""
        for value in bare:
            if isinstance(value, ast.Attribute) and _FIELDS.fullmatch(value.attr) and not spec:
                yield part.lineno, value.attr


def test_no_sentence_of_the_programs_spells_a_time_itself() -> None:
    found = []
    for room in ("rules", "agent", "remediator"):
        for path in sorted((REPOSITORY / room).rglob("*.py")):
            name = str(path.relative_to(REPOSITORY))
            found += [
                f"{name}:{line}: {what}"
                for line, what in _spelled_in(ast.parse(path.read_text()))
                if (name, what) not in _MACHINES
            ]
    assert not found, "spell them with rules.api.timestamps.utc or utc_of"


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "tests/golden/kubectl").glob("*.txt")), ids=lambda path: path.stem
)
def test_what_the_commands_print_says_utc(path: Path) -> None:
    """JSON and YAML are for machines, and so is what a person typed."""
    for line in path.read_text().splitlines():
        if (
            line.startswith("$ ")
            or "--until" in line
            or re.match(r"\s*(- )?\"?\w+\"?: ['\"]", line)
        ):
            continue
        assert not re.search(r"\d\dT\d\d:\d\d", line), line
        rest = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC", "", line)
        assert not re.search(r"(since|at|until|before|after|from) \d\d:\d\d\b", rest), line
        assert not re.search(r"\bUTC\b", rest), f"said twice: {line}"


def test_one_spelling_with_the_day_because_a_case_outlives_it() -> None:
    assert utc(1_769_860_800.9) == "2026-01-31 12:00 UTC"
    assert utc(1_769_860_800.9, seconds=True) == "2026-01-31 12:00:00 UTC"
    assert utc_of("2026-01-31T13:00:59.5+01:00") == "2026-01-31 12:00 UTC"
    assert utc_of("soon") == "soon"
    assert utc_of("") == ""
