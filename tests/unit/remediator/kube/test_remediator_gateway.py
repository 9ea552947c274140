"""The gateway: what may be sent, when, by whom; and what every answer means."""

import asyncio
import json

import msgspec
import pytest
import structlog

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NODES
from remediator.controller.evictions import PodRecheck
from remediator.kube.answer import Answer, Result, classify
from remediator.kube.gateway import Gateway
from rules.api import writes as d
from rules.api.device_taints import TaintDevice
from rules.api.nodes import NodeView
from rules.api.quarantine import Cause, IsolatedDevice, Mode, QuarantineSpec, QuarantineStatus
from rules.api.quarantine_taint import quarantine_patch, release_patch
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.edge_world import Leader


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        await found.add_node("n1")
        yield found


async def nothing():
    """Do nothing after a read."""


class LateReads:
    """The API; `then` runs after each read, before its caller gets the answer."""

    def __init__(self, api):
        self._api = api
        self.then = nothing

    async def get(self, path, kind, **options):
        found = await self._api.get(path, kind, **options)
        await self.then()
        return found

    def __getattr__(self, name):
        return getattr(self._api, name)


def gateway(cluster, *, api=None, lead=None, mode=Mode.ENFORCE, recheck=lambda write, node: ""):
    return Gateway(
        api or cluster.api,
        cluster.clock,
        lead or Leader(),
        cluster.metrics,
        mode=lambda _: mode,
        recheck=recheck,
    )


async def taint(gate):
    node = await gate.fresh_node("n1")
    patch = quarantine_patch(node, session="s", reason="Xid79", parts="Taint", now=0.0)
    return d.TaintAndCordon(node="n1", node_uid=node.uid, session="s", patch=patch)


CAUSE = Cause(source="Human", message="a fire drill")
CREATE = d.CreateSession(name="s", spec=QuarantineSpec(node_name="n1", causes=(CAUSE,)))


async def test_a_quarantine_is_sent_on_a_fresh_node(cluster):
    gate = gateway(cluster)
    sent = await gate.send(await taint(gate))
    assert sent.result is Result.DONE
    assert cluster.writes() == [("patch", "nodes")]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"mode": Mode.SHADOW}, "mode is Shadow", id="Shadow"),
        pytest.param({"lead": Leader(write=False)}, "another replica leads", id="not leading"),
        pytest.param(
            {"lead": Leader(disruption=False)}, "not renewed within 10 s", id="stale lease"
        ),
        pytest.param(
            {"recheck": lambda write, node: "paused by alice"}, "paused by alice", id="recheck"
        ),
    ],
)
async def test_a_disruption_is_not_sent_and_has_a_cause(cluster, options, why):
    gate = gateway(cluster, **options)
    sent = await gate.send(await taint(gate))
    assert sent.result is Result.HELD
    assert why in sent.why
    assert cluster.writes() == []


async def test_a_pause_between_the_check_and_the_connection_still_stops_it(cluster):
    answers = iter(["", "paused just now"])
    gate = gateway(cluster, recheck=lambda write, node: next(answers))
    sent = await gate.send(await taint(gate))
    assert (sent.result, sent.why) == (Result.HELD, "paused just now")
    assert cluster.writes() == []


async def test_a_leader_deposed_while_it_waits_for_a_connection_writes_nothing(cluster):
    """Nothing at all: a session, a record and an event do no disruption, and are another's to
    write.
    """

    class Deposed(Leader):
        def __init__(self):
            super().__init__()
            self.asked = 0

        def may_write(self):
            self.asked += 1
            return self.asked == 1

    sent = await gateway(cluster, lead=Deposed()).send(CREATE)
    assert (sent.result, sent.why) == (Result.HELD, "another replica leads")
    assert cluster.writes() == []


async def test_an_old_read_of_the_node_is_not_good_enough(cluster):
    gate = gateway(cluster)
    write = await taint(gate)
    before = cluster.server.requests.count(verb="get", resource="nodes")
    cluster.clock.ahead_s += 2.0
    assert (await gate.send(write)).done
    assert cluster.server.requests.count(verb="get", resource="nodes") == before + 1


async def test_a_read_that_took_long_is_as_old_as_its_answer(cluster):
    """Else a server that needs two seconds for every answer would never get a taint and cordon."""
    reads = LateReads(cluster.api)
    gate = gateway(cluster, api=reads)
    write = await taint(gate)

    async def slow():
        cluster.clock.ahead_s += 2.0

    reads.then = slow
    cluster.clock.ahead_s += 2.0
    assert (await gate.send(write)).done


async def test_a_slow_read_stops_a_disruption(cluster):
    reads = LateReads(cluster.api)
    gate = gateway(cluster, api=reads)
    write = await taint(gate)

    async def slow():
        cluster.clock.ahead_s += 6.0

    reads.then = slow
    cluster.clock.ahead_s += 2.0
    sent = await gate.send(write)
    assert sent.result is Result.HELD
    assert "reading the node took 6." in sent.why
    assert cluster.writes() == []
    reads.then = nothing
    assert (await gate.send(write)).done, "it is read again, however young the slow answer is"


