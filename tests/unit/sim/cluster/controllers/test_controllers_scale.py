"""Who scales a pod, as a budget has to know it; pods whose Job is gone."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.caches import Cache
from hack.sim.cluster.controllers.pods import reference
from hack.sim.cluster.controllers.workloads.disruption import NoScale, Scale, scale_lookup
from hack.sim.cluster.controllers.workloads.job import TRACKING_FINALIZER, release_orphans
from hack.sim.cluster.resource import (
    DEPLOYMENTS,
    REPLICA_SETS,
    Resource,
)
from tests.support.cluster.controller_objects import (
    owner,
    patched,
    pod,
)


def test_pods_of_a_vanished_job_lose_its_finalizer() -> None:
    job = owner("Job", "gone", api="batch/v1")
    held = pod("a", job, finalizers=[TRACKING_FINALIZER, "example.com/mine"])
    other = pod("b", owner("Job", "alive", api="batch/v1"), finalizers=[TRACKING_FINALIZER])
    outcome = release_orphans(("team", "gone"), [held, other])
    assert patched(outcome) == [("a", {"metadata": {"finalizers": ["example.com/mine"]}})]


def known(*pairs: tuple[Resource, dict[str, Any]]) -> Any:
    caches = {resource: Cache(resource) for resource in (REPLICA_SETS, DEPLOYMENTS)}
    for resource, obj in pairs:
        caches[resource].store(obj)
    return caches


def test_the_deployment_above_a_replica_set_says_how_many() -> None:
    deployment = owner("Deployment", replicas=7)
    replica_set = owner("ReplicaSet", "web-1", replicas=5)
    replica_set["metadata"]["ownerReferences"] = [reference(deployment)]
    caches = known((DEPLOYMENTS, deployment), (REPLICA_SETS, replica_set))
    found = scale_lookup(caches)(pod("a", replica_set))
    assert found == Scale(uid=deployment["metadata"]["uid"], replicas=7)


def test_a_replica_set_alone_speaks_for_itself() -> None:
    replica_set = owner("ReplicaSet", replicas=5)
    found = scale_lookup(known((REPLICA_SETS, replica_set)))(pod("a", replica_set))
    assert found == Scale(uid=replica_set["metadata"]["uid"], replicas=5)


def test_a_namesake_of_a_dead_controller_does_not_count() -> None:
    dead, namesake = owner("ReplicaSet", replicas=5), owner("ReplicaSet", replicas=9)
    assert scale_lookup(known((REPLICA_SETS, namesake)))(pod("a", dead)) is None


@pytest.mark.parametrize(
    ("kind", "api", "why"),
    [
        pytest.param(
            "Job", "batch/v1", "jobs.batch does not implement the scale subresource", id="job"
        ),
        pytest.param(
            "Run",
            "example.com/v1",
            'no matches for kind "Run" in version "example.com/v1"',
            id="custom kind",
        ),
    ],
)
def test_controllers_without_a_scale(kind: str, api: str, why: str) -> None:
    assert scale_lookup(known())(pod("a", owner(kind, api=api))) == NoScale(why=why)
