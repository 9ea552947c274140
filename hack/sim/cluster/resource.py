"""Which collection of the API a call speaks about: group, version, plural, scope, kind.

Used by both clients, the controllers and tests.  Holds addresses only: no behaviour of a kind
belongs here (see `kinds`).
"""

from __future__ import annotations

from dataclasses import dataclass


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


def _core(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", plural, namespaced, kind)


NODES = _core("nodes", "Node", namespaced=False)
NAMESPACES = _core("namespaces", "Namespace", namespaced=False)
PODS = _core("pods", "Pod")
EVENTS = _core("events", "Event")
CONFIGMAPS = _core("configmaps", "ConfigMap")
SECRETS = _core("secrets", "Secret")
SERVICES = _core("services", "Service")
POD_TEMPLATES = _core("podtemplates", "PodTemplate")
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount")
REPLICATION_CONTROLLERS = _core("replicationcontrollers", "ReplicationController")
PERSISTENT_VOLUMES = _core("persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = _core("persistentvolumeclaims", "PersistentVolumeClaim")
DEPLOYMENTS = Resource("apps", "v1", "deployments", True, "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", True, "ReplicaSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", True, "DaemonSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", True, "StatefulSet")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", True, "ControllerRevision")
JOBS = Resource("batch", "v1", "jobs", True, "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", True, "CronJob")
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", True, "PodDisruptionBudget"
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", True, "Lease")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", True, "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", True, "RoleBinding")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", False, "ClusterRole")
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", False, "ClusterRoleBinding"
)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", False, "VolumeAttachment"
)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", False, "StorageClass")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", False, "PriorityClass")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", False, "CustomResourceDefinition"
)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", True, "NetworkPolicy")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", True, "Ingress")
_ADMISSION = "admissionregistration.k8s.io"
VALIDATING_ADMISSION_POLICIES = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicies", False, "ValidatingAdmissionPolicy"
)
VALIDATING_ADMISSION_POLICY_BINDINGS = Resource(
    _ADMISSION,
    "v1",
    "validatingadmissionpolicybindings",
    False,
    "ValidatingAdmissionPolicyBinding",
)
VALIDATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", False, "ValidatingWebhookConfiguration"
)
MUTATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", False, "MutatingWebhookConfiguration"
)
NEW_EVENTS = Resource("events.k8s.io", "v1", "events", True, "Event")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", False, "RuntimeClass")
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", True, "ResourceClaim")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", False, "ResourceSlice")
