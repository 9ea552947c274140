"""What a replica says of a policy file that it cannot go by."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.metrics import Metrics
from remediator.upkeep.policy_source import PolicySource
from rules.api.quarantine import Mode
from rules.policy.shadow import by_accident
from tests.support.remediator.virtual_clock import VirtualClock

TYPO = "drain: {fatalTimout: 10m}\n"


def source(path: Path) -> PolicySource:
    found = PolicySource(str(path), shadow=False, metrics=Metrics(), on_change=lambda policy: None)
    found.start()
    return found


def test_a_replica_that_starts_with_a_bad_file_is_in_shadow_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(TYPO)
    said = source(file).trouble
    assert "drain.fatalTimout is not a known key" in said
    assert said.endswith(
        "; this replica has read no policy since it started and is in Shadow, which nobody chose: "
        "nothing is done for nodes that fail."
    )


def unread(metrics: Metrics) -> tuple[float | None, float | None]:
    value = metrics.registry.get_sample_value
    return value("gpuward_policy_unread"), value("gpuward_policy_reload_ok")


def test_shadow_by_accident_is_told_from_the_last_good_policy(tmp_path: Path) -> None:
    file, metrics, clock = tmp_path / "policy.yaml", Metrics(), VirtualClock()
    file.write_text(TYPO)
    heard: list[bool] = []
    replica = PolicySource(
        str(file), shadow=False, metrics=metrics, on_change=lambda p: heard.append(by_accident(p))
    )
    replica.start()
    assert (replica.unread, replica.mode) == (True, Mode.SHADOW)
    assert unread(metrics) == (1, 0)

    file.write_text(f"{TYPO}# still\n")
    replica.look(clock)
    assert unread(metrics) == (1, 0)

    file.write_text("mode: Shadow\n")
    replica.look(clock)
    assert (replica.unread, heard) == (False, [False]), "who acts by it hears that it was chosen"
    assert unread(metrics) == (0, 1)

    file.write_text(f"{TYPO}# again\n")
    replica.look(clock)
    assert unread(metrics) == (0, 0)


def test_one_that_had_a_good_one_says_since_when_it_goes_on_by_that(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("mode: Enforce\n")
    replica, clock = source(file), VirtualClock()
    assert replica.trouble == ""

    file.write_text(TYPO)
    replica.look(clock)
    said = replica.trouble
    assert "; since " in said
    assert said.endswith(" this replica goes on by the last good one.")
    clock.at += 600
    file.write_text(f"{TYPO}# still\n")
    replica.look(clock)
    assert replica.trouble == said, "since it first was"

    file.write_text("mode: Enforce\n# mended\n")
    replica.look(clock)
    assert replica.trouble == ""


@pytest.mark.parametrize(
    ("text", "shadow", "expected"),
    [
        ("mode: Enforce\n", False, 0.0),
        ("mode: Shadow\n", False, 0.0),
        (TYPO, False, 1.0),
        (TYPO, True, 0.0),
    ],
)
def test_shadow_that_nobody_asked_for_is_a_number_that_alerts_can_tell_from_the_other(
    tmp_path: Path, text: str, shadow: bool, expected: float
) -> None:
    file, metrics = tmp_path / "policy.yaml", Metrics()
    file.write_text(text)
    PolicySource(str(file), shadow=shadow, metrics=metrics, on_change=lambda policy: None).start()
    assert metrics.registry.get_sample_value("gpuward_policy_unread") == expected
