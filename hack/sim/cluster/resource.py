"""What a call is about: the collection, the address behind a URL, the caller, its options.

Used by both clients, the controllers and tests.  Holds addresses only: no behaviour of a kind
belongs here (see `kinds`).
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection of objects of one kind, as its URL names it."""

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` its objects carry: `v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """How error messages name it: `nodes`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, name: str | None = None, namespace: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, an object of it or an object's subresource."""
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def custom_resources(definition: dict[str, Any]) -> list[tuple[Resource, dict[str, Any]]]:
    """The collection of each version of a CustomResourceDefinition, with the version's entry."""
    spec = definition["spec"]
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    return [
        (Resource(spec["group"], one["name"], names["plural"], namespaced, names["kind"]), one)
        for one in spec["versions"]
    ]


def _builtin(api_version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, plural, namespaced, kind)


_RBAC, _ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
NODES = _builtin("v1", "nodes", "Node", namespaced=False)
NAMESPACES = _builtin("v1", "namespaces", "Namespace", namespaced=False)
PODS = _builtin("v1", "pods", "Pod")
EVENTS = _builtin("v1", "events", "Event")
CONFIGMAPS = _builtin("v1", "configmaps", "ConfigMap")
SECRETS = _builtin("v1", "secrets", "Secret")
SERVICES = _builtin("v1", "services", "Service")
POD_TEMPLATES = _builtin("v1", "podtemplates", "PodTemplate")
SERVICE_ACCOUNTS = _builtin("v1", "serviceaccounts", "ServiceAccount")
REPLICATION_CONTROLLERS = _builtin("v1", "replicationcontrollers", "ReplicationController")
DEPLOYMENTS = _builtin("apps/v1", "deployments", "Deployment")
REPLICA_SETS = _builtin("apps/v1", "replicasets", "ReplicaSet")
DAEMON_SETS = _builtin("apps/v1", "daemonsets", "DaemonSet")
STATEFUL_SETS = _builtin("apps/v1", "statefulsets", "StatefulSet")
JOBS = _builtin("batch/v1", "jobs", "Job")
POD_DISRUPTION_BUDGETS = _builtin("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES = _builtin("coordination.k8s.io/v1", "leases", "Lease")
ROLES = _builtin(_RBAC, "roles", "Role")
ROLE_BINDINGS = _builtin(_RBAC, "rolebindings", "RoleBinding")
CLUSTER_ROLES = _builtin(_RBAC, "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = _builtin(
    _RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
PRIORITY_CLASSES = _builtin(
    "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = _builtin(
    "apiextensions.k8s.io/v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICIES = _builtin(
    _ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
VALIDATING_ADMISSION_POLICY_BINDINGS = _builtin(
    _ADMISSION,
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
VALIDATING_WEBHOOKS = _builtin(
    _ADMISSION,
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING_WEBHOOKS = _builtin(
    _ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
NETWORK_POLICIES = _builtin("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
RUNTIME_CLASSES = _builtin("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False)
RESOURCE_CLAIMS = _builtin("resource.k8s.io/v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = _builtin(
    "resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False
)
RESOURCE_CLAIM_TEMPLATES = _builtin(
    "resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
DEVICE_CLASSES = _builtin("resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False)
DEVICE_TAINT_RULES = _builtin(
    "resource.k8s.io/v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
BUILTIN = tuple(value for value in tuple(globals().values()) if isinstance(value, Resource))
"""The kinds that every control plane serves, as far as this project meets them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated user."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = Caller("kubernetes-admin", ("system:masters", "system:authenticated"))
"""Who everybody is while authorization is AlwaysAllow and no tokens are configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The query of a mutating call."""

    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False
    """Refuse unknown fields (fieldValidation=Strict) instead of dropping them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The body (or query) of a DELETE and of an eviction."""

    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What a request is about."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        """Resource and subresource as RBAC names them."""
        return self.resource + (f"/{self.subresource}" if self.subresource else "")

    @property
    def is_resource(self) -> bool:
        """Whether it names objects rather than a path such as /version."""
        return bool(self.resource)


def read_address(method: str, path: str, *, watch: bool) -> Address:
    """The address behind an HTTP method and path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    plain = Address(verb=method.lower(), path=path)
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return plain
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    verb = _VERBS.get(method, "get")
    if verb == "get" and not name:
        verb = "watch" if watch else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Address(
        verb=verb,
        path=path,
        group=group,
        version=version,
        resource=rest[0],
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
