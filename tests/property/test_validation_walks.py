"""Whatever happens to a node and to its tests, in whatever order: only a pass gives it back."""

import json
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.api import writes as d
from rules.api.quarantine import Phase
from rules.api.repair_writes import CreateTestJob
from rules.session.validation.result import Assessment, Check, Result, read
from tests.support.scenario.repair_world import HAPPENS, NODE, OUTCOMES, ValidationWorld

WALKS, ACTS = 10, 14


class Walk(ValidationWorld):
    """A world with what may happen in it, and what must never follow."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        becomes = [self.chance.choice(sorted({*OUTCOMES, *HAPPENS})) for _ in range(20)]
        super().__init__(*becomes, "passes", nodes=2, timeout="10m", repair={"mode": "Off"})
        self.meddler = self.never
        self.acts: list[Callable[[], object]] = [
            lambda: self.reboot(NODE),
            lambda: self.incident(NODE),
            lambda: self.close_all(NODE),
            lambda: self.close_all(NODE),
            lambda: self.close_all(NODE),
            self.pause,
            self.pauses.clear,
            lambda: self.annotate(NODE, "gpuward.io/hold", "x"),
            lambda: self.annotate(NODE, "gpuward.io/hold", None),
            lambda: self.add_pod("trainer", NODE, gpus=8),
            lambda: self.pods.pop(("team-a", "trainer"), None),
            lambda: self.silence(NODE),
            lambda: self.speak(NODE),
            self.restart,
            self.change_leader,
            self.delete_jobs,
        ]

    def delete_jobs(self) -> None:
        for name in list(self.jobs):
            self.delete_job(name)

    def never(self, write: d.Write) -> None:
        """Checked before each write lands."""
        if isinstance(write, CreateTestJob):
            assert not self.pauses
            assert "gpuward.io/hold" not in self.nodes[NODE]["metadata"]["annotations"]
            session = self.session(NODE).status
            assert session.phase == Phase.VALIDATING
            assert [t.object for t in session.validation if t.state == "Planned"] == [write.name]
        if isinstance(write, d.WriteSessionStatus) and write.status.phase == Phase.RELEASED:
            self.never_untested(write)

    def never_untested(self, write: d.WriteSessionStatus) -> None:
        drained = [e for e in write.status.timeline if e.step == "Quarantined"]
        if not drained:
            return
        last = write.status.validation[-1]
        boot = self.nodes[NODE]["status"]["nodeInfo"]["bootID"]
        assert (last.state, last.boot_id, last.result) == ("Passed", boot, "pass")
        returned = [e.at for e in write.status.timeline if e.step == "CauseReturned"]
        assert all(at <= last.started_at for at in returned)


@pytest.mark.parametrize("seed", range(WALKS))
def test_no_walk_ends_with_a_release_that_no_pass_stands_behind(seed: int) -> None:
    world = Walk(seed)
    world.incident(NODE)
    world.run(30, step=5)
    for _ in range(ACTS):
        world.chance.choice(world.acts)()
        world.run(world.chance.choice([5, 60, 300, 900]), step=15)
    world.pauses.clear()
    world.annotate(NODE, "gpuward.io/hold", None)
    world.pods.pop(("team-a", "trainer"), None)
    world.speak(NODE)
    world.close_all(NODE)
    world.becomes = ["passes"]
    # What may still run comes to its end; then an operator reboots the node.
    world.run(1500, step=30)
    world.close_all(NODE)
    world.reboot(NODE)
    world.run(1500, step=30)
    assert world.phase(NODE) in {"Released", "Cancelled"}, world.message(NODE)
    assert not world.is_quarantined(NODE)


texts = st.text(max_size=200)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
checks = st.builds(
    Check,
    id=st.text(max_size=30),
    gpu=texts,
    assessment=st.sampled_from(Assessment),
    value=numbers,
    floor=numbers,
    ceiling=numbers,
    note=texts,
)
results = st.builds(
    Result,
    assessment=st.sampled_from(Assessment),
    message=st.text(max_size=3000),
    checks=st.lists(checks, max_size=60),
)


@given(
    st.integers(-20, 260),
    st.text() | results.map(lambda r: msgspec.json.encode(r).decode()),
)
def test_only_status_0_with_a_clean_result_passes(status: int, text: str) -> None:
    if read(status, text).assessment is Assessment.PASS:
        assert status == 0
        assert not text.strip() or json.loads(text)["verdict"] == "pass"
