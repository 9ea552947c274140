"""Creating objects over HTTP: names, defaults, refusals, bindings, events."""

from __future__ import annotations

import pytest

from tests.support.cluster.apiserver_support import (
    NODES,
    PODS,
    node,
    pod,
    serving,
)


async def test_a_new_object_gets_identity_and_time():
    async with serving(clock=lambda: 1_700_000_000.9) as api:
        made = (await api.post(NODES, node()))["metadata"]
        assert made["creationTimestamp"] == "2023-11-14T22:13:20Z"
        assert len(made["uid"]) == 36
        assert made["resourceVersion"].isdigit()
        assert "generation" not in made
        assert (await api.post(PODS, pod()))["metadata"]["generation"] == 1


async def test_a_taken_name_answers_409_already_exists():
    async with serving() as api:
        await api.post(NODES, node())
        answer = await api("POST", NODES, node())
        assert (answer.code, answer.reason) == (409, "AlreadyExists")
        assert answer.message == 'nodes "n1" already exists'
        assert answer.details == {"name": "n1", "kind": "nodes"}


@pytest.mark.parametrize(
    ("name", "priority"), [("system-node-critical", 2_000_001_000), ("mine", 7)]
)
async def test_priority_classes_are_resolved(name, priority):
    async with serving() as api:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await api.post(path, {"metadata": {"name": "mine"}, "value": 7})
        body = pod()
        body["spec"]["priorityClassName"] = name
        assert (await api.post(PODS, body))["spec"]["priority"] == priority


async def test_a_dry_run_create_stores_nothing():
    async with serving() as api:
        assert (await api("POST", NODES, node(), dryRun="All")).code == 201
        assert (await api("GET", f"{NODES}/n1")).code == 404
