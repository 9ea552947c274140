"""Call the API server for a command: a decoded answer, or one sentence with its remedy."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from remediator.kube import resources
from remediator.kube.access import Access
from remediator.kube.answer import Answer, ApiError
from remediator.kube.api import CALL_TIMEOUT_S, JSON, MERGE_PATCH, Api
from remediator.kube.clock import CallQueue, Clock, RateLimiter
from remediator.kube.resources import AgentPodObject
from remediator.kubectl.command import OPERATOR, CommandError
from rules.api import messages, names, object_name, refusal
from rules.api.evidence import EvidenceView
from rules.api.gpu_record import RecordView
from rules.api.kube_config import Acting, KubeConfigError
from rules.api.nodes import AgentPod, FreshNode, HealthView, PauseView, QuarantineView, TimedNode
from rules.api.pods import DaemonSetView, PodView
from rules.api.refusal import ErrorKind
from rules.api.workloads import PdbView
from rules.drain.node_room import Room

if TYPE_CHECKING:  # what one command does not read it does not wait for
    from rules.api.requests import Request
    from rules.policy.policy import Policy

T = TypeVar("T")

GROUP_PATH = f"/apis/{names.API_VERSION}"
POLICY_MAP = "gpuward-policy"
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Of pods: what was evicted or has completed is an object alone, and runs no more."""
MANAGER = "kubectl-gpuward"
"""Who wrote a field, in managedFields: uninstall takes off what these commands put there."""
_WRITTEN = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
"""Strict: what a definition of an older release would drop is refused, and not lost in silence."""


