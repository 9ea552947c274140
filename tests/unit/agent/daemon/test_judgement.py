"""What is known once the past is read, in which order ever it came."""

from __future__ import annotations

import pytest

from agent.daemon.judgement import KEPT_OTHERS, Judgement, Who
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.observation import NodeSeen, SourceName, SourceState, Tick
from tests.support.scenario.judgement_world import START, World


@pytest.mark.parametrize("waited", [0, KEPT_OTHERS + 1], ids=["at once", "late"])
@pytest.mark.parametrize("asked", [True, False])
def test_the_node_says_whether_gpus_are_let_go_of_however_late_the_past_is_read(
    waited: int, *, asked: bool
) -> None:
    before = World().start()
    before.annotations["gpuward.io/release-gpu"] = "swapping a card"
    before.node()
    before.source(SourceName.NVML, SourceState.RELEASED)
    who = Who(node_name="n1", expected_gpus=None, boot_id=before.boot)
    judgement = Judgement(who, DEFAULT_RULES, lambda: START)
    annotations = before.annotations if asked else {}
    judgement.observe(
        NodeSeen(at=START, name="n1", uid="node-uid-1", boot_id=before.boot,
                 annotations=annotations, labels={})
    )  # fmt: skip
    for _ in range(waited):
        judgement.observe(Tick(at=START))
    judgement.remember(before.published().status)
    assert judgement.state.standing_down is asked
