"""Figures of two runs beside each other."""

from __future__ import annotations

from hack.bench.remediator_compare import medians, ratios

BEFORE = {"control plane": "real", "storm": [{"s": 4.0, "calls": {}}, {"s": 8.0}, {"s": 6.0}]}


def test_a_figure_is_the_median_of_its_runs() -> None:
    assert medians(BEFORE["storm"]) == {"s": 6.0}  # type: ignore[arg-type]  # the runs of one bench


def test_ratios_are_of_the_medians_of_what_both_runs_measured() -> None:
    after = {"storm": [{"s": 3.0, "new": 1.0}], "soak": [{"s": 1.0}]}
    assert ratios(BEFORE, after) == {"storm": {"s": 0.5}}


def test_what_was_nothing_before_has_no_ratio() -> None:
    assert ratios({"idle": [{"writes": 0}]}, {"idle": [{"writes": 3}]}) == {"idle": {}}
