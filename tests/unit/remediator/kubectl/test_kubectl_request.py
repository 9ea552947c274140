"""The question before a node is taken out of service or released tells what changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remediator.kubectl.node_look import NodeLook
from remediator.kubectl.request import of_quarantine, of_release
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.remediator.kubectl_looks import NAME, SESSION
from tests.support.remediator.kubectl_looks import look as seen_by
from tests.support.remediator.kubectl_objects import Object, ago, marked, node, session, sick

LEAVE = "4 pods on it, what may go is evicted within its budgets"
OUT = marked(NAME, SESSION)
BY_ANN = {"source": "Human", "reason": "Requested", "by": "ann"}
ALREADY = f"{NAME} has an open session already"
ADDED = "your reason is added to it"
STAYS = "; the cordon that others set stays when it is released"
YOURS = ", and only a person releases it then"


def look(on: Object, *opened: Object, mode: Mode = Mode.ENFORCE) -> NodeLook:
    health = sick(NAME, publisher={"heartbeat": ago(1)})
    return seen_by(health, *opened, on=on, policy=Policy(mode=mode))


def case(phase: str, **changes: Any) -> Object:
    return session(SESSION, NAME, phase, "So it stands.", **changes)


CORDONED = look(node(NAME, spec={"unschedulable": True}))
BY_PERSON = look(OUT, case("Draining", spec={"causes": [BY_ANN]}))
AT_CORDON = look(OUT, case("Marked", spec={"level": "Cordon"}))


@pytest.mark.parametrize(
    ("seen", "level", "said"),
    [
        (look(node(NAME)), "Drain", f"This takes {NAME} out of service: {LEAVE}."),
        (look(node(NAME)), "Cordon", f"This takes {NAME} out of service: nothing is evicted."),
        (CORDONED, "Drain", f"This takes {NAME} out of service: {LEAVE}{STAYS}."),
        (look(node(NAME), case("Pending")), "Drain",
         f"{ALREADY} (Pending): {ADDED}{YOURS}; {LEAVE}."),
        (look(OUT, case("Quarantined")), "Drain", f"{ALREADY} (Quarantined): {ADDED}{YOURS}."),
        (BY_PERSON, "Drain", f"{ALREADY} (Draining): {ADDED}."),
        (AT_CORDON, "Drain", f"{ALREADY} (Marked): {ADDED}{YOURS}; {LEAVE}."),
        (AT_CORDON, "Cordon", f"{ALREADY} (Marked): {ADDED}{YOURS}; nothing is evicted."),
        (look(node(NAME), mode=Mode.SHADOW), "Drain",
         f"This touches nothing of {NAME}: the policy is Shadow, and its session says why."),
    ],
)  # fmt: skip
def test_quarantine_asks_for_what_it_changes(seen: NodeLook, level: str, said: str) -> None:
    assert seen.node is not None
    assert of_quarantine(seen, seen.node, level, "4 pods", "") == said


def test_a_release_tells_what_comes_off_what_goes_on_and_what_is_still_wrong() -> None:
    step = {"step": "RestartNode", "adapter": "GKE", "state": "Asked"}
    seen = look(OUT, case("Repairing", repair=[step]))
    assert seen.session is not None
    said = of_release(seen, seen.session)
    assert f"returns {NAME} to service now: gpuward's taint and cordon come off. " in said
    assert "RestartNode of GKE is under way: the request is taken back, but" in said
    assert "Still active: Xid95UncontainedMemoryError (Fatal); as they are" in said
    gone = replace(seen, node=None)
    assert "There is no node gpu-7 any more: this only ends" in of_release(gone, seen.session)
