"""How old a view may be before harm rests on it."""

from __future__ import annotations

import pytest

from rules.session.snapshot import too_old


@pytest.mark.parametrize(
    ("quiet_s", "unfollowed_s", "old"),
    [
        pytest.param(0.0, 0.0, False, id="just heard"),
        pytest.param(75.0, 0.0, False, id="a bookmark is due about once a minute"),
        pytest.param(59.0, 1.0, False, id="a watch that ended is resumed"),
        pytest.param(101.0, 0.0, True, id="open and silent"),
        pytest.param(30.0, 21.0, True, id="the watch fails"),
        pytest.param(float("inf"), 5.0, True, id="never heard"),
    ],
)
def test_a_view_ages(quiet_s, unfollowed_s, old):
    said = too_old("gpuwardpauses", quiet_s=quiet_s, unfollowed_s=unfollowed_s, problem="")
    assert bool(said) is old
    assert not old or "gpuwardpauses" in said


def test_what_keeps_it_old_is_said_and_bounded():
    said = too_old("nodes", quiet_s=0, unfollowed_s=60, problem="Listing nodes: 500 " + "x" * 900)
    assert "500 xxx" in said
    assert len(said) <= 300
