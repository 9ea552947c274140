"""Lists and watches over HTTP: selection, where watches start, what they say, how they end."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import MERGE_PATCH, DeleteOptions, WriteOptions
from hack.sim.cluster.store.deletion import delete
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.listing import ListOptions, list_objects, read_selection
from tests.support.cluster.apiserver_support import (
    EVENTS,
    NODES,
    PODS,
    node,
    pod,
    running_pod,
    serving,
)
from tests.support.scenario.examples import examples


async def test_leaving_and_entering_a_selection_are_deletion_and_addition():
    async with serving() as api:
        await api.post(NODES, node())
        async with api.watch(NODES, labelSelector="sick=true") as watch:
            sick = {"metadata": {"labels": {"sick": "true"}}}
            await api.patch(f"{NODES}/n1", sick)
            assert (await watch.next())[0] == "ADDED"
            healed = await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"sick": "false"}}})
            type_, obj = await watch.next()
            assert type_ == "DELETED"
            assert obj["metadata"]["labels"] == {"sick": "true"}
            assert obj["metadata"]["resourceVersion"] == healed["metadata"]["resourceVersion"]


async def test_too_old_a_version_is_an_error_event_of_code_410():
    async with serving() as api:
        await api.post(NODES, node())
        api.server.store.compact()
        async with api.watch(NODES, resourceVersion="1") as watch:
            assert watch.code == 200
            type_, status = await watch.next()
            assert (type_, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
            assert status["message"].startswith("too old resource version: 1 (")
            assert await watch.ended()


def names(listed):
    return [one["metadata"]["name"] for one in listed["items"]]


async def fleet(api, count=5):
    for index in range(count):
        await api.post(NODES, node(f"n{index}", labels={"pool": "ab"[index % 2]}))


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("pool=a", ["n0", "n2", "n4"]),
        ("pool==b", ["n1", "n3"]),
        ("pool!=a", ["n1", "n3"]),
        ("pool in (a, b)", ["n0", "n1", "n2", "n3", "n4"]),
        ("pool notin (a)", ["n1", "n3"]),
        ("pool,other", []),
        ("!other", ["n0", "n1", "n2", "n3", "n4"]),
        ("pool=a,other!=x", ["n0", "n2", "n4"]),
    ],
)
async def test_label_selectors(selector, found):
    async with serving() as api:
        await fleet(api)
        assert names(await api.get(NODES, labelSelector=selector)) == found


@pytest.mark.parametrize(
    ("path", "selector", "found"),
    [
        pytest.param(NODES, "metadata.name=n1", ["n1"], id="name"),
        pytest.param(NODES, "metadata.name!=n1", ["n2"], id="not-name"),
        pytest.param(NODES, "spec.unschedulable=true", ["n2"], id="unschedulable"),
        pytest.param(NODES, "spec.unschedulable=false", ["n1"], id="schedulable"),
        pytest.param(PODS, "spec.nodeName=n1", ["p1"], id="node-of-pods"),
        pytest.param(PODS, "spec.nodeName=", ["p2"], id="unbound-pods"),
        pytest.param(PODS, "status.phase=Running,spec.nodeName=n1", ["p1"], id="two-terms"),
        pytest.param(PODS, "status.phase!=Running", ["p2"], id="not-running"),
        pytest.param("/api/v1/pods", "metadata.namespace=default", ["p1", "p2"], id="namespace"),
        pytest.param(EVENTS, "involvedObject.name=n1,type=Warning", ["e1"], id="events"),
        pytest.param(EVENTS, "reason=Other", [], id="event-reason"),
        pytest.param(EVENTS, "involvedObject.uid=u1,source=us", ["e1"], id="event-source"),
    ],
)
async def test_field_selectors(path, selector, found):
    async with serving() as api:
        await api.post(NODES, node("n1"))
        await api.post(NODES, {**node("n2"), "spec": {"unschedulable": True}})
        await running_pod(api, "p1")
        await api.post(PODS, pod("p2", None))
        event = {
            "metadata": {"name": "e1"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "u1"},
            "type": "Warning",
            "reason": "Broken",
            "source": {"component": "us"},
        }
        await api.post(EVENTS, event)
        assert names(await api.get(path, fieldSelector=selector)) == found


NAMES = st.sampled_from(["a", "b", "c", "d"])
COLORS = st.sampled_from(["red", "blue"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, COLORS),
        st.tuples(st.just("paint"), NAMES, COLORS),
        st.tuples(st.just("delete"), NAMES, st.none()),
    ),
    max_size=25,
)


def apply(engine, step):
    """One step; steps that make no sense now are skipped."""
    what, name, color = step
    kind = engine.kind(r.NODES)
    present = engine.objects.peek(r.NODES, name) is not None
    if what == "create" and not present:
        engine.create(r.NODES, node(name, labels={"color": color}))
    elif what == "paint" and present:
        patch = {"metadata": {"labels": {"color": color}}}
        engine.objects.patch(kind, name, None, patch, MERGE_PATCH, WriteOptions())
    elif what == "delete" and present:
        delete(engine.objects, kind, name, None, DeleteOptions())


def listed(engine, label_selector=None, **options):
    kind = engine.kind(r.NODES)
    selection = read_selection(kind, None, label_selector, None)
    page = list_objects(engine.objects, kind, selection, ListOptions(**options))
    return {one.obj["metadata"]["name"]: one.obj for one in page.items}, page


@settings(max_examples=examples(30), deadline=None)
@given(before=STEPS, after=STEPS, selector=st.sampled_from([None, "color=red", "color!=red"]))
def test_a_list_and_a_watch_from_it_give_the_present(before, after, selector):
    async def check():
        engine = Engine()
        for step in before:
            apply(engine, step)
        seen, page = listed(engine, selector)
        kind = engine.kind(r.NODES)
        selection = read_selection(kind, None, selector, None)
        live = engine.watch(kind, selection, page.metadata["resourceVersion"])
        for step in after:
            apply(engine, step)
        late = engine.watch(kind, selection, page.metadata["resourceVersion"])
        expected, _ = listed(engine, selector)
        for subscription in (live, late):
            view = dict(seen)
            engine.forget(subscription)
            for notice in await subscription.drain():
                name = notice.stored.obj["metadata"]["name"]
                assert (name in view) is (notice.type != "ADDED")
                if notice.type == "DELETED":
                    del view[name]
                else:
                    view[name] = notice.stored.obj
            assert view == expected

    asyncio.run(check())
