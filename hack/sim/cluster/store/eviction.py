"""The Eviction API, answer by answer: the part of the server that drains depend on.

Called for `POST pods/NAME/eviction`.  The order of its steps is the contract: budgets are charged
before the caller's preconditions are checked, and a dry run charges nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions, WriteOptions
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import (
    accepted,
    bad_request,
    conflict,
    forbidden,
    forbidden_field,
    not_found,
    unprocessable,
)
from hack.sim.cluster.store.deletion import check_preconditions, delete, read_delete_options
from hack.sim.cluster.store.eviction_answers import (
    charged_status,
    ignores_budgets,
    is_ready,
    multiple_budgets,
    refusal,
    stale,
    too_many,
    with_disruption_target,
)
from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.objects import ObjectApi, namespace_terminating
from hack.sim.cluster.store.selectors import selector_of_object
from hack.sim.cluster.store.store import Stored
from hack.sim.cluster.store.timestamps import rfc3339

RETRIES = 20
RETRY_DELAY_S = 0.5
"""How often and how long apart the server itself tries again on a conflict (about 10 s)."""

MAX_DISRUPTED_PODS = 2000

_EVICTION = r.Resource("policy", "v1", "evictions", True, "Eviction")
_BUDGET = r.Resource("policy", "v1", "poddisruptionbudget", True, "PodDisruptionBudget")
"""A budget as the forbidden answers of the eviction API spell it."""

_API_VERSIONS = frozenset({"policy/v1", "policy/v1beta1"})

BeforeUpdate = Callable[[Object], Awaitable[None]]


class Evictions:
    """Evicts pods of one server."""

    def __init__(self, api: ObjectApi, *, retry_delay_s: float = RETRY_DELAY_S) -> None:
        self._api = api
        self.retry_delay_s = retry_delay_s
        self.before_budget_update: BeforeUpdate | None = None
        """Test hook: runs between reading and charging a budget, where a race would happen."""

    async def evict(self, namespace: str, name: str, body: Any, query_dry_run: str = "") -> Object:
        """The Status of an accepted eviction, or ApiError."""
        options = self._read(namespace, name, body, query_dry_run)
        self._check_namespace(namespace, name)
        pod = self._pod(namespace, name)
        if ignores_budgets(pod.obj):
            await self._delete_ignored(pod, namespace, name, options)
            return accepted()
        budgets = self._matching(pod.obj)
        if len(budgets) > 1:
            raise multiple_budgets()
        if budgets:
            if await self._delete_unready(pod, budgets[0], options):
                return accepted()
            await self._charge(pod.obj, budgets[0]["metadata"]["name"], options)
        self._delete(namespace, name, options)
        return accepted()

    def _read(self, namespace: str, name: str, body: Any, query_dry_run: str) -> DeleteOptions:
        if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
            raise bad_request("the body is not an Eviction")
        if body.get("apiVersion", "policy/v1") not in _API_VERSIONS:
            raise bad_request("no kind Eviction is registered for that version")
        metadata = body.get("metadata") or {}
        if metadata.get("name") != name:
            raise bad_request("name in URL does not match name in Eviction object")
        if metadata.get("namespace") not in {None, "", namespace}:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        stated = body.get("deleteOptions") or {}
        if stated.get("ignoreStoreReadErrorWithClusterBreakingPotential"):
            problem = forbidden_field(
                "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential",
                "not allowed for evictions",
            )
            raise unprocessable(_EVICTION, name, [problem])
        in_body = stated.get("dryRun") or []
        in_query = [query_dry_run] if query_dry_run else []
        if in_body and in_query and in_body != in_query:
            raise ApiError(
                500,
                "",
                "Non-matching dry-run options in request and content: "
                f"[{' '.join(in_query)}] and [{' '.join(in_body)}]",
            )
        options = read_delete_options(stated, {})
        return replace(options, dry_run=bool(in_body or in_query))

    def _check_namespace(self, namespace: str, name: str) -> None:
        found = self._api.peek(r.NAMESPACES, namespace)
        if found is None:
            raise not_found(r.NAMESPACES, namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise forbidden(
                r.PODS,
                name,
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated",
                [namespace_terminating(namespace)],
            )

    def _kind(self, resource: r.Resource) -> Kind:
        kind = self._api.registry.of(resource)
        assert kind is not None, "pods and budgets are always served"
        return kind

    def _pod(self, namespace: str, name: str) -> Stored:
        return self._api.get(self._kind(r.PODS), name, namespace)

    def _matching(self, pod: Object) -> list[Object]:
        namespace = pod["metadata"]["namespace"]
        labels = pod["metadata"].get("labels") or {}
        collection = self._api.collection(self._kind(r.POD_DISRUPTION_BUDGETS))
        found = []
        for key in collection.range(namespace):
            budget = collection.objects[key].obj
            try:
                selector = selector_of_object((budget.get("spec") or {}).get("selector"))
            except ValueError:
                continue
            if selector is not None and selector.matches(labels):
                found.append(budget)
        return found

    async def _delete_ignored(
        self, pod: Stored, namespace: str, name: str, options: DeleteOptions
    ) -> None:
        """Delete a pod that budgets do not cover, retrying conflicts as the server does."""
        asked_version = options.resource_version
        for attempt in range(RETRIES):
            guarded = options
            if (pod.obj.get("status") or {}).get("phase") == "Pending" and not asked_version:
                guarded = replace(options, resource_version=pod.obj["metadata"]["resourceVersion"])
            try:
                self._delete(namespace, name, guarded)
            except ApiError as error:
                if error.code != 409 or asked_version or attempt == RETRIES - 1:
                    raise
            else:
                return
            await asyncio.sleep(self.retry_delay_s)
            pod = self._pod(namespace, name)

    async def _delete_unready(self, pod: Stored, budget: Object, options: DeleteOptions) -> bool:
        """Delete an unready pod without charging its budget, where the budget allows that."""
        if is_ready(pod.obj):
            return False
        status = budget.get("status") or {}
        policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
        desired = status.get("desiredHealthy") or 0
        if policy != "AlwaysAllow" and not (
            (status.get("currentHealthy") or 0) >= desired and desired > 0
        ):
            return False
        metadata = pod.obj["metadata"]
        guarded = options
        if not options.resource_version:
            guarded = replace(options, resource_version=metadata["resourceVersion"])
        try:
            self._delete(metadata["namespace"], metadata["name"], guarded)
        except ApiError as error:
            if error.code == 409 and not options.resource_version:
                raise stale(budget["metadata"]["name"]) from error
            raise
        return True

    async def _charge(self, pod: Object, budget_name: str, options: DeleteOptions) -> None:
        """Check the budget and take one disruption from it, retrying lost races."""
        namespace = pod["metadata"]["namespace"]
        kind = self._kind(r.POD_DISRUPTION_BUDGETS)
        for attempt in range(RETRIES):
            budget = self._api.get(kind, budget_name, namespace)
            status = self._checked(budget.obj)
            if options.dry_run:
                return
            if self.before_budget_update:
                await self.before_budget_update(budget.obj)
            charged = {
                **budget.obj,
                "metadata": dict(budget.obj["metadata"]),
                "status": charged_status(
                    status, pod["metadata"]["name"], rfc3339(self._api.clock())
                ),
            }
            try:
                present = self._api.get(kind, budget_name, namespace)
                if present.revision != budget.revision:
                    raise conflict(kind.resource, budget_name)
                self._api.replace(
                    kind, present, charged, WriteOptions(manager="kube-apiserver"), "status"
                )
            except ApiError as error:
                if error.code != 409 or attempt == RETRIES - 1:
                    raise
                await asyncio.sleep(self.retry_delay_s)
            else:
                return

    def _checked(self, budget: Object) -> Object:
        """The budget's status when it allows a disruption, ApiError when not."""
        metadata = budget["metadata"]
        name = metadata["name"]
        status: Object = budget.get("status") or {}
        if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
            raise stale(name)
        allowed = status.get("disruptionsAllowed") or 0
        if allowed < 0:
            raise forbidden(_BUDGET, name, "pdb disruptions allowed is negative")
        if len(status.get("disruptedPods") or {}) > MAX_DISRUPTED_PODS:
            raise forbidden(
                _BUDGET,
                name,
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            )
        if allowed == 0:
            raise too_many(refusal(name, status), None)
        return status

    def _delete(self, namespace: str, name: str, options: DeleteOptions) -> None:
        """Say why on the pod, then delete it; the caller's preconditions are checked here."""
        kind = self._kind(r.PODS)
        pod = self._api.get(kind, name, namespace)
        check_preconditions(pod.obj, options)
        if not options.dry_run:
            now = rfc3339(self._api.clock())
            marked = {
                **pod.obj,
                "metadata": dict(pod.obj["metadata"]),
                "status": with_disruption_target(pod.obj.get("status") or {}, now),
            }
            self._api.replace(kind, pod, marked, WriteOptions(manager="kube-apiserver"), "status")
            options = replace(options, resource_version=None)
        delete(self._api, kind, name, namespace, options)
