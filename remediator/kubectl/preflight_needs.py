"""Preflight checks of what the remediator needs: rights, policies, definitions, repairs, tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from remediator.kube.elector import LEASE_NAME
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import PLANNER
from rules.api.evidence.wire import EvidenceSpec
from rules.api.health import HealthStatus
from rules.api.names import COMPONENT_REMEDIATOR, GROUP, VERSION
from rules.api.object_name import api_path
from rules.api.quarantine import PauseSpec, QuarantineSpec, QuarantineStatus
from rules.policy.components import FORCE, VALIDATE, asked_components
from rules.policy.policy import Policy
from rules.policy.repair_rights import actions_in_use
from rules.repair.adapter import NewObject, RepairAction, Replacement
from rules.repair.component import MARK_POLICY, UNKNOWN_POLICY, component_key, folder_of
from rules.repair.job_component import JOBS_POLICY, job_kinds
from rules.repair.rights import conditions_of, needed, node_keys

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "FAIL"
ADMISSION_POLICIES: Final = (
    "gpuward-agent-node-fields",
    "gpuward-agent-own-events",
    "gpuward-agent-own-evidence",
    "gpuward-agent-own-node",
    "gpuward-node-keeps-mark",
    "gpuward-remediator-jobs",
    "gpuward-remediator-mark",
    "gpuward-remediator-record",
    "gpuward-remediator-unknown",
)
"""What base ships; each has a binding of its own name."""
NEEDED: Final = (
    ("", "nodes", "patch"),
    ("", "pods", "list"),
    ("", "pods/eviction", "create"),
    ("policy", "poddisruptionbudgets", "watch"),
    ("gpuward.io", "gpuquarantines", "create"),
    ("gpuward.io", "gpuquarantines/status", "patch"),
)
"""What the remediator needs in the whole cluster, beside its Lease: group, resource, verb."""
ADMISSION_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
OPENAPI_PATH: Final = f"/openapi/v3/apis/{GROUP}/{VERSION}"
_WRITTEN: Final[tuple[tuple[str, str, type], ...]] = (
    ("GPUQuarantine", "spec", QuarantineSpec),
    ("GPUQuarantine", "status", QuarantineStatus),
    ("GPUNodeHealth", "status", HealthStatus),
    ("GPUWardPause", "spec", PauseSpec),
    ("GPUEvidence", "spec", EvidenceSpec),
)
FORCE_NEEDS: Final = (("", "pods", "delete"), ("", "pods/status", "patch"))
"""What `drain.onTimeout: Force` needs as well."""
REPORTS: Final = {
    ("", "events", "create"): "no Event tells anybody what it does",
    ("gpuward.io", "gpurecords", "create"): "no GPURecord is written",
    ("gpuward.io", "gpurecords/status", "patch"): "no GPURecord is written",
}
"""What nodes are treated as ever without, and what happens then, a clause."""
_MANIFESTS: Final = "apply the manifests of daemonset/base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was found about one thing, and the remedy."""

    verdict: str
    name: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What of gpuward is in the cluster, as far as the person may see it."""

    namespace: str
    """Where the person says that it is."""
    definitions: bool
    spaces: frozenset[str] | None
    """Where its workloads are; None where the person may not list them."""
    agents: dict[str, Any]
    """The agents' DaemonSet of the namespace; empty where there is none, or none to be seen."""

    @property
    def fresh(self) -> bool:
        """Nothing of ours is there: what is missing is what the installation brings."""
        return self.spaces == frozenset() and not self.definitions

    @property
    def user(self) -> str:
        """As whom its remediator acts."""
        return f"system:serviceaccount:{self.namespace}:{COMPONENT_REMEDIATOR}"


def one(name: str, found: str, verdict: str = WARN) -> list[Check]:
    """A report of one line."""
    return [Check(verdict=verdict, name=name, found=found)]


