"""Which part was put in for which is on record: of the session, of the GPU, and in the credit."""

from __future__ import annotations

import pytest

from rules.api.gpu_record import FaultOutcome
from rules.api.timestamps import format_time
from rules.repair.parts import MAX_REPLACED, kept_replacements
from tests.support.scenario.record_world import RecordWorld
from tests.support.scenario.repair_world import NODE

OLD, NEW, OTHER = f"GPU-{NODE}-0", "GPU-new", "GPU-other"
SLOT = "0000:3b:00.0"


def gpu(uuid: str, pci: str = SLOT) -> dict[str, str]:
    return {"uuid": uuid, "serial": f"serial-of-{uuid[4:]}", "pci": pci, "health": "Healthy"}


class PartsWorld(RecordWorld):
    """A node with two GPUs with serial numbers, of which the first fails."""

    def __init__(self, *steps: str, **repair: str) -> None:
        super().__init__(*steps, **repair)
        self.gpus(gpu(OLD), gpu(OTHER, "0000:4b:00.0"))

    def gpus(self, *listed: dict[str, str]) -> None:
        status = self.healths[NODE]["status"]
        status["gpus"] = [dict(one) for one in listed]
        status["virtualization"] = "none"

    def swap(self, uuid: str = NEW) -> None:
        """The node was opened, the part replaced, and it boots."""
        self.gpus(gpu(uuid), gpu(OTHER, "0000:4b:00.0"))
        self.reboot(NODE)
        self.close_all(NODE)

    def told(self) -> list[str]:
        timeline = self.session(NODE).status.timeline
        return [entry.message for entry in timeline if entry.step == "GPUReplaced"]


def test_a_swap_during_a_step_is_said_by_session_and_record_and_the_swap_gets_the_credit() -> None:
    world = PartsWorld()
    world.does = "hangs"
    world.incident(NODE)
    world.run_until(NODE, "Repairing", limit=60)
    world.run(120)
    world.keep_records()
    world.swap()
    world.run_until(NODE, "Released", limit=7200, step=5)
    (said,) = world.told()
    assert said == (
        f"GPU serial serial-of-{OLD[4:]} ({OLD}) at {SLOT} was replaced by serial serial-of-new "
        "(GPU-new), during RestartNode"
    )
    world.keep_records()
    record = world.record()
    assert record.replaced is not None
    out = record.replaced
    assert (out.uuid, out.serial, out.node, out.slot) == (NEW, "serial-of-new", NODE, SLOT)
    assert (out.session, out.step) == (world.session(NODE).name, "RestartNode")
    (event,) = record.events
    assert (event.outcome, event.steps) == (FaultOutcome.RELEASED, ("GPUReplaced",))
    assert "replaced by serial serial-of-new (GPU-new) in n0 0000:3b:00.0 on " in record.message
    assert world.keep_records() == 0, "the same facts again write nothing"


def test_a_swap_by_hand_names_no_step_and_the_steps_before_it_did_not_hold() -> None:
    world = PartsWorld("RestartNode")
    world.does = "reboots"
    world.incident(NODE)
    world.run_until(NODE, "Repairing", limit=60)
    world.run(3600, step=10)
    world.keep_records()
    assert world.phase(NODE) == "Quarantined"
    world.swap()
    world.run_until(NODE, "Released", limit=7200, step=5)
    (said,) = world.told()
    assert said.endswith("(GPU-new)")
    world.keep_records()
    (event,) = world.record().events
    assert event.steps == ("RestartNode", "GPUReplaced")
    out = world.record().replaced
    assert out is not None
    assert out.step == ""


@pytest.mark.parametrize("knows", [True, False])
def test_a_new_leader_says_it_once(knows: bool) -> None:
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    world.swap()
    world.run(5)
    world.restart(knows_before=knows)
    world.run(60)
    assert len(world.told()) == 1


def test_a_lost_gpu_that_comes_back_was_not_replaced() -> None:
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    world.gpus(gpu(OTHER, "0000:4b:00.0"))
    world.run(60)
    world.gpus(gpu(OLD), gpu(OTHER, "0000:4b:00.0"))
    world.close_all(NODE)
    world.run_until(NODE, "Released", limit=7200, step=5)
    assert world.told() == []


def test_a_part_that_is_missing_over_a_boot_and_replaced_later_is_said() -> None:
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    world.gpus(gpu(OTHER, "0000:4b:00.0"))
    world.reboot(NODE)
    world.run(7200, step=60)
    world.swap()
    world.run(60)
    assert len(world.told()) == 1


def test_a_silent_agents_inventory_says_nothing() -> None:
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    world.silence(NODE)
    world.run(3600, step=60)
    world.gpus(gpu(NEW), gpu(OTHER, "0000:4b:00.0"))
    world.run(60)
    assert world.told() == []


def test_a_node_that_shows_other_gpus_at_every_look_is_followed_no_further() -> None:
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    for number in range(MAX_REPLACED + 10):
        world.gpus(gpu(f"GPU-fake-{number}"), gpu(OTHER, "0000:4b:00.0"))
        world.run(2)
    evidence = world.session(NODE).status.evidence
    assert len(kept_replacements(evidence)) == MAX_REPLACED


def test_repaired_said_of_the_new_part_clears_nothing_of_the_old_one() -> None:
    """The runbook of a return ends with it, and the old part may be plugged in elsewhere."""
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    world.swap()
    world.run(60)
    world.annotate(NODE, "gpuward.io/repaired", f"{format_time(world.now)} RMA 4711 (ada)")
    world.run_until(NODE, "Released", limit=7200, step=5)
    world.keep_records()
    record = world.record()
    assert record.replaced is not None
    assert record.said == ()
    assert "nothing on record counts against it" not in record.message


def test_a_part_that_was_put_back_is_not_said_to_be_replaced() -> None:
    """The new part was not the remedy: the old one sits where it sat, in the same slot."""
    world = PartsWorld(mode="Off")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    world.keep_records()
    world.run(7200, step=60)
    world.swap()
    world.run(7200, step=60)
    world.keep_records()
    assert world.record().gone_for is not None
    world.swap(OLD)
    world.run(60)
    world.keep_records()
    record = world.record()
    assert record.replaced is not None, "that it was stays on record"
    assert record.gone_for is None
    assert "replaced by" not in record.message
    assert [(place.node, place.slot) for place in record.places] == [(NODE, SLOT), (NODE, SLOT)]
    assert world.keep_records() == 0, "the same facts again write nothing"
