"""The official Python client against the simulated server, through TLS and a token."""

from __future__ import annotations

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import ADMIN
from hack.sim.cluster.http.threaded import run_in_thread
from tests.support.cluster.apiserver_support import eviction, node, pod

kubernetes = pytest.importorskip("kubernetes")


@pytest.fixture
def cluster(tmp_path):
    with run_in_thread(tls=True, tokens={"secret": ADMIN}) as hosted:
        path = hosted.server.write_kubeconfig(tmp_path / "kubeconfig")
        api_client = kubernetes.config.new_client_from_config(str(path))
        with api_client:
            yield hosted, kubernetes.client.CoreV1Api(api_client)


def test_nodes_are_listed_patched_and_watched(cluster):
    hosted, core = cluster
    hosted.call(lambda: hosted.server.load(r.NODES, [node("n1"), node("n2")]))
    listed = core.list_node(limit=1)
    assert [one.metadata.name for one in listed.items] == ["n1"]
    more = core.list_node(limit=1, _continue=listed.metadata._continue)
    assert [one.metadata.name for one in more.items] == ["n2"]
    patched = core.patch_node("n1", {"spec": {"unschedulable": True}})
    assert patched.spec.unschedulable is True
    watch = kubernetes.watch.Watch()
    seen = [
        (event["type"], event["object"].metadata.name)
        for event in watch.stream(core.list_node, timeout_seconds=1)
    ]
    assert seen == [("ADDED", "n1"), ("ADDED", "n2")]


def test_refusals_are_its_exceptions(cluster):
    hosted, core = cluster
    hosted.run(hosted.server.client.create(r.PODS, pod(), "default"))
    with pytest.raises(kubernetes.client.ApiException) as missing:
        core.read_node("n9")
    assert missing.value.status == 404
    core.create_namespaced_pod_eviction("p1", "default", eviction())
    listed = core.list_namespaced_pod("default", field_selector="spec.nodeName=n1")
    assert listed.items[0].metadata.deletion_timestamp is not None
    with pytest.raises(kubernetes.client.ApiException) as gone:
        core.create_namespaced_pod_eviction("p2", "default", eviction("p2"))
    assert gone.value.status == 404
