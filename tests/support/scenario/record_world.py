"""A cluster whose faults are kept in records, as the leader keeps them."""

from __future__ import annotations

from typing import Any

from rules.api.gpu_record import RecordStatus, gpu_record_name
from tests.support.scenario.repair_world import NODE, STEPS, RepairWorld
from tests.support.scenario.session_world import ROOMY, policy_of

DAY = 86_400.0


class RecordWorld(RepairWorld):
    """Records are kept when a test says so; sessions in a row alone replace nothing here."""

    def __init__(self, *steps: str, **repair: Any) -> None:
        """`steps`: those that the policy has an adapter for."""
        super().__init__(nodes=2)
        asked = {step: STEPS[step] for step in steps or STEPS}
        self.policy = policy_of(
            budget=ROOMY,
            repair={"mode": "Auto", "steps": asked, "attempts": 99, **repair},
            release={"replaceAfter": 99},
        )

    def keep_records(self) -> int:
        """One sweep of the real record keeping over all nodes; how many writes it took."""
        before, keeping = len(self.sent), self.replica.records
        keeping.took_over()
        self.do(keeping.sweep())
        return len(self.sent) - before

    def record(self, gpu: str = f"GPU-{NODE}-0") -> RecordStatus:
        """The record of a GPU."""
        return self.snapshot().records[gpu_record_name(gpu)].status

    def incident(self, node: str, *args: Any, **more: Any) -> str:
        """Of a GPU that the node's verdict lists, as agents list every GPU they ever saw there."""
        name = super().incident(node, *args, **more)
        status = self.healths[node]["status"]
        listed = status.setdefault("gpus", [])
        for uuid in status["incidents"][0]["gpus"]:
            if all(gpu["uuid"] != uuid for gpu in listed):
                listed.append({"uuid": uuid, "health": "Unhealthy"})
        return name

    def fail_five_times(self) -> None:
        """A fault on each of five days, each mended by a restart."""
        for _ in range(5):
            self.fault(days_later=1)

    def fault(self, days_later: float = 0.0, node: str = NODE) -> None:
        """Time goes by in leaps; then a fault, its session and its end."""
        self.now += days_later * DAY
        self.run(120, step=60)
        self.incident(node)
        self.run_until(node, "Released", limit=40_000, step=25)
        self.keep_records()