async def permissions(cluster: Cluster, policy: Policy, here: Installation) -> list[Check]:
    """Whether RBAC lets the remediator do its work."""
    forces = FORCE_NEEDS if FORCE in {each.component for each in asked_components(policy)} else ()
    # No namespace means all of them: a Role in one is not enough for the others.
    everywhere = [(*each, "", "") for each in (*NEEDED, *forces, *REPORTS)]
    lease = ("coordination.k8s.io", "leases", "update", here.namespace, LEASE_NAME)
    lacking: list[tuple[str, str, str]] = []
    for group, resource, verb, where, name in [*everywhere, lease]:
        allowed = await cluster.may(here.user, group, resource, verb, where, name)
        if allowed is None:
            ask = f"ask for the ClusterRole {PLANNER}"
            return one("permissions", f"you may not ask for others' permissions; {ask}")
        if not allowed:
            lacking.append((group, resource, verb))
    if not lacking:
        return one("permissions", f"{here.user} may do what it needs", OK)
    if here.fresh:
        return one("permissions", f"none yet for {here.user}; the installation brings them")
    said = f"{here.user} may not {', '.join(f'{verb} {what}' for _, what, verb in lacking)}"
    if set(lacking) <= set(forces):
        remedy = "apply component force, or set drain.onTimeout: Report"
        return one("permissions", f"{said}: drain.onTimeout: Force forces nothing; {remedy}", FAIL)
    if set(lacking) <= set(REPORTS):
        then = " and ".join(dict.fromkeys(REPORTS[lack] for lack in lacking))
        return one("permissions", f"{said}, so {then}, nodes are treated as ever; {_MANIFESTS}")
    return one("permissions", f"{said}; {_MANIFESTS}", FAIL)


async def admission(cluster: Cluster, here: Installation) -> list[Check]:
    """RBAC alone lets one agent write about every node: the policies hold it to its own."""
    there: list[dict[str, dict[str, Any]]] = []
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        page = await cluster.get(f"{ADMISSION_PATH}/{plural}") or {}
        there.append({item["metadata"]["name"]: item for item in page.get("items", ())})
    policies, bindings = there
    lacking = [name for name in ADMISSION_POLICIES if name not in policies]
    specs = {name: bindings.get(name, {}).get("spec") or {} for name in policies}
    idle = [
        name
        for name in ADMISSION_POLICIES
        if name in policies
        and (
            specs[name].get("policyName") != name
            or "Deny" not in (specs[name].get("validationActions") or ())
        )
    ]
    if not lacking and not idle:
        return one("admission policies", "all of base are in force", OK)
    if here.fresh and len(lacking) == len(ADMISSION_POLICIES):
        return one("admission policies", "none yet; the installation brings them")
    parts = [f"missing {', '.join(lacking)}"] if lacking else []
    parts += [f"no binding that denies for {', '.join(idle)}"] if idle else []
    why = "without them a compromised agent or node can write more than its own part"
    return one("admission policies", f"{'; '.join(parts)}; {why}, {_MANIFESTS}")


async def repair(cluster: Cluster, policy: Policy, here: Installation) -> list[Check]:
    """What the adapters of the policy's steps need, one line for each adapter."""
    if policy.repair.mode == "Off":
        return []  # nobody is asked
    checks = []
    for adapter, actions in sorted(actions_in_use(policy.repair).items()):
        lacking: dict[str, None] = {}
        for action in actions:
            if not isinstance(action, NewObject | Replacement):
                continue
            group, _, version = action.api_version.rpartition("/")
            if version == "*":
                found = await cluster.get(api_path("/apis", group)) or {}
                version = (found.get("preferredVersion") or {}).get("version") or "v1"
            path = api_path("/apis", group, version) if group else f"/api/{version}"
            served = (await cluster.get(path) or {}).get("resources", ())
            if action.resource not in {one["name"] for one in served}:
                lacking[f"nobody serves {action.resource} of {action.api_version}"] = None
        pods = {action.pod for action in actions if isinstance(action, NewObject)}
        for name in sorted(filter(None, pods)):
            lacking |= await _no_template(cluster, here.namespace, name)
        for right in needed(actions):
            at = here.namespace if right.own else ""
            for verb in right.verbs:
                if await cluster.may(here.user, right.group, right.resource, verb, at) is False:
                    where = f".{right.group}" if right.group else ""
                    where += f" in {here.namespace}" if right.own else ""
                    lacking[f"the remediator may not {verb} {right.resource}{where}"] = None
        lacking |= await _not_admitted(cluster, actions)
        name = f"repair adapter {adapter}"
        if not lacking:
            steps = sorted(s for s, each in policy.repair.steps.items() if each.adapter == adapter)
            checks += one(name, f"what {', '.join(steps)} needs is there", OK)
            continue
        folder = folder_of(adapter)
        remedy = (
            "list in your overlay what gpuward-remediator policy rbac writes, and apply it"
            if adapter in policy.repair.adapters
            else f"add component {folder} (Helm: components.{component_key(folder)}) and install "
            "what it asks"
        )
        checks += one(name, f"{'; '.join(lacking)}; {remedy}", FAIL)
    return checks


