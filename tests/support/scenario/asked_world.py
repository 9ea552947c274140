"""What an operator asks of a World while its replica runs: `kubectl gpuward plan`."""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

from remediator.kube.answer import Answer
from remediator.kube.api import Api
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.plan import planned as plan_by
from rules.api import writes as d
from rules.policy.policy import Policy
from tests.support.scenario.session_world import World


class _AskedApi:
    """GETs, and dry runs of evictions; whatever else is asked is a mistake."""

    host = "https://cluster.test"
    items: Any = Api.items

    def __init__(self, world: World) -> None:
        self._world = world

    async def call(
        self,
        call_queue: object,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        **_: Any,
    ) -> Answer:
        if method == "GET":
            return self._world.read(path, query or {})
        assert path.endswith("/eviction"), (method, path)
        assert (query or {}).get("dryRun") == "All" or body.get("deleteOptions", {}).get("dryRun")
        namespace, name = path.split("/")[4], path.split("/")[6]
        pod = self._world.pods[namespace, name]
        asked = d.EvictPod(
            node=pod["spec"]["nodeName"],
            namespace=namespace,
            name=name,
            uid=pod["metadata"]["uid"],
            dry_run=True,
        )
        return self._world.dry_run(asked)


class _WorldTime:
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now


def planned(world: World, policy: Policy | None = None) -> dict[str, dict[str, Any]]:
    """Return the output of `plan -o json`, by node."""
    cluster = Cluster(_AskedApi(world), _WorldTime(world), print)  # type: ignore[arg-type]
    options = argparse.Namespace(nodes=[], selector=None, output="json")
    asked = plan_by(cluster, policy or world.policy, "policy", options, in_force=True)
    return {one["metadata"]["name"]: one for one in asyncio.run(asked) if isinstance(one, dict)}