@asynccontextmanager
async def connect(
    options: argparse.Namespace, say: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """Connect as kubectl would; raise CommandError 64 for an unusable configuration."""
    acting = None
    if options.acting:
        acting = Acting(user=options.acting, groups=tuple(options.acting_groups or ()))
    clock = Clock(first_agreeing=1)
    access = Access(options.kubeconfig, options.context, acting)
    try:
        await access.load()
    except KubeConfigError as error:
        raise CommandError(str(error), exit_code=64) from error
    api = Api(access, clock, RateLimiter({}, clock))
    await api.open()
    command = getattr(options, "command", None)
    try:
        yield Cluster(
            api, clock, say,
            role=command.role if command is not None else OPERATOR,
            dry_run=getattr(options, "dry_run", False),
        )  # fmt: skip
    finally:
        await api.close()


class Cluster:
    """One API server on behalf of one operator."""

    def __init__(
        self, api: Api, clock: Clock, say: Callable[[str], None], *,
        role: str = OPERATOR, dry_run: bool = False,
    ) -> None:  # fmt: skip
        self._api = api
        self._clock = clock
        self._role = role
        self.say = say
        self.dry_run = dry_run
        """Whether the API server only checks what is written."""
        self._left_out: set[str] = set()
        """Messages about unreadable objects that were printed already."""
        self._once: dict[str, Any] = {}

    async def once(self, what: str, read: Callable[[], Awaitable[T]]) -> T:
        """What is the same for all nodes of a command, read at the first of them."""
        if what not in self._once:
            self._once[what] = await read()
        found: T = self._once[what]
        return found

    def now(self) -> float:
        """Seconds since the epoch, in the API server's time."""
        return self._clock.now()

    async def who(self) -> str:
        """The name the API server knows us by, for the record of who acted."""
        return await self.once("who", self._who)

    async def _who(self) -> str:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = await self._call(CallQueue.READ, "POST", path, body=review)
        if not answer.ok:
            return "unknown user"
        status = decoded(answer, dict[str, Any]).get("status") or {}
        return str((status.get("userInfo") or {}).get("username") or "unknown user")

    async def node(self, name: str) -> FreshNode | None:
        """The Node, None where there is none."""
        return await self._find(object_name.api_path("/api/v1/nodes", name), FreshNode)

    async def health(self, name: str) -> HealthView | None:
        """The node's GPUNodeHealth, None where no agent ever published."""
        return await self._find_own("gpunodehealths", name, HealthView)

    async def session(self, name: str) -> QuarantineView | None:
        """A GPUQuarantine by name."""
        return await self._find_own("gpuquarantines", name, QuarantineView)

    async def nodes(self, selector: str = "") -> list[TimedNode]:
        """Nodes by label selector."""
        query = {"labelSelector": selector} if selector else {}
        return await self.items("/api/v1/nodes", TimedNode, query)

    async def readable(self, call: Awaitable[T]) -> T | None:
        """The answer of a call; None where this operator may not ask."""
        try:
            return await call
        except CommandError as error:
            if not error.forbidden:
                raise
            return None

    async def healths(self) -> list[HealthView]:
        """Every GPUNodeHealth."""
        return await self.items(f"{GROUP_PATH}/gpunodehealths", HealthView, {})

    async def sessions(self, node: str = "") -> list[QuarantineView]:
        """Sessions, of one node where one is named; oldest first."""
        found = await self.items(f"{GROUP_PATH}/gpuquarantines", QuarantineView, _on(node))
        return sorted(found, key=lambda s: (s.metadata.creation_timestamp or "", s.name))

    async def records(self) -> list[RecordView]:
        """Every GPURecord."""
        return await self.items(f"{GROUP_PATH}/gpurecords", RecordView, {})

    async def record(self, name: str) -> RecordView | None:
        """A GPURecord by name."""
        return await self._find_own("gpurecords", name, RecordView)

    async def evidence(self, name: str) -> EvidenceView | None:
        """A GPUEvidence by name."""
        return await self._find_own("gpuevidences", name, EvidenceView)

    async def evidences(self, node: str = "") -> list[EvidenceView]:
        """Every GPUEvidence, of one node where one is named."""
        return await self.items(f"{GROUP_PATH}/gpuevidences", EvidenceView, _on(node))

    async def pauses(self) -> list[PauseView]:
        """Every GPUWardPause."""
        return await self.items(f"{GROUP_PATH}/gpuwardpauses", PauseView, {})

    async def agents(self, node: str = "") -> list[AgentPod]:
        """The agents' pods, on one node where one is named."""
        query = {"labelSelector": resources.AGENT_SELECTOR, **_on(node)}
        return [pod.as_agent() for pod in await self.items("/api/v1/pods", AgentPodObject, query)]

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
        answer = await self._call(CallQueue.READ, "POST", path, body=review)
        if answer.code in {403, 404}:
            return None
        status = decoded(self.checked(answer), dict[str, Any]).get("status") or {}
        return bool(status.get("allowed"))

    async def policy(self, namespace: str) -> Policy | None:
        """The policy of the cluster's ConfigMap; None where there is none."""
        found = await self.get(f"/api/v1/namespaces/{namespace}/configmaps/{POLICY_MAP}")
        if found is None:
            return None
        from remediator.policy_file import decode_policy

        text = (found.get("data") or {}).get("policy.yaml", "")
        loaded = decode_policy(text, POLICY_MAP)
        if isinstance(loaded, list):
            raise CommandError("; ".join(loaded), unusable=True)
        return loaded

    async def pods_on(self, node: str) -> tuple[PodView, ...]:
        """Every pod bound to the node."""
        return tuple(await self.items("/api/v1/pods", PodView, _on(node)))

    async def gpus_requested(self) -> dict[Room, int]:
        """GPUs that live pods request, by node and vendor."""
        query = {"fieldSelector": NOT_ENDED}
        used: Counter[Room] = Counter()
        for pod in await self.items("/api/v1/pods", PodView, query):
            used[pod.spec.node_name, pod.gpu_vendor] += pod.gpus
        return used

    async def pdbs(self) -> tuple[PdbView, ...]:
        """Every PodDisruptionBudget."""
        return tuple(await self.items(resources.PDBS, PdbView, {}))

    async def daemon_sets(self) -> tuple[DaemonSetView, ...]:
        """Every DaemonSet."""
        return tuple(await self.items(resources.DAEMON_SETS, DaemonSetView, {}))

    async def get(self, path: str) -> dict[str, Any] | None:
        """Any object as plain values; None where there is none."""
        answer = await self._call(CallQueue.READ, "GET", path)
        return None if answer.code == 404 else decoded(self.checked(answer), dict[str, Any])

    async def everything(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        """All items of a list as plain values, page by page."""
        return await self.items(path, dict[str, Any], query)

    async def send(self, request: Request) -> Answer:
        """One request of the rules, such as a dry-run eviction; the answer, whatever it is."""
        path, _, text = request.path.partition("?")
        query = dict(parse_qsl(text))
        if self.dry_run and request.method != "GET":
            query["dryRun"] = "All"
        return await self._call(
            CallQueue.READ, request.method, path, query=query, body=request.body,
            content_type=request.content_type,
        )  # fmt: skip

    async def create(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST one of our objects."""
        return await self._write("POST", f"{GROUP_PATH}/{plural}", body, JSON)

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Merge patch of an object; what the API server made of it."""
        return await self._write("PATCH", path, body, MERGE_PATCH)

    async def _write(
        self, method: str, path: str, body: dict[str, Any], kind: str
    ) -> dict[str, Any]:
        query = _WRITTEN | ({"dryRun": "All"} if self.dry_run else {})
        answer = await self._call(
            CallQueue.STATUS, method, path, body=body, content_type=kind, query=query
        )
        return decoded(self.checked(answer), dict[str, Any])

    async def delete(self, path: str) -> None:
        """Delete an object; one that is gone already is fine."""
        query = {"dryRun": "All"} if self.dry_run else None
        answer = await self._call(CallQueue.STATUS, "DELETE", path, query=query)
        if answer.code != 404:
            self.checked(answer)

    async def _call(
        self,
        call_queue: CallQueue,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> Answer:
        return await self._api.call(
            call_queue, method, path, query=query, body=body, content_type=content_type,
            timeout_s=CALL_TIMEOUT_S,
        )  # fmt: skip

    def checked(self, answer: Answer) -> Answer:
        """The answer, or CommandError with the remedy."""
        return checked(answer, self._role)

    async def _find(self, path: str, kind: type[T]) -> T | None:
        answer = await self._call(CallQueue.READ, "GET", path)
        if answer.code == 404:
            if answer.status().details is None:
                self.checked(answer)
            return None
        return decoded(self.checked(answer), kind)

    async def _find_own(self, plural: str, name: str, kind: type[T]) -> T | None:
        return await self._find(object_name.api_path(f"{GROUP_PATH}/{plural}", name), kind)

    async def items(self, path: str, kind: type[T], query: dict[str, str]) -> list[T]:
        """Return all items that can be decoded. Print once how many are left out."""
        try:
            listed = await self._api.items(path, kind, query=query)
        except ApiError as error:
            if b"page not found" in error.answer.body and not path.startswith(GROUP_PATH):
                raise CommandError(f"the API server does not serve {path}") from error
            self.checked(error.answer)
            raise CommandError(unreadable(error)) from error
        if listed.unread and not listed.found:
            raise CommandError(unreadable(f"nothing of {path} is understood"))
        if listed.unread:
            named = messages.name_list(name or "one without a name" for name in listed.unread)
            line = (
                f"{len(listed.unread)} of {path.rpartition('/')[2]} left out, nothing of them is "
                f"understood: {named}; are they of a newer version? look with kubectl get -o yaml"
            )
            if line not in self._left_out:
                self._left_out.add(line)
                self.say(line)
        return list(listed.found)


def _on(node: str) -> dict[str, str]:
    """Return the query for objects of one node; empty without a name."""
    return {"fieldSelector": object_name.field_selector("spec.nodeName", node)} if node else {}


def decoded(answer: Answer, kind: type[T]) -> T:
    """The object of an answer; CommandError where it is none."""
    try:
        return answer.decode(kind)
    except ApiError as error:
        raise CommandError(unreadable(error)) from error


def unreadable(why: object) -> str:
    """Return the message about an object that cannot be decoded."""
    return f"the API server sent an unreadable object: {why}; is it one for this version?"


def checked(answer: Answer, role: str = OPERATOR) -> Answer:
    """The answer, or CommandError with the remedy; `role` is the ClusterRole that allows what was
    asked, "" for cluster administrators alone.
    """
    if answer.ok:
        return answer
    message = answer.sentence()
    match answer.code:
        case 404 if not answer.from_kubernetes and b"page not found" not in answer.body:
            raise CommandError(
                "what answers is not a Kubernetes API server; check the cluster's address in the "
                "kubeconfig and the proxy settings"
            )
        case 404 if answer.status().details is None:
            remedy = (
                "install its definitions with kubectl apply -k daemonset/crds; kubectl gpuward "
                "preflight shows what is there"
            )
            raise CommandError(f"this cluster does not know gpuward's objects; {remedy}")
        case 403 if ErrorKind.BY_ADMISSION in refusal.error_kinds(message):
            raise CommandError(f"{message}; ask who runs this admission policy or webhook")
        case 403 if ErrorKind.IMPERSONATION in refusal.error_kinds(message):
            remedy = "ask for the right to impersonate, or leave out --as (`as` of the kubeconfig)"
            raise CommandError(f"not allowed: {message}; {remedy}")
        case 403:
            ask = (
                f"ask for the ClusterRole {role}" if role else "this is for cluster administrators"
            )
            raise CommandError(f"not allowed: {message}; {ask}", forbidden=True)
        case 401:
            raise CommandError(
                f"not logged in: {message}; renew the credentials of this kubeconfig"
            )
        case 0:
            remedy = "check the cluster's address in the kubeconfig, --context and the network"
            if "CERTIFICATE_VERIFY_FAILED" in message:
                remedy = "check certificate-authority and tls-server-name of the kubeconfig"
            raise CommandError(f"{message}; {remedy}")
        case 400 | 422 if lost := refusal.refused_fields(answer.body):
            raise CommandError(
                f"the definitions in this cluster are older than this command and do not know "
                f"{messages.name_list(lost)}; bring them up to date with kubectl apply -k "
                "daemonset/crds"
            )
        case 409:
            raise CommandError(
                f"somebody else changed it at the same moment ({message}); try again", outrun=True
            )
        case code if code >= 500 or code == 429:
            raise CommandError(
                f"the API server could not answer ({message}); try again in a moment"
            )
    raise CommandError(message)