async def test_an_older_read_never_replaces_one_asked_later(cluster):
    reads = LateReads(cluster.api)
    gate = gateway(cluster, api=reads)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def held_up():
        asked.set()
        await go_on.wait()

    reads.then = held_up
    older = asyncio.create_task(gate.fresh_node("n1"))
    await asked.wait()
    reads.then = nothing
    cluster.clock.ahead_s += 1.0
    opt_out = {"metadata": {"labels": {"gpuward.io/opt-out": "true"}}}
    await cluster.client.patch(NODES, "n1", opt_out)
    newer = await gate.fresh_node("n1")
    go_on.set()
    assert (await older).labels["gpuward.io/opt-out"] == "true"
    assert await gate.fresh_node("n1", max_age_s=1.0) is newer


async def test_records_go_out_in_shadow_and_without_a_fresh_lease(cluster):
    gate = gateway(cluster, mode=Mode.SHADOW, lead=Leader(disruption=False))
    assert (await gate.send(CREATE)).done
    assert cluster.writes() == [("create", "gpuquarantines")]


async def test_in_shadow_an_existing_taint_and_cordon_may_be_removed(cluster):
    assert (await (gate := gateway(cluster)).send(await taint(gate))).done
    shadow = gateway(cluster, mode=Mode.SHADOW)
    node = await shadow.fresh_node("n1")
    off = d.RemoveTaint(node="n1", node_uid=node.uid, session="s", patch=release_patch(node))
    assert (await shadow.send(off)).done
    after = await cluster.client.get(NODES, "n1")
    assert "taints" not in after["spec"]


@pytest.mark.parametrize(("effect", "allowed"), [("NoSchedule", False), ("None", True)])
async def test_in_shadow_a_device_taint_has_no_effect(cluster, effect, allowed):
    device = IsolatedDevice(
        uuid="GPU-1", driver="gpu.nvidia.com", pool="n1", device="gpu-1", rule="gpuward-1"
    )
    write = TaintDevice(
        node="n1",
        node_uid="u",
        session="s",
        session_uid="su",
        api_version="resource.k8s.io/v1beta2",
        device=device,
        reason="Xid79",
        effect=effect,
    )
    assert (await gateway(cluster, mode=Mode.SHADOW).send(write)).done is allowed
    assert cluster.writes() == [("create", "devicetaintrules")] * allowed


async def test_nothing_that_shadow_logs_or_counts_reads_as_done_to_a_pod_or_node(cluster):
    gate = gateway(cluster, mode=Mode.SHADOW)
    assert (await gate.send(CREATE)).done
    status = QuarantineStatus(phase="Marked", mode="Shadow")
    session = await cluster.client.get(QUARANTINES, "s")
    write = d.WriteSessionStatus(
        node="n1",
        name="s",
        resource_version=session["metadata"]["resourceVersion"],
        status=status,
    )
    eviction = d.EvictPod(node="n1", namespace="default", name="p", uid="u", dry_run=True)
    with structlog.testing.capture_logs() as logs:
        await gate.send(write)
        await gate.send(eviction)
    assert [(line["kind"], line.get("phase"), line.get("mode")) for line in logs] == [
        ("WriteSessionStatus", "Marked", "Shadow"),
        ("DryRunEviction", None, None),
    ]
    page = cluster.metrics.page().decode()
    assert 'gpuward_writes_total{kind="DryRunEviction",result="gone"} 1.0' in page
    assert "EvictPod" not in page


@pytest.mark.parametrize(
    ("code", "result"),
    [
        pytest.param(200, Result.DONE, id="200"),
        pytest.param(201, Result.DONE, id="201"),
        pytest.param(409, Result.CONFLICT, id="409"),
        pytest.param(404, Result.GONE, id="404"),
        pytest.param(429, Result.THROTTLED, id="429"),
        pytest.param(401, Result.REFUSED, id="401"),
        pytest.param(403, Result.REFUSED, id="403"),
        pytest.param(422, Result.REFUSED, id="422"),
        pytest.param(500, Result.UNKNOWN, id="500"),
        pytest.param(503, Result.UNKNOWN, id="503"),
        pytest.param(0, Result.UNKNOWN, id="no answer"),
    ],
)
def test_answers_of_writes(code, result):
    assert classify(Answer(code=code)) is result


def test_a_patch_of_a_replaced_object_is_a_conflict():
    message = 'Pod "p" is invalid: metadata.uid: Invalid value: "u": field is immutable'
    body = json.dumps({"kind": "Status", "message": message}).encode()
    answer = Answer(code=422, body=body, content_type="application/json")
    assert classify(answer) is Result.CONFLICT


ORPHAN = {"metadata": {"annotations": {"gpuward.io/session": None}}}


