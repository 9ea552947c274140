"""Programs were upgraded and definitions were not: what is dropped is refused and named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kubectl.preflight import unknown_fields
from tests.support.remediator.kubectl_cluster import Kubectl, cluster
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, QUARANTINES, Object

LATER = {"spec": "release", "status": "repair"}


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    client = hosted.server.client
    kept = hosted.run(client.get(r.CUSTOM_RESOURCE_DEFINITIONS, "gpuquarantines.gpuward.io"))
    schema = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part, field in LATER.items():
        del schema[part]["properties"][field]
    hosted.run(client.update(r.CUSTOM_RESOURCE_DEFINITIONS, kept))


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("older"), fill) as found:
        yield found


def test_a_release_that_would_be_dropped_is_refused(kubectl: Kubectl) -> None:
    code, out, err = kubectl("release", BLOCKED, "--reason", "x", "--yes")
    assert (code, out) == (1, "")
    assert "are older than this command" in err
    assert "do not know spec.release" in err
    assert "kubectl apply -k daemonset/crds" in err


def test_what_is_known_is_written_as_before(kubectl: Kubectl) -> None:
    code, _, _ = kubectl("hold", BLOCKED, "--reason", "x")
    assert code == 0
    assert any(s["spec"].get("hold") for s in kubectl.hosted.run(_sessions(kubectl)))


async def _sessions(kubectl: Kubectl) -> list[Object]:
    found, _ = await kubectl.hosted.server.client.list(QUARANTINES)
    return found


def test_preflight_names_each_field(kubectl: Kubectl) -> None:
    code, out, _ = kubectl("preflight")
    (line,) = [one for one in out.splitlines() if "definitions" in one]
    assert code == 1
    assert line.startswith("FAIL")
    assert "GPUQuarantine.spec.release" in line
    assert "GPUQuarantine.status.repair" in line


def test_a_part_that_is_missing_as_a_whole_is_named_and_a_free_map_knows_all() -> None:
    kind = {"x-kubernetes-group-version-kind": [{"kind": "GPUWardPause"}]}
    empty = {"components": {"schemas": {"x": {**kind, "properties": {}}}}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    open_ = {"components": {"schemas": {"x": {**kind, "properties": {"spec": free}}}}}
    assert unknown_fields(empty) == ("GPUWardPause.spec",)
    assert unknown_fields(open_) == ()
    assert unknown_fields({}) == ()
