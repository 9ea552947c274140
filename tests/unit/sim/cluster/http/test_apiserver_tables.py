"""Tables and ages: what kubectl prints."""

from __future__ import annotations

import pytest

from hack.sim.cluster.store.timestamps import duration
from hack.sim.cluster.tables.columns_pod import pod_ready, pod_restarts, pod_status
from hack.sim.cluster.tables.jsonpath import find
from tests.support.cluster.apiserver_support import (
    BUDGETS,
    EVENTS,
    NODES,
    PODS,
    budget,
    node,
    running_pod,
    serving,
)

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;"
    "g=meta.k8s.io,application/json"
)
NOW = 1_700_000_000.0


async def rows(api, path):
    table = (await api("GET", path, accept=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    headers = [one["name"] for one in table["columnDefinitions"]]
    return [dict(zip(headers, row["cells"], strict=True)) for row in table["rows"]]


async def test_nodes():
    async with serving(clock=lambda: NOW) as api:
        labels = {"node-role.kubernetes.io/gpu": "", "node-role.kubernetes.io/worker": ""}
        body = node(labels=labels)
        body["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
        body["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.2"}
        await api.post(NODES, body)
        await api.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}})
        (row,) = await rows(api, NODES)
        assert row["Status"] == "Ready,SchedulingDisabled"
        assert (row["Roles"], row["Version"], row["Age"]) == ("gpu,worker", "v1.36.2", "0s")
        assert (row["Internal-IP"], row["External-IP"]) == ("10.0.0.1", "<none>")


async def test_budgets_pods_and_events():
    async with serving(clock=lambda: NOW) as api:
        await running_pod(api)
        await budget(api, disruptionsAllowed=2)
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Node", "name": "n1"},
            "reason": "Marked",
            "type": "Warning",
            "message": "it is sick\n",
            "lastTimestamp": "2023-11-14T22:12:20Z",
        }
        await api.post(EVENTS, event)
        (row,) = await rows(api, BUDGETS)
        assert (row["Min Available"], row["Max Unavailable"]) == ("1", "N/A")
        assert row["Allowed Disruptions"] == 2
        (row,) = await rows(api, PODS)
        assert (row["Ready"], row["Status"], row["Node"]) == ("0/1", "Running", "n1")
        (row,) = await rows(api, EVENTS)
        assert (row["Last Seen"], row["Object"], row["Message"]) == (
            "60s",
            "node/n1",
            "it is sick",
        )


async def test_every_kind_has_a_table_of_its_rows():
    async with serving() as api:
        for kind in api.server.engine.registry.all():
            assert isinstance(await rows(api, kind.resource.path()), list)


async def test_one_object_is_a_table_of_one_row_with_what_was_asked_of_it():
    async with serving() as api:
        await api.post(NODES, node())
        for include, expected in (("Object", "Node"), ("Metadata", "PartialObjectMetadata")):
            table = (await api("GET", f"{NODES}/n1", accept=TABLE, includeObject=include)).body
            assert table["rows"][0]["object"]["kind"] == expected
        table = (await api("GET", f"{NODES}/n1", accept=TABLE, includeObject="None")).body
        assert "object" not in table["rows"][0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (100_000, "27h"),
        (200_000, "2d7h"),
        (700_000, "8d"),
        (64_000_000, "2y10d"),
        (300_000_000, "9y"),
    ],
)
def test_ages_are_printed_as_kubectl_does(seconds, text):
    assert duration(seconds) == text


def pod(status, **metadata):
    spec = {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}
    return {"metadata": {"name": "p", **metadata}, "spec": spec, "status": status}


def container(state, **more):
    return {"state": state, "ready": "running" in state, "restartCount": 0, **more}


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        pytest.param(pod({"phase": "Running"}), "Running", id="running"),
        pytest.param(pod({"phase": "Failed", "reason": "Evicted"}), "Evicted", id="reason"),
        pytest.param(
            pod({"phase": "Running"}, deletionTimestamp="x"), "Terminating", id="terminating"
        ),
        pytest.param(
            pod({"phase": "Running", "reason": "NodeLost"}, deletionTimestamp="x"),
            "Unknown",
            id="lost",
        ),
        pytest.param(
            pod(
                {
                    "phase": "Running",
                    "containerStatuses": [container({"waiting": {"reason": "CrashLoopBackOff"}})],
                }
            ),
            "CrashLoopBackOff",
            id="waiting",
        ),
        pytest.param(
            pod(
                {
                    "phase": "Failed",
                    "containerStatuses": [container({"terminated": {"exitCode": 3}})],
                }
            ),
            "ExitCode:3",
            id="exit-code",
        ),
        pytest.param(
            pod(
                {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        container({"waiting": {"reason": "PodInitializing"}})
                    ],
                }
            ),
            "Init:0/1",
            id="initialising",
        ),
        pytest.param(
            pod(
                {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        container({"terminated": {"exitCode": 1, "reason": "Error"}})
                    ],
                }
            ),
            "Init:Error",
            id="initialising-failed",
        ),
        pytest.param(
            pod(
                {
                    "phase": "Running",
                    "containerStatuses": [
                        container({"terminated": {"exitCode": 0, "reason": "Completed"}}),
                        container({"running": {}}),
                    ],
                }
            ),
            "NotReady",
            id="one-completed",
        ),
        pytest.param(
            pod(
                {
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
                }
            ),
            "SchedulingGated",
            id="gated",
        ),
    ],
)
def test_the_status_of_a_pod(obj, text):
    assert pod_status(obj, NOW) == text


def test_readiness_and_restarts_of_a_pod():
    ended = {"terminated": {"finishedAt": "2023-11-14T22:08:20Z"}}
    obj = pod(
        {
            "phase": "Running",
            "containerStatuses": [
                container({"running": {}}),
                container({"waiting": {}}, restartCount=2, lastState=ended),
            ],
        }
    )
    assert pod_ready(obj, NOW) == "1/2"
    assert pod_restarts(obj, NOW) == "2 (5m ago)"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".list[0].x", ["p"]),
        (".list[*].x", ["p", "q"]),
        ('.list[?(@.x=="q")].y', [2]),
        (".a['b']", [1]),
        (".missing.b", []),
        (r".dotted\.key", [3]),
        (".list[9]", []),
    ],
)
def test_json_paths(path, found):
    obj = {"a": {"b": 1}, "list": [{"x": "p", "y": 1}, {"x": "q", "y": 2}], "dotted.key": 3}
    assert find(obj, path) == found


def test_a_json_path_that_is_not_supported_is_an_error():
    with pytest.raises(ValueError, match="not a JSONPath"):
        find({}, ".a..b")
