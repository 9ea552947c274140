"""Read the pod groups of Kubernetes (`scheduling.k8s.io`) that GPU pods of a node belong to.

Only where the API server serves them, and never watched: the PodGroup, or the Workload in
Kubernetes 1.35, is read once a minute while a node of it waits. A group that cannot be read has no
policy, so its pods leave together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

import structlog

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.kube.other_apis import ApiGroups
from rules.api import object_name, workloads
from rules.api.object_name import BadSegmentError
from rules.api.pods import PodView
from rules.api.workloads import NativeGroup
from rules.drain import gangs
from rules.drain.gangs import GroupPolicy

_LOG = structlog.get_logger()
_FRESH_S: Final = 60.0
_GROUPS_PER_NODE: Final = 32
# Members are counted for messages only: a larger namespace is counted as far as this.
_PAGE: Final = 500
_PAGES: Final = 6
_COUNT_FRESH_S: Final = 15.0


class PodGroups:
    """Reads and caches the policies of pod groups."""

    def __init__(self, api: Api, groups: ApiGroups, clock: Clock) -> None:
        self._api = api
        self._groups = groups
        self._clock = clock
        self._policies: dict[NativeGroup, tuple[float, GroupPolicy]] = {}
        self._members: dict[str, tuple[float, list[tuple[NativeGroup | None, str]]]] = {}

    async def read(
        self, pods: Iterable[PodView], sick: Collection[str]
    ) -> dict[NativeGroup, GroupPolicy]:
        """Return the policies of the groups of these GPU pods.

        `elsewhere` counts the running members of a group on nodes that are not in `sick`.
        """
        named = {workloads.native_group(pod) for pod in pods if pod.gpus and not pod.finished}
        groups = sorted(group for group in named if group is not None)[:_GROUPS_PER_NODE]
        served = await self._groups.versions_of(workloads.NATIVE_API) if groups else ()
        now = self._clock.elapsed()
        self._policies = {g: p for g, p in self._policies.items() if now - p[0] < _FRESH_S}
        self._members = {n: m for n, m in self._members.items() if now - m[0] < _COUNT_FRESH_S}
        found: dict[NativeGroup, GroupPolicy] = {}
        for group in groups:
            version = next((v for v in workloads.NATIVE_VERSIONS[group.kind] if v in served), "")
            policy = await self._policy(group, version) if version else None
            if policy is not None:
                counted = policy.min_count and not policy.independent
                nodes = await self._nodes(group) if counted else []
                found[group] = replace(policy, elsewhere=sum(node not in sick for node in nodes))
        return found

    async def _policy(self, group: NativeGroup, version: str) -> GroupPolicy | None:
        """Return the policy; None if the answer may be another one soon."""
        if group in self._policies:
            return self._policies[group][1]
        root, resource = f"/apis/{workloads.NATIVE_API}/{version}", f"{group.kind.lower()}s"
        try:
            path = object_name.api_path(root, "namespaces", group.namespace, resource, group.name)
            policy = gangs.group_policy(await self._api.get(path, dict[str, Any]), group)
        except BadSegmentError:
            return None
        except ApiError as error:
            if error.answer.code not in {403, 404}:
                return None
            _LOG.warning("pod group", namespace=group.namespace, why=str(error))
            policy = GroupPolicy()
        self._policies[group] = self._clock.elapsed(), policy
        return policy

    async def _nodes(self, group: NativeGroup) -> list[str]:
        """Return the node of each running member; none if the pods cannot be listed."""
        if group.namespace not in self._members:
            path = object_name.api_path("/api/v1/namespaces", group.namespace, "pods")
            try:
                listed = await self._api.items(path, PodView, limit=_PAGE, pages=_PAGES)
            except ApiError:
                return []
            members = [
                (workloads.native_group(pod), pod.spec.node_name)
                for pod in listed.found
                if pod.status.phase == "Running" and not pod.terminating
            ]
            self._members[group.namespace] = self._clock.elapsed(), members
        return [node for one, node in self._members[group.namespace][1] if one == group]
