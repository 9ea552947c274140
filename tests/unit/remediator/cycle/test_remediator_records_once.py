"""What goes with a mark is written with it: nothing asks for its record and its Event again."""

from __future__ import annotations

import pytest

from remediator.cycle.writes import Writes
from rules.api import writes as d
from rules.api.nodes import ObjectMeta, QuarantineView
from rules.api.quarantine import Mode, QuarantineSpec, QuarantineStatus
from rules.policy.policy import Policy
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import edge_world


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def test_a_mark_that_is_put_on_takes_its_record_and_its_event_along(setting):
    writes = Writes(setting.edge(), lambda: None)
    session = QuarantineView(
        metadata=ObjectMeta(name="s", uid="u"),
        spec=QuarantineSpec(node_name="n1"),
        status=QuarantineStatus(phase="Draining"),
    )
    status = QuarantineStatus(phase="Draining", message="put back")
    record = d.WriteSessionStatus(node="n1", name="s", resource_version="1", status=status)
    event = d.EmitEvent(
        node="n1", node_uid="n", kind="Warning", reason="r", message="m", at=0.0, key="k"
    )
    mark = d.MarkNode(node="n1", node_uid="n", session="s", patch={})

    def decision(*parts: d.Write) -> d.Decision:
        return d.Decision(step="s", because="b", status=status, writes=parts)

    assert writes.spread(session, decision(record, event)) == ((record, event), None)
    kept, wait_s = writes.spread(session, decision(record, event))
    assert kept == ()
    assert wait_s is not None
    together = (mark, record, event)
    assert writes.spread(session, decision(*together)) == (together, None)
