"""The few calls the commands make, each answer decoded or turned into one clear sentence.

Used by every command of `kubectl gpuward`. It speaks for a person, so it sends what the person
asked for and nothing else; RBAC of that person decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from remediator.kube.access import Access, AccessError
from remediator.kube.answer import Answer, ApiError
from remediator.kube.api import MERGE_PATCH, Api
from remediator.kube.caches import AGENT_SELECTOR, DAEMON_SETS, PDBS, AgentPodObject
from remediator.kube.clock import SystemClock
from remediator.kube.kubeconfig import Acting
from remediator.kube.pace import Pace, PaceLane, Rates
from remediator.kubectl.command import OPERATOR, VIEWER, CommandError
from remediator.upkeep.policy_yaml import decode_policy
from rules.api.budgets import PdbView
from rules.api.names import API_VERSION
from rules.api.nodes import FreshNode, HealthView, NodeView, PauseView, QuarantineView
from rules.api.object_name import api_path, field_selector
from rules.api.pods import DaemonSetView, PodView
from rules.api.requests import Request
from rules.api.sentences import some
from rules.ledger.record import RecordView
from rules.policy.policy import Policy
from rules.session.snapshot import AgentPod

T = TypeVar("T")

GROUP_PATH = f"/apis/{API_VERSION}"
PAGE = 500
POLICY_MAP = "gpuward-policy"
MANAGER = "kubectl-gpuward"
"""Who wrote a field, in managedFields: uninstall takes off what these commands put there."""
_MANAGER = {"fieldManager": MANAGER}
_VIEWED = {
    "",
    "nodes",
    "configmaps",
    "gpunodehealths",
    "gpuquarantines",
    "gpurecords",
    "gpuwardpauses",
}
"""What the role of viewers shows."""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _Reviewed(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _SelfSubjectReview(msgspec.Struct, frozen=True):
    status: _Reviewed = _Reviewed()


class Cluster:
    """One API server on behalf of one person."""

    def __init__(
        self, api: Api, clock: SystemClock, role: str, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._api = api
        self._clock = clock
        self._role = role
        self._say = say
        self._left_out: set[str] = set()
        """What was said already of objects that nobody can read."""

    def now(self) -> float:
        """Seconds since the epoch, in the API server's time."""
        return self._clock.now()

    async def who(self) -> str:
        """The name the API server knows us by, for the record of who acted."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._api.call(
            PaceLane.READ, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review
        )
        if not answer.ok:
            return "unknown user"
        found = _decoded(answer, _SelfSubjectReview)
        return found.status.user_info.username or "unknown user"

    async def node(self, name: str) -> FreshNode | None:
        """The Node, None where there is none."""
        return await self._find(api_path("/api/v1/nodes", name), FreshNode)

    async def health(self, name: str) -> HealthView | None:
        """The node's GPUNodeHealth, None where no agent ever published."""
        return await self._find(api_path(f"{GROUP_PATH}/gpunodehealths", name), HealthView)

    async def session(self, name: str) -> QuarantineView | None:
        """A GPUQuarantine by name."""
        return await self._find(api_path(f"{GROUP_PATH}/gpuquarantines", name), QuarantineView)

    async def nodes(self, selector: str = "") -> list[NodeView]:
        """Nodes by label selector."""
        query = {"labelSelector": selector} if selector else {}
        return await self._list("/api/v1/nodes", NodeView, query)

    async def readable_nodes(self, selector: str = "") -> list[NodeView] | None:
        """Nodes by label selector; None where this person may not list them."""
        try:
            return await self.nodes(selector)
        except CommandError as error:
            if not error.forbidden:
                raise
            return None

    async def healths(self) -> list[HealthView]:
        """Every GPUNodeHealth."""
        return await self._list(f"{GROUP_PATH}/gpunodehealths", HealthView, {})

    async def sessions(self, node: str = "") -> list[QuarantineView]:
        """Sessions, of one node where one is named; oldest first."""
        query = {"fieldSelector": field_selector("spec.nodeName", node)} if node else {}
        found = await self._list(f"{GROUP_PATH}/gpuquarantines", QuarantineView, query)
        return sorted(found, key=lambda s: (s.metadata.creation_timestamp or "", s.name))

    async def records(self) -> list[RecordView]:
        """Every GPURecord."""
        return await self._list(f"{GROUP_PATH}/gpurecords", RecordView, {})

    async def record(self, name: str) -> RecordView | None:
        """A GPURecord by name."""
        return await self._find(api_path(f"{GROUP_PATH}/gpurecords", name), RecordView)

    async def pauses(self) -> list[PauseView]:
        """Every GPUWardPause."""
        return await self._list(f"{GROUP_PATH}/gpuwardpauses", PauseView, {})

    async def agents(self, node: str = "") -> list[AgentPod]:
        """The agents' pods, on one node where one is named."""
        query = {"labelSelector": AGENT_SELECTOR}
        if node:
            query["fieldSelector"] = field_selector("spec.nodeName", node)
        return [pod.as_agent() for pod in await self._list("/api/v1/pods", AgentPodObject, query)]

    async def pods_of_gpuward(self) -> list[str]:
        """namespace/name of every pod that is ours, in any namespace."""
        query = {"labelSelector": "app.kubernetes.io/name=gpuward"}
        found = await self._list("/api/v1/pods", AgentPodObject, query)
        return sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in found)

    async def may(
        self, user: str, group: str, resource: str, verb: str, namespace: str, name: str = ""
    ) -> bool | None:
        """Whether RBAC allows a user a verb, on one object where named; None where we may not ask.

        An empty namespace asks about all of them at once.
        """
        plural, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": plural, "subresource": subresource, "verb": verb}
        attributes |= {"name": name} if name else {}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {**attributes, "namespace": namespace},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._api.call(PaceLane.READ, "POST", path, body=review)
        if answer.code in {403, 404}:
            return None
        status = _decoded(self._read(answer), dict[str, Any]).get("status") or {}
        return bool(status.get("allowed"))

    async def policy(self, namespace: str) -> Policy | None:
        """The policy of the cluster's ConfigMap; None where there is none."""
        found = await self.get(f"/api/v1/namespaces/{namespace}/configmaps/{POLICY_MAP}")
        if found is None:
            return None
        text = (found.get("data") or {}).get("policy.yaml", "")
        loaded = decode_policy(text, POLICY_MAP)
        if isinstance(loaded, Policy):
            return loaded
        raise CommandError("; ".join(loaded))

    async def pods_on(self, node: str) -> tuple[PodView, ...]:
        """Every pod bound to the node."""
        query = {"fieldSelector": field_selector("spec.nodeName", node)}
        return tuple(await self._list("/api/v1/pods", PodView, query))

    async def gpus_requested(self) -> dict[str, int]:
        """GPUs that live pods request, by node."""
        query = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        used: Counter[str] = Counter()
        for pod in await self._list("/api/v1/pods", PodView, query):
            used[pod.spec.node_name] += pod.gpus
        return used

    async def pdbs(self) -> tuple[PdbView, ...]:
        """Every PodDisruptionBudget."""
        return tuple(await self._list(PDBS, PdbView, {}))

    async def daemon_sets(self) -> tuple[DaemonSetView, ...]:
        """Every DaemonSet."""
        return tuple(await self._list(DAEMON_SETS, DaemonSetView, {}))

    async def get(self, path: str) -> dict[str, Any] | None:
        """Any object as plain values; None where there is none."""
        answer = await self._api.call(PaceLane.READ, "GET", path)
        return None if answer.code == 404 else _decoded(self._read(answer), dict[str, Any])

    async def send(self, request: Request) -> Answer:
        """One request of the rules, such as a dry-run eviction; the answer, whatever it is."""
        path, _, text = request.path.partition("?")
        query = dict(parse_qsl(text))
        return await self._api.call(
            PaceLane.READ, request.method, path, query=query, body=request.body,
            content_type=request.content_type,
        )  # fmt: skip

    async def create(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST one of our objects."""
        answer = await self._api.call(
            PaceLane.STATUS, "POST", f"{GROUP_PATH}/{plural}", body=body, query=_MANAGER
        )
        return _decoded(checked(answer, writes=True), dict[str, Any])

    async def patch(self, path: str, body: dict[str, Any]) -> None:
        """Merge patch of an object."""
        answer = await self._api.call(
            PaceLane.STATUS, "PATCH", path, body=body, content_type=MERGE_PATCH, query=_MANAGER
        )
        checked(answer, writes=True)

    async def delete(self, path: str) -> None:
        """Delete an object; one that is gone already is fine."""
        answer = await self._api.call(PaceLane.STATUS, "DELETE", path)
        if answer.code != 404:
            checked(answer, writes=True)

    def _read(self, answer: Answer) -> Answer:
        return checked(answer, role=self._role)

    async def _find(self, path: str, kind: type[T]) -> T | None:
        answer = await self._api.call(PaceLane.READ, "GET", path)
        if answer.code == 404:
            if answer.status().details is None:
                checked(answer)
            return None
        return _decoded(self._read(answer), kind)

    async def _list(self, path: str, kind: type[T], query: dict[str, str]) -> list[T]:
        found: list[T] = []
        unread: list[str] = []
        token = ""
        while True:
            page_query = {**query, "limit": str(PAGE), **({"continue": token} if token else {})}
            answer = self._read(await self._api.call(PaceLane.READ, "GET", path, query=page_query))
            try:
                page = answer.page(kind)
            except ApiError as error:
                raise CommandError(_unreadable(error)) from error
            if page.unread and not page.items:
                raise CommandError(_unreadable(f"nothing of {path} is understood"))
            found += page.items
            unread += page.unread
            token = page.metadata.continue_
            if not token:
                self._admit(path.rpartition("/")[2], unread)
                return found

    def _admit(self, plural: str, unread: list[str]) -> None:
        """Say once what the answer leaves out: a list that looks whole would mislead."""
        if not unread:
            return
        named = some(name or "one without a name" for name in unread)
        line = (
            f"{len(unread)} of {plural} left out, nothing of them is understood: {named}; are they "
            "of a newer version? look with kubectl get -o yaml"
        )
        if line not in self._left_out:
            self._left_out.add(line)
            self._say(line)


def _decoded(answer: Answer, kind: type[T]) -> T:
    try:
        return answer.decode(kind)
    except ApiError as error:
        raise CommandError(_unreadable(error)) from error


def _unreadable(why: object) -> str:
    return f"the API server sent an unreadable object: {why}; is it one for this version?"


def checked(answer: Answer, *, writes: bool = False, role: str = OPERATOR) -> Answer:
    """The answer, or CommandError with the remedy; `role` allows what viewers may not."""
    if answer.ok:
        return answer
    said = answer.sentence()
    match answer.code:
        case 404 if not answer.from_kubernetes and b"page not found" not in answer.body:
            raise CommandError(
                "what answers is not a Kubernetes API server; check the cluster's address in the "
                "kubeconfig and the proxy settings"
            )
        case 404 if answer.status().details is None:
            remedy = "install its definitions with kubectl apply -k daemonset/crds"
            raise CommandError(f"this cluster does not know gpuward's objects; {remedy}")
        case 403:
            raise CommandError(
                f"not allowed: {said}; {_remedy(answer, role, writes)}", forbidden=True
            )
        case 401:
            raise CommandError(f"not logged in: {said}; renew the credentials of this kubeconfig")
        case 0:
            remedy = "check the cluster's address in the kubeconfig, --context and the network"
            raise CommandError(f"{said}; {remedy}")
        case 409:
            raise CommandError(f"somebody else changed it at the same moment ({said}); try again")
        case code if code >= 500 or code == 429:
            raise CommandError(f"the API server could not answer ({said}); try again in a moment")
    raise CommandError(said)


def _remedy(answer: Answer, role: str, writes: bool) -> str:
    """Which of the roles that ship would allow it (daemonset/base/viewer-operator-roles.yaml)."""
    details = answer.status().details
    kind = details.kind if details is not None else ""
    seen = kind in _VIEWED
    if writes and not seen:
        return "this is for cluster administrators"
    return f"ask for the ClusterRole {VIEWER if seen and not writes else role}"


@asynccontextmanager
async def connect(
    kubeconfig: str | None,
    context: str | None,
    *,
    role: str = OPERATOR,
    acting: Acting | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Cluster]:
    """A connection as kubectl would make it; CommandError 64 for an unusable configuration.

    `role` is the ClusterRole that a refusal names where a viewer's is not enough; `acting` is
    whom to act as instead of what the kubeconfig says; `say` takes what a person should know
    beside the answer.
    """
    clock = SystemClock(first_agreeing=1)
    access = Access(kubeconfig, context, acting)
    try:
        await access.load()
    except AccessError as error:
        if context and f"name {context} " in str(error):
            remedy = "kubectl config get-contexts lists them"
            raise CommandError(
                f"the kubeconfig has no context {context}; {remedy}", exit_code=64
            ) from error
        raise CommandError(str(error), exit_code=64) from error
    api = Api(access, clock, Pace(Rates(per_second={}), clock))
    await api.open()
    try:
        yield Cluster(api, clock, role, say)
    finally:
        await api.close()
