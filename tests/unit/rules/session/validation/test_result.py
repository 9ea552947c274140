"""The result of a validation: how large it may be, and what of a stranger's is believed."""

import json

import msgspec
import pytest

from rules.session.validation.result import Check, Result, Verdict, read

PASS = '{"verdict": "pass", "checks": [{"id": "x", "value": 3, "unit": "GB/s", "floor": 2}]}'


def test_a_result_is_read_back_as_it_was_written() -> None:
    check = Check(id="peer", gpu="GPU-a", value=3.5, unit="GB/s", floor=2.0)
    result = Result(verdict=Verdict.PASS, message="All well.", checks=[check])
    assert read(0, msgspec.json.encode(result).decode()) == result


@pytest.mark.parametrize(
    ("status", "text", "verdict"),
    [
        pytest.param(0, PASS, Verdict.PASS, id="both say pass"),
        pytest.param(0, "", Verdict.PASS, id="a tool that knows its status alone"),
        pytest.param(2, "", Verdict.FAIL, id="which fails"),
        pytest.param(137, "", Verdict.UNKNOWN, id="killed"),
        pytest.param(0, '{"verdict": "fail"}', Verdict.FAIL, id="words graver than the status"),
        pytest.param(2, PASS, Verdict.FAIL, id="status graver than the words"),
        pytest.param(3, PASS, Verdict.UNKNOWN, id="could not run, and says pass"),
        pytest.param(0, "Segmentation fault", Verdict.UNKNOWN, id="no JSON"),
        pytest.param(1, "not json", Verdict.DEGRADED, id="no JSON beside a grave status"),
        pytest.param(0, '{"verdict": "great"}', Verdict.UNKNOWN, id="no verdict of ours"),
        pytest.param(0, "[" * 5000, Verdict.UNKNOWN, id="nested without end"),
        pytest.param(0, '{"verdict": "pass", "checks": 7}', Verdict.UNKNOWN, id="wrong shape"),
        pytest.param(
            0,
            PASS.replace('"value": 3', '"value": 1'),
            Verdict.UNKNOWN,
            id="a pass below its own floor",
        ),
        pytest.param(
            0,
            '{"verdict": "pass", "checks": [{"id": "x", "verdict": "fail"}]}',
            Verdict.FAIL,
            id="a pass with a failed check",
        ),
    ],
)
def test_of_two_words_the_graver_counts(status: int, text: str, verdict: Verdict) -> None:
    assert read(status, text).verdict is verdict


def test_what_a_stranger_writes_is_one_bounded_line() -> None:
    text = json.dumps({"verdict": "fail", "message": "a\nb\x1b[31m" + "c" * 9000})
    said = read(2, text)
    assert said.message.isprintable()
    assert len(said.message) < 3000
    check = read(
        2, json.dumps({"verdict": "fail", "checks": [{"id": "\x1b", "note": "n" * 9000}]})
    )
    assert check.checks[0].id == r"\x1b"
    assert len(check.checks[0].note) < 3000