async def test_an_orphaned_taint_is_removed_only_if_its_session_does_not_exist(cluster):
    gate = gateway(cluster)
    off = d.RemoveTaint(node="n1", node_uid="u", session="s", patch=ORPHAN, orphan=True)
    await gate.send(CREATE)
    held = await gate.send(off)
    assert (held.result, held.why) == (Result.HELD, "session s exists")
    await cluster.client.delete(QUARANTINES, "s")
    assert (await gate.send(off)).done
    assert cluster.writes()[-1] == ("patch", "nodes")


async def test_a_taint_of_another_nodes_session_is_orphaned(cluster):
    await cluster.add_node("n2")
    gate = gateway(cluster)
    await gate.send(CREATE)
    off = d.RemoveTaint(node="n2", node_uid="u", session="s", patch=ORPHAN, orphan=True)
    assert (await gate.send(off)).done


async def test_missing_definitions_free_no_node(cluster):
    await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, "gpuquarantines.gpuward.io")
    off = d.RemoveTaint(node="n1", node_uid="u", session="s", patch=ORPHAN, orphan=True)
    sent = await gateway(cluster).send(off)
    assert sent.result is Result.HELD
    assert "session not read" in sent.why
    assert cluster.writes() == []


async def test_a_session_that_cannot_be_read_frees_no_node(cluster):
    error = ApiError(503, "ServiceUnavailable", "later")
    cluster.server.faults.fail(error, path=".*gpuquarantines")
    off = d.RemoveTaint(node="n1", node_uid="u", session="s", patch=ORPHAN, orphan=True)
    sent = await gateway(cluster).send(off)
    assert (sent.result, sent.answer) == (Result.UNKNOWN, None), "no answer to the write itself"
    assert cluster.writes() == []


def watching(cluster, node, **options):
    """A gateway with a watch that shows the node in this state."""
    return Gateway(
        cluster.api,
        cluster.clock,
        Leader(),
        cluster.metrics,
        mode=lambda _: Mode.ENFORCE,
        watched=lambda name: node,
        **{"recheck": lambda write, node: "", **options},
    )


def taint_on(node):
    patch = quarantine_patch(node, session="s", reason="Xid79", parts="Taint", now=0.0)
    return d.TaintAndCordon(node="n1", node_uid=node.uid, session="s", patch=patch)


async def test_a_quarantine_of_the_watched_version_needs_no_read(cluster):
    node = await cluster.api.get("/api/v1/nodes/n1", NodeView)
    before = cluster.server.requests.count(verb="get", resource="nodes")
    checked: list[str] = []

    def recheck(write, node):
        checked.append(node.uid)
        return ""

    gate = watching(cluster, node, recheck=recheck)
    assert (await gate.send(taint_on(node))).done
    assert cluster.server.requests.count(verb="get", resource="nodes") == before
    assert checked == [node.uid, node.uid], "the rules look once more, and again on the connection"


async def test_a_quarantine_applies_only_to_the_version_it_was_decided_on(cluster):
    node = await cluster.api.get("/api/v1/nodes/n1", NodeView)
    opt_out = {"metadata": {"labels": {"gpuward.io/opt-out": "true"}}}
    await cluster.client.patch(NODES, "n1", opt_out)
    sent = await watching(cluster, node).send(taint_on(node))
    assert sent.result is Result.CONFLICT
    assert "taints" not in (await cluster.client.get(NODES, "n1"))["spec"]


async def test_a_quarantine_of_another_version_than_the_watched_one_needs_a_read(cluster):
    node = await cluster.api.get("/api/v1/nodes/n1", NodeView)
    older = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, resource_version="1")
    )
    before = cluster.server.requests.count(verb="get", resource="nodes")
    assert (await watching(cluster, older).send(taint_on(node))).done
    assert cluster.server.requests.count(verb="get", resource="nodes") == before + 1


async def test_an_eviction_needs_no_read_of_a_node_whose_watch_is_up_to_date(cluster):
    node = await cluster.api.get("/api/v1/nodes/n1", NodeView)
    watched = [node]
    gate = watching(cluster, None, watched_now=lambda _: watched[0])
    eviction = d.EvictPod(node="n1", namespace="default", name="p", uid="u")
    pod = PodRecheck(cluster.api, cluster.clock, eviction, lambda _: "")
    before = cluster.server.requests.count(verb="get", resource="nodes")
    assert (await gate.send(eviction, pod)).result is Result.HELD, "there is no such pod"
    assert cluster.server.requests.count(verb="get", resource="nodes") == before
    watched[0] = None
    await gate.send(eviction, pod)
    assert cluster.server.requests.count(verb="get", resource="nodes") == before + 1


async def test_evictions_of_one_moment_share_one_read_of_their_node(cluster):
    gate = gateway(cluster)
    before = cluster.server.requests.count(verb="get", resource="nodes")
    evictions = [
        d.EvictPod(node="n1", namespace="default", name=f"p{number}", uid="u")
        for number in range(10)
    ]
    sent = await asyncio.gather(*map(gate.send, evictions))
    assert {each.result for each in sent} == {Result.GONE}
    assert cluster.server.requests.count(verb="get", resource="nodes") == before + 1