async def _not_admitted(cluster: Cluster, actions: Sequence[RepairAction]) -> dict[str, None]:
    """What our own admission policies refuse the remediator, since no component has named it."""
    lacking: dict[str, None] = {}
    page = await cluster.get(f"{ADMISSION_PATH}/validatingadmissionpolicies") or {}
    there = {item["metadata"]["name"]: item for item in page.get("items", ())}
    wanted = (
        (MARK_POLICY, node_keys(actions)),
        (UNKNOWN_POLICY, conditions_of(actions)),
        (JOBS_POLICY, job_kinds(actions)),
    )
    for policy, words in wanted:
        spec = there[policy].get("spec") or {} if policy in there else {}
        text = " ".join(str(each.get("expression")) for each in spec.get("variables") or ())
        for word in words if spec else ():
            if f"'{word}'" not in text:
                lacking[f"policy {policy} does not name {word}"] = None
    return lacking


async def _no_template(cluster: Cluster, namespace: str, name: str) -> dict[str, None]:
    """A PodTemplate, or its RuntimeClass, that is not there."""
    path = api_path("/api/v1/namespaces", namespace, "podtemplates", name)
    found = await cluster.get(path)
    if found is None:
        return {f"there is no PodTemplate {name} in {namespace}": None}
    runtime = ((found.get("template") or {}).get("spec") or {}).get("runtimeClassName")
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    if runtime and await cluster.get(api_path(classes, runtime)) is None:
        return {f"there is no RuntimeClass {runtime}": None}
    return {}


async def validation(cluster: Cluster, policy: Policy, here: Installation) -> list[Check]:
    """What the test under load needs that the policy asks for."""
    asked = any(each.component == VALIDATE for each in asked_components(policy))
    template = policy.validate.template
    path = api_path("/api/v1/namespaces", here.namespace, "podtemplates", template)
    # Auto tests where the component is installed: what else it needs is to be there then.
    there = await cluster.get(path) is not None
    if policy.validate.provider == "None" or not (asked or there):
        return []
    lacking = await _no_template(cluster, here.namespace, template)
    if await cluster.may(here.user, "batch", "jobs", "create", here.namespace) is False:
        lacking[f"the remediator may not create jobs.batch in {here.namespace}"] = None
    told = f"{'; '.join(lacking)}; add component validate" if lacking else "is there"
    return one(f"test under load {template}", told, FAIL if lacking else OK)


def unknown_fields(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that this release writes and the served definitions (`/openapi/v3`) do not have, as
    `GPUQuarantine.spec.release`: the API server drops them and tells nobody.
    """
    served = {
        kind.get("kind"): schema
        for schema in (document.get("components") or {}).get("schemas", {}).values()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
    }
    found: list[str] = []
    for kind, part, wire in _WRITTEN:
        if kind in served:
            schema = (served[kind].get("properties") or {}).get(part) or {}
            found += _missing(f"{kind}.{part}", schema, msgspec.inspect.type_info(wire))
    return tuple(found)


def _missing(path: str, schema: Mapping[str, Any], wire: msgspec.inspect.Type) -> Iterator[str]:
    """Where the schema lists fields it knows no others; a free map knows all."""
    match wire:
        case msgspec.inspect.StructType() if (known := schema.get("properties")) is not None:
            for field in wire.fields:
                place = f"{path}.{field.encode_name}"
                if field.encode_name in known:
                    yield from _missing(place, known[field.encode_name], field.type)
                else:
                    yield place
        case msgspec.inspect.StructType() if not schema:
            yield path
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            yield from _missing(path, schema.get("items") or {}, wire.item_type)
        case msgspec.inspect.UnionType():
            for one in wire.types:
                yield from _missing(path, schema, one)
