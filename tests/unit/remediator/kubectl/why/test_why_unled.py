"""While no remediator leads, `why` says what the next one does first, by its own rules."""

from __future__ import annotations

from typing import Any

from remediator.kubectl.leading import Unled
from tests.support.remediator.kubectl_looks import NAME, SESSION, look
from tests.support.remediator.kubectl_looks import told as in_one_line
from tests.support.remediator.kubectl_objects import NOW, ago, marked, session, sick, verdict

UNLED = Unled(lasts="for 36m", led_at=NOW - 36 * 60)
NOTHING = "nothing while no remediator leads, and none has for 36m; once one does:"


def told(
    phase: str, *, well: bool = True, uncordoned: bool = False, asked: Any = None, **more: Any
) -> str:
    there = marked(NAME, SESSION)
    there["metadata"]["uid"] = "uid-7"
    there["spec"]["unschedulable"] = not uncordoned
    there["status"]["nodeInfo"]["bootID"] = more.pop("boot", f"boot-{NAME}")
    spec = {"nodeUID": "uid-7", **({"release": asked} if asked else {})}
    opened = session(
        SESSION, NAME, phase, "So it stood.", spec=spec, bootID=f"boot-{NAME}",
        phaseSince=ago(40), **more,
    )  # fmt: skip
    health = verdict(NAME) if well else sick(NAME)
    return in_one_line(look(health, opened, on=there, agents=None, unled=UNLED))


def test_healthy_time_that_nobody_saw_is_not_promised_to_count() -> None:
    said = told("Validating")
    assert "So it stood. so it stood at 2026-03-05 11:24 UTC, when a remediator last" in said
    counts = "its healthy time counts from 2026-03-05 12:00 UTC on (until then: no remediator led)"
    assert f"{NOTHING} All causes closed, {counts}; " in said
    assert "released at 2026-03-05 12:10 UTC if the node stays healthy" in said


def test_what_people_did_meanwhile_is_what_comes_next() -> None:
    said = told("Draining", well=False, uncordoned=True)
    assert f"{NOTHING} Cancelled: a person uncordoned the node." in said
    assert "are asked again" not in said
    asked = {"by": "ann", "reason": "needed"}
    assert f"{NOTHING} Released: ann asked for it, needed" in told("Validating", asked=asked)


def test_a_drain_whose_node_was_rebooted_is_not_said_to_go_on() -> None:
    said = told("Draining", boot="boot-2")
    assert f"{NOTHING} The node rebooted; its fresh verdict decides." in said


def test_a_drain_that_only_goes_on_says_so_as_ever() -> None:
    goes_on = "pods that were told to go end within their own grace, others are asked again"
    assert f"{NOTHING} {goes_on}" in told("Draining", well=False)


def test_after_a_boot_the_steps_do_not_say_that_causes_closed() -> None:
    steps = [
        {"at": ago(9), "step": "Quarantined", "message": "x", "by": "gpuward"},
        {"at": ago(8), "step": "NewBoot", "message": "the node rebooted", "by": "gpuward"},
        {"at": ago(8), "step": "Validating", "message": "The node rebooted.", "by": "gpuward"},
    ]
    said = told("Validating", timeline=steps)
    assert "Validating by gpuward: a verdict of the new boot says whether its causes" in said
    assert "all causes closed" not in said
