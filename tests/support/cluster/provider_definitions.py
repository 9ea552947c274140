"""Minimal definitions of the objects through which repairs are asked for, of our own making.

Written from each system's published field documentation (Cluster API, medik8s, Karpenter,
NVSentinel): the fields that our adapters write or read, with their types and what must be there.
Unknown fields are pruned, as a real API server does, so a misspelt field does not pass unobserved.
"""

from typing import Any

TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
COUNT = {"type": "integer"}
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CONDITIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": TEXT,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": TEXT,
            "message": TEXT,
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    },
}


def fields(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object schema."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", **needed, "properties": properties}


def definition(
    group: str, version: str, kind: str, *, scope: str, spec: Any, status: Any, plural: str = ""
) -> dict[str, Any]:
    """A CustomResourceDefinition with a status of its own."""
    plural = plural or f"{kind.lower()}s"
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": spec, "status": status},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


_STATUS = fields(conditions=CONDITIONS)


_STRATEGY = {"type": "string", "enum": ["Automatic", "ResourceDeletion", "OutOfServiceTaint"]}
_JANITOR = "janitor.dgxc.nvidia.com"
_NODE_NAME = {"type": "string", "minLength": 1}
DEFINITIONS: tuple[dict[str, Any], ...] = (
    definition(
        "cluster.x-k8s.io",
        "v1beta2",
        "Machine",
        scope="Namespaced",
        spec=fields(
            ("clusterName",),
            clusterName=TEXT,
            providerID=TEXT,
        ),
        status=fields(phase=TEXT, nodeRef=fields(name=TEXT), conditions=CONDITIONS),
    ),
    definition(
        "karpenter.sh",
        "v1",
        "NodeClaim",
        scope="Cluster",
        spec=fields(nodeClassRef=FREE, requirements={"type": "array", "items": FREE}),
        status=fields(nodeName=TEXT, providerID=TEXT, conditions=CONDITIONS),
    ),
    definition(
        "self-node-remediation.medik8s.io",
        "v1alpha1",
        "SelfNodeRemediation",
        scope="Namespaced",
        spec=fields(remediationStrategy=_STRATEGY),
        status=_STATUS,
    ),
    definition(
        _JANITOR,
        "v1alpha1",
        "RebootNode",
        scope="Cluster",
        spec=fields(("nodeName",), nodeName=_NODE_NAME, force=FLAG),
        status=_STATUS,
    ),
    definition(
        _JANITOR,
        "v1alpha1",
        "GPUReset",
        scope="Cluster",
        spec=fields(
            ("nodeName",),
            nodeName=_NODE_NAME,
            selector=fields(
                uuids={
                    "type": "array",
                    "items": {"type": "string", "pattern": "^GPU-[0-9A-Za-z-]+$"},
                },
                pciBusIDs={"type": "array", "items": TEXT},
            ),
        ),
        status=_STATUS,
    ),
)
"""All of them; `kubectl apply` takes each."""


JOB = fields(
    ("spec",),
    spec=fields(
        ("template",),
        completions=COUNT,
        parallelism=COUNT,
        backoffLimit=COUNT,
        activeDeadlineSeconds=COUNT,
        ttlSecondsAfterFinished=COUNT,
        podFailurePolicy=fields(
            ("rules",),
            rules={
                "type": "array",
                "items": fields(
                    ("action",),
                    action=TEXT,
                    onExitCodes=fields(
                        ("operator", "values"),
                        operator=TEXT,
                        values={"type": "array", "items": COUNT},
                    ),
                ),
            },
        ),
        template=fields(
            ("spec",),
            metadata=fields(
                labels={"type": "object", "additionalProperties": TEXT},
                annotations={"type": "object", "additionalProperties": TEXT},
            ),
            spec=FREE,
        ),
    ),
    status=fields(conditions=CONDITIONS),
)
"""Of a built-in kind the fields that our own adapters write. Source: Kubernetes API, batch/v1."""


def schema_of(group: str, resource: str) -> tuple[str, dict[str, Any]]:
    """Kind and OpenAPI schema of a resource; KeyError for one that is not defined here."""
    if (group, resource) == ("batch", "jobs"):
        return "Job", JOB
    for one in DEFINITIONS:
        spec = one["spec"]
        if (spec["group"], spec["names"]["plural"]) == (group, resource):
            return spec["names"]["kind"], spec["versions"][0]["schema"]["openAPIV3Schema"]
    raise KeyError(f"{resource}.{group}")
