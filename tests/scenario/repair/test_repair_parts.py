"""A part is replaced while its node is in quarantine."""

from __future__ import annotations

from rules.api.timestamps import format_time
from tests.support.scenario.repair_world import NODE, RecordWorld

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
    assert record.said == ()
    assert "nothing on record counts against it" not in record.message
