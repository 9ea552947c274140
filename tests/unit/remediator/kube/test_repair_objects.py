"""Objects of repair providers as the edge reads them: what there is, what there is not, and
why.
"""

from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource
from remediator.kube.answer import Answer
from remediator.kube.api import Api
from remediator.kube.other_apis import ApiGroups, RepairObjects
from rules.api import device_taints
from rules.api.repair_writes import ObjectAddress
from rules.repair.objects import ObjectSeen, ReadState
from tests.support.cluster.made import made
from tests.support.cluster.provider_definitions import DEFINITIONS
from tests.support.remediator.edge import Edge, edge

MACHINES = Resource("cluster.x-k8s.io", "v1beta2", "machines", True, "Machine")
CLAIMS = Resource("karpenter.sh", "v1", "nodeclaims", False, "NodeClaim")


def machine(name: str = "m-1", version: str = "cluster.x-k8s.io/*") -> ObjectAddress:
    return ObjectAddress(api_version=version, resource="machines", namespace="capi", name=name)


async def installed(found: Edge) -> None:
    for definition in DEFINITIONS:
        await found.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    await made(found.client, NAMESPACES, "capi")


def reader(found: Edge) -> RepairObjects:
    return RepairObjects(found.api, ApiGroups(found.api, found.clock), found.clock)


async def seen(objects: RepairObjects, query: ObjectAddress) -> ObjectSeen:
    await objects.read("gpu-1", query)
    return objects.known("gpu-1")[query]


async def test_what_is_there_is_handed_over_with_the_version_that_is_served(
    tmp_path: Path,
) -> None:
    async with edge(tmp_path) as found:
        objects = reader(found)
        nobody = await seen(objects, machine())
        assert (nobody.state, nobody.why) == (
            ReadState.NOT_SERVED,
            "the API server does not serve machines.cluster.x-k8s.io capi/m-1",
        )
        await installed(found)
        objects = reader(found)
        absent = await seen(objects, machine())
        assert (absent.state, absent.api_version) == (ReadState.ABSENT, "cluster.x-k8s.io/v1beta2")
        await made(found.client, MACHINES, "m-1", "capi", spec={"clusterName": "c"})
        there = await seen(objects, machine())
        assert there.state is ReadState.FOUND
        assert there.found[0]["spec"] == {"clusterName": "c"}
        assert abs(found.clock.now() - there.read_at) < 5
        objects.forget("gpu-1")
        assert objects.known("gpu-1") == {}


async def test_a_list_is_complete_and_a_kind_that_is_not_served_is_not_absent(
    tmp_path: Path,
) -> None:
    async with edge(tmp_path) as found:
        await installed(found)
        for index in range(3):
            await made(found.client, CLAIMS, f"c-{index}", spec={})
        objects = reader(found)
        claims = ObjectAddress(api_version="karpenter.sh/v1", resource="nodeclaims")
        listed = await seen(objects, claims)
        assert {each["metadata"]["name"] for each in listed.found} == {"c-0", "c-1", "c-2"}
        other = ObjectAddress(api_version="karpenter.sh/v9", resource="nodeclaims", name="c-0")
        assert (await seen(objects, other)).state is ReadState.NOT_SERVED


class Scripted(Api):
    """Answers with the given answers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def call(self, *_: Any, **__: Any) -> Answer:
        return self.answer


STATUS = b'{"kind":"Status","reason":"%s","message":"m","details":{"name":"%s"}}'


def answered(code: int, body: bytes = b"{}", kind: str = "application/json") -> Answer:
    return Answer(code=code, body=body, content_type=kind)


@pytest.mark.parametrize(
    ("answer", "state", "expected"),
    [
        (answered(404, STATUS % (b"NotFound", b"m-1")), ReadState.ABSENT, "there is no machines"),
        (answered(404, STATUS % (b"NotFound", b"other")), ReadState.NOT_SERVED, "does not serve"),
        (
            answered(404, b"404 page not found", "text/plain"),
            ReadState.NOT_SERVED,
            "does not serve",
        ),
        (answered(403), ReadState.FORBIDDEN, "install the component of its adapter"),
        (answered(401), ReadState.UNREAD, "cannot be read"),
        (answered(500), ReadState.UNREAD, "cannot be read"),
        (answered(429), ReadState.UNREAD, "cannot be read"),
        (Answer(code=0, failure="nothing within 30 s"), ReadState.UNREAD, "nothing within 30 s"),
        (answered(200, b"[]"), ReadState.UNREAD, "is no object"),
        (answered(200, b"{"), ReadState.UNREAD, "is no object"),
        (answered(200, b"[" * 100_000), ReadState.UNREAD, "is no object"),
        (
            answered(200, b'{"a":"' + b"x" * 600_000 + b'"}'),
            ReadState.UNREAD,
            "larger than 512 KiB",
        ),
        (answered(200, b'{"metadata":3}'), ReadState.FOUND, ""),
    ],
)
async def test_every_answer_has_a_meaning(
    tmp_path: Path, answer: Answer, state: ReadState, expected: str
) -> None:
    async with edge(tmp_path) as found:
        clock = found.clock
    api = Scripted(answer)
    objects = RepairObjects(api, ApiGroups(api, clock), clock)
    got = await seen(objects, machine(version="cluster.x-k8s.io/v1beta2"))
    assert got.state is state
    assert expected in got.why
    assert len(got.why) <= 300
    again = await seen(objects, machine(version="cluster.x-k8s.io/v1beta2"))
    assert again.failing_since == got.failing_since, "since when it fails is kept"
    assert (got.failing_since is not None) == (state is ReadState.UNREAD)


async def test_a_version_without_the_kind_is_not_served(tmp_path: Path) -> None:
    async with edge(tmp_path) as found:
        objects = reader(found)
        newest, beta = (device_taints.address(version) for version in device_taints.VERSIONS)
        assert (await seen(objects, newest)).state is ReadState.NOT_SERVED
        assert (await seen(objects, beta)).state is ReadState.FOUND
