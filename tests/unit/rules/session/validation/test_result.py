"""The result of a validation: how large it may be, and what of a stranger's is believed."""

import json

import msgspec
import pytest

from rules.session.validation.result import Assessment, Check, Result, read

PASS = '{"verdict": "pass", "checks": [{"id": "x", "value": 3, "unit": "GB/s", "floor": 2}]}'


def test_a_result_is_read_back_as_it_was_written() -> None:
    check = Check(id="peer", gpu="GPU-a", value=3.5, unit="GB/s", floor=2.0)
    result = Result(assessment=Assessment.PASS, message="All well.", checks=[check])
    assert read(0, msgspec.json.encode(result).decode()) == result


@pytest.mark.parametrize(
    ("status", "text", "assessment"),
    [
        pytest.param(0, PASS, Assessment.PASS, id="both say pass"),
        pytest.param(0, "", Assessment.PASS, id="a tool that knows its status alone"),
        pytest.param(2, "", Assessment.FAIL, id="which fails"),
        pytest.param(137, "", Assessment.UNKNOWN, id="killed"),
        pytest.param(
            0, '{"verdict": "fail"}', Assessment.FAIL, id="log more severe than the status"
        ),
        pytest.param(2, PASS, Assessment.FAIL, id="status more severe than the log"),
        pytest.param(3, PASS, Assessment.UNKNOWN, id="could not run, and reports pass"),
        pytest.param(0, "Segmentation fault", Assessment.UNKNOWN, id="no JSON"),
        pytest.param(1, "not json", Assessment.DEGRADED, id="no JSON with a severe status"),
        pytest.param(0, '{"verdict": "great"}', Assessment.UNKNOWN, id="no result of gpuward"),
        pytest.param(0, "[" * 5000, Assessment.UNKNOWN, id="nested without end"),
        pytest.param(0, '{"verdict": "pass", "checks": 7}', Assessment.UNKNOWN, id="wrong shape"),
        pytest.param(
            0,
            PASS.replace('"value": 3', '"value": 1'),
            Assessment.UNKNOWN,
            id="a pass below its own floor",
        ),
        pytest.param(
            0,
            '{"verdict": "pass", "checks": [{"id": "x", "verdict": "fail"}]}',
            Assessment.FAIL,
            id="a pass with a failed check",
        ),
    ],
)
def test_the_more_severe_of_status_and_log_counts(
    status: int, text: str, assessment: Assessment
) -> None:
    assert read(status, text).assessment is assessment


def test_what_a_stranger_writes_is_one_bounded_line() -> None:
    text = json.dumps({"verdict": "fail", "message": "a\nb\x1b[31m" + "c" * 9000})
    reported = read(2, text)
    assert reported.message.isprintable()
    assert len(reported.message) < 3000
    check = read(
        2, json.dumps({"verdict": "fail", "checks": [{"id": "\x1b", "note": "n" * 9000}]})
    )
    assert check.checks[0].id == r"\x1b"
    assert len(check.checks[0].note) < 3000
