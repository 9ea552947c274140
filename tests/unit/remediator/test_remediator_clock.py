"""The estimate of the API server's clock: what the Date header can and cannot tell."""

import pytest

from remediator.clock import SkewEstimate


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], 0.0, id="nothing heard: believe the own clock"),
        pytest.param([(100.0, 100.4, 100.5)], 0.0, id="same second"),
        pytest.param([(100.0, 101.9, 101.95)], 0.0, id="within the header's resolution"),
        pytest.param([(3700.0, 100.0, 100.1)], 3599.9, id="server an hour ahead"),
        pytest.param([(100.0, 3700.0, 3700.1)], -3599.0, id="own clock an hour ahead"),
        pytest.param(
            [(100.0, 3700.0, 3700.1), (100.0, 3700.6, 3700.7)], -3599.6, id="answers narrow it"
        ),
        pytest.param(
            [(3700.0, 100.0, 100.1), (101.0, 101.2, 101.3)], 0.0, id="the server was set right"
        ),
    ],
)
def test_skew_is_the_smallest_correction_that_explains_all_answers(samples, expected):
    estimate = SkewEstimate()
    for server_date, sent_at, received_at in samples:
        estimate.add(server_date, sent_at, received_at)
    assert estimate.seconds() == pytest.approx(expected)
