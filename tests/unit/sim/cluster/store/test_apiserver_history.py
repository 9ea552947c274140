"""Properties of the store: any watch replays to the list, any past revision can be listed."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from hack.sim.cluster import resource as r
from hack.sim.cluster.clients.client import MERGE_PATCH
from hack.sim.cluster.resource import DeleteOptions, WriteOptions
from hack.sim.cluster.store.deletion import delete
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.listing import ListOptions, list_objects, read_selection
from tests.support.cluster.apiserver_support import node
from tests.support.scenario.examples import examples

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
