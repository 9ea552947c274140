"""Properties of the store: any watch replays to the list, any past revision can be listed."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions, WriteOptions
from hack.sim.cluster.clients.client import MERGE_PATCH
from hack.sim.cluster.store.deletion import delete
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.listing import ListOptions, list_objects, read_selection
from hack.sim.cluster.store.managed_fields import update_managed_fields
from hack.sim.cluster.store.patching import merge_patch
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


@settings(max_examples=examples(30), deadline=None)
@given(before=STEPS, after=STEPS, limit=st.integers(1, 3))
def test_pages_add_up_to_the_moment_of_the_first(before, after, limit):
    engine = Engine()
    for step in before:
        apply(engine, step)
    expected, _ = listed(engine)
    found, page = listed(engine, limit=limit)
    pending = list(after)
    while token := page.metadata.get("continue"):
        for step in pending[:3]:
            apply(engine, step)
        pending = pending[3:]
        more, page = listed(engine, limit=limit, continue_token=token)
        assert not found.keys() & more.keys()
        found |= more
    assert found == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "spec", "metadata"]), JSON, max_size=3)


@given(target=OBJECTS, patch=OBJECTS)
def test_a_merge_patch_changes_neither_its_target_nor_itself(target, patch):
    kept = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert (target, patch) == kept
    assert merge_patch(once, patch) == once


def leaves(fields, path=()):
    if not fields:
        return {path}
    return {leaf for key, inner in fields.items() for leaf in leaves(inner, (*path, key))}


FLAT = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)


@given(states=st.lists(st.tuples(st.sampled_from(["one", "two"]), FLAT), min_size=1, max_size=6))
def test_every_field_is_owned_by_whoever_changed_it_last(states):
    obj: dict[str, Any] = {}
    owner: dict[str, str] = {}
    for manager, spec in states:
        before = obj.get("spec", {})
        new = {"metadata": {}, "spec": spec}
        entries = update_managed_fields(
            obj or None,
            new,
            manager=manager,
            subresource="",
            api_version="v1",
            at="now",
            custom=False,
        )
        owner = {key: value for key, value in owner.items() if key in spec}
        owner |= {key: manager for key in spec if before.get(key) != spec[key]}
        new["metadata"]["managedFields"] = entries
        obj = new
    found = {}
    for entry in obj["metadata"]["managedFields"]:
        for leaf in leaves(entry["fieldsV1"]):
            if leaf[0] == "f:spec" and len(leaf) == 2 and leaf[1] != ".":
                found[leaf[1].removeprefix("f:")] = entry["manager"]
    assert found == owner
