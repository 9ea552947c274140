"""The estimate of the API server's clock: what the Date header can and cannot tell."""

import pytest

from remediator.kube.clock import SkewEstimate

HOUR = 3600.0


def answers(*ahead_s, every_s=2.0, begin=0.0):
    """An answer every so often from a server whose clock is that far ahead at each."""
    times = [begin + 100.0 + every_s * n for n in range(len(ahead_s))]
    return [(at + ahead, at, at + 0.1) for at, ahead in zip(times, ahead_s, strict=True)]


def estimate(samples, known=None):
    found = known or SkewEstimate()
    for server_date, sent_at, received_at in samples:
        found.add(server_date, sent_at, received_at)
    return found


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], 0.0, id="nothing heard: believe the own clock"),
        pytest.param([(100.0, 100.4, 100.5)], 0.0, id="same second"),
        pytest.param([(100.0, 101.9, 101.95)], 0.0, id="within the header's resolution"),
        pytest.param(answers(HOUR, HOUR, HOUR), HOUR - 0.1, id="server an hour ahead"),
        pytest.param(answers(-HOUR, -HOUR, -HOUR), -HOUR + 1, id="own clock an hour ahead"),
        pytest.param([(3700.0, 100.0, 105.0)] * 5, 0.0, id="slow answers say too little"),
        pytest.param(answers(HOUR, HOUR, HOUR, 0, 0, 0, 0), 0.0, id="the server was set right"),
    ],
)
def test_the_clock_moves_to_what_most_answers_agree_on(samples, expected):
    assert estimate(samples).seconds() == pytest.approx(expected, abs=0.6)


@pytest.mark.parametrize("wrong", [HOUR, -HOUR, 30.0])
@pytest.mark.parametrize("before", [1, 5, 40])
def test_one_wrong_date_does_not_move_the_clock(wrong, before):
    found = estimate(answers(*[0.0] * before, wrong))
    assert found.seconds() == 0.0
    assert (found.jumps, found.contradictions) == (0, 1)


def test_a_burst_of_wrong_dates_is_one_voice():
    found = estimate(answers(*[0.0] * 15))
    found = estimate(answers(*[HOUR] * 200, every_s=0.004, begin=30.0), found)
    assert found.seconds() == 0.0
    assert found.jumps == 0
    assert not found.doubt


def test_a_first_answer_that_contradicts_the_own_clock_is_doubted_until_three_agree():
    first = estimate(answers(HOUR))
    assert first.seconds() == 0.0
    assert "3600 s ahead" in first.doubt
    assert estimate(answers(HOUR, HOUR)).doubt
    agreed = estimate(answers(HOUR, HOUR, HOUR))
    assert not agreed.doubt
    assert agreed.jumps == 0, "where nothing was believed before, nothing jumped"


def test_one_api_server_of_three_with_a_wrong_clock_neither_moves_nor_stops_anything():
    found = SkewEstimate()
    for sample in answers(*[0.0, HOUR, 0.0] * 20):
        found.add(*sample)
        # The very first answers leave doubt; from then on the two right ones outvote it.
        assert found.seconds() == 0.0
    assert not found.doubt
    assert found.jumps == 0


def test_servers_that_contradict_one_another_leave_doubt():
    found = estimate(answers(*[0.0] * 15, *[HOUR, -HOUR, 2 * HOUR] * 5))
    assert found.seconds() == 0.0
    assert "contradict" in found.doubt


def test_a_new_server_time_is_followed_within_half_a_minute_and_logged():
    found = estimate(answers(*[0.0] * 15))
    moved = [found]
    for sample in answers(*[HOUR] * 15, begin=30.0):
        found.add(*sample)
        moved.append(found.seconds())
    assert moved[5] == 0.0
    assert found.seconds() == pytest.approx(HOUR, abs=0.6)
    assert found.jumps == 1
    assert not found.doubt


def test_a_slow_drift_is_followed_and_is_no_jump():
    """100 ppm, which is a bad crystal, for a day."""
    found = SkewEstimate()
    for n in range(43_200 // 10):
        at = 100.0 + 20.0 * n
        now = at * 1.0001
        found.add(float(int(now)), at, at + 0.01)
    assert found.seconds() == pytest.approx(8.64, abs=1.6)
    assert (found.jumps, found.contradictions) == (0, 0)


def test_servers_a_second_or_two_apart_are_one_clock():
    found = estimate(answers(*[0.0, 2.0] * 20))
    assert (found.jumps, found.contradictions, found.doubt) == (0, 0, "")
