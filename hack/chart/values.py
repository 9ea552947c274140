"""What an installer of the chart may set, and where it goes into the objects.

Pure. `marked` replaces in a build what is the installer's choice; `switches` are the conditions
under which objects differ; `default_values` and `schema` say the same to Helm.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

from hack.chart.builds import PROFILES, Identity, Object
from hack.chart.emit import Template
from hack.chart.merge import Condition
from rules.policy.components import ANY, NEEDS, NOT_NULL, Need
from rules.policy.policy import Policy, effective_view
from rules.policy.schema import policy_schema
from rules.repair.component import component_key

NAMESPACE: Final = "gpuward"
KEEP: Final = ".Values.crds.keep"
PROGRAMS: Final = {
    ("DaemonSet", "gpuward-agent"): "agent",
    ("Deployment", "gpuward-remediator"): "remediator",
}


_LACKS: Final = "without it what the policy asks for does not happen"


def _read(path: tuple[str, ...], start: str = "$.Values.policy") -> str:
    """A value of the policy; sections that are left out are none."""
    for key in path:
        start = f"({start}).{key}"
    return f"({start})"


def _is_off(path: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Whether another value makes it needless; by default it is what the policy's default is."""
    default: Any = effective_view(Policy())
    for key in path:
        default = default.get(key) if isinstance(default, dict) else None
    words = " ".join(f'"{value}"' for value in values)
    return f'has (toString ({_read(path)} | default "{default}")) (list {words})'


def _refused(need: Need) -> str:
    """Refuses a policy whose value asks for a component that is off."""
    start, opened, closed, said = "$.Values.policy", "", "", ".".join(need.path)
    path, named = need.path, ""
    if ANY in path:
        at = path.index(ANY)
        opened = f"{{{{- range $key, $each := {_read(path[:at])} }}}}\n"
        start, path, closed = "$each", path[at + 1 :], "{{- end }}\n"
        said, named = said.replace(ANY, "%s"), "$key "
    value = _read(path, start)
    if NOT_NULL in need.components:
        key = component_key(need.components[NOT_NULL])
        found = f'{{{{- $needs := ternary "" "{key}" (kindIs "invalid" {value}) }}}}\n'
        words, shown = f"policy.{said} needs", ""
    else:
        pairs = " ".join(f'"{v}" "{component_key(c)}"' for v, c in need.components.items())
        found = f"{{{{- $needs := get (dict {pairs}) (toString {value}) }}}}\n"
        words, shown = f"policy.{said}: %s needs", f"(toString {value}) "
    offs = "".join(f" (not ({_is_off(place, values)}))" for place, values in need.unless)
    return (
        f"{opened}{found}"
        f"{{{{- if and $needs (not (get $.Values.components $needs)){offs} }}}}\n"
        f'{{{{- fail (printf "{words} components.%s: true; {_LACKS}" {named}{shown}$needs) }}}}\n'
        f"{{{{- end }}}}\n{closed}"
    )


_POLICY: Final = Template(
    "apiVersion: gpuward.io/v1alpha1\n"
    "kind: QuarantinePolicy\n"
    "mode: {{ .Values.mode }}\n"
    "{{- with .Values.policy }}\n"
    "{{- toYaml . | nindent 4 }}\n"
    "{{- end }}\n" + "".join(map(_refused, NEEDS))
)


def profile_condition(name: str) -> Condition:
    """Whether this profile was chosen."""
    return f'eq .Values.profile "{name}"'


def component_condition(name: str) -> Condition:
    """Whether this component was switched on."""
    return f".Values.components.{component_key(name)}"


def whole_file(identity: Identity) -> Condition | None:
    """What an object depends on as a whole, whatever components say; None for nothing."""
    kinds = {
        "CustomResourceDefinition": ".Values.crds.install",
        "Namespace": ".Values.namespace.create",
    }
    return kinds.get(identity[0])


def marked(objects: Mapping[Identity, Object]) -> dict[Identity, Object]:
    """The objects with templates where the installer decides."""
    return {identity: _marked(identity, copy.deepcopy(obj)) for identity, obj in objects.items()}


def installer_variants(base: Mapping[Identity, Object]) -> dict[Condition, dict[Identity, Object]]:
    """Builds that no component makes: definitions that outlive the chart."""
    kept = copy.deepcopy(dict(base))
    for identity, obj in kept.items():
        if identity[0] == "CustomResourceDefinition":
            notes = obj["metadata"].setdefault("annotations", {})
            notes["helm.sh/resource-policy"] = "keep"
    return {KEEP: kept}


def _marked(identity: Identity, obj: Object) -> Object:
    if identity == ("Namespace", NAMESPACE):
        obj["metadata"]["name"] = Template("{{ .Release.Namespace }}")
    if identity == ("ConfigMap", "gpuward-policy"):
        obj["data"]["policy.yaml"] = _POLICY
    program = PROGRAMS.get(identity)
    if program is not None:
        spec = obj["spec"]["template"]["spec"]
        spec["tolerations"] = Template(f"{{{{ toJson .Values.{program}.tolerations }}}}")
        _pulled(spec, program)
    if identity[0] == "PodTemplate":
        # Our own tests run the agent's program.
        _pulled(obj["template"]["spec"], "agent")
    if program == "remediator":
        obj["spec"]["replicas"] = Template("{{ .Values.remediator.replicas }}")
    _walk(obj, lambda key, value: key == "namespace" and value == NAMESPACE)
    return obj


def _pulled(spec: Object, program: str) -> None:
    """Which image a pod's containers run, and what opens its registry."""
    image = f".Values.images.{program}"
    tag = f"{{{{ {image}.tag | default .Chart.AppVersion }}}}"
    for container in spec["containers"]:
        container["image"] = Template(f'"{{{{ {image}.repository }}}}:{tag}"')
    spec["imagePullSecrets"] = Template("{{ toJson .Values.images.pullSecrets }}")


def _walk(value: Any, is_namespace: Callable[[str, Any], bool]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(items):
        if is_namespace(key, each):
            value[key] = Template("{{ .Release.Namespace }}")
        elif isinstance(each, (dict, list)):
            _walk(each, is_namespace)


def default_values(base: Mapping[Identity, Object], switches: Mapping[str, str]) -> str:
    """values.yaml: everything that may be set, with what it does; `switches` name components."""
    tolerations = {
        program: base[identity]["spec"]["template"]["spec"].get("tolerations", [])
        for identity, program in PROGRAMS.items()
    }
    replicas = base["Deployment", "gpuward-remediator"]["spec"]["replicas"]
    listed = "".join(
        f"  # {says}\n  {component_key(name)}: false\n" for name, says in switches.items()
    )
    return f"""\
# What the agent looks at: minimal (kernel log), nvml (runtime class nvidia) or full \
(host's devices).
profile: minimal
# Shadow says what would be done and writes nothing to nodes' specs or pods; Enforce acts.
mode: Shadow
# Every other key of the policy, as docs/reference.md has them, for instance drain or budget.
policy: {{}}
images:
  agent: {{repository: gpuward-agent, tag: ""}}  # no tag: the chart's version
  remediator: {{repository: gpuward-remediator, tag: ""}}
  pullSecrets: []
agent:
  tolerations: {_flow(tolerations["agent"])}
remediator:
  replicas: {replicas}
  tolerations: {_flow(tolerations["remediator"])}
crds:
  install: true
  # They stay when the chart goes, and with them every record; false removes both.
  keep: true
namespace:
  # Helm's --create-namespace makes one without the Pod Security labels that the agent needs.
  create: false
# Each adds exactly its permissions and objects; docs/install.md says what for.
components:
{listed}"""


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).strip()


def schema(switches: Mapping[str, str]) -> dict[str, Any]:
    """values.schema.json: a value that does not exist or is of a wrong type is refused."""
    text, flag = {"type": "string"}, {"type": "boolean"}
    image = _closed({"repository": {**text, "minLength": 1}, "tag": text})
    objects = {"type": "array", "items": {"type": "object"}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_closed(
            {
                "profile": {"enum": ["minimal", *PROFILES]},
                "mode": {"enum": ["Shadow", "Enforce"]},
                "policy": _policy(),
                "images": _closed({"agent": image, "remediator": image, "pullSecrets": objects}),
                "agent": _closed({"tolerations": objects}),
                "remediator": _closed(
                    {"replicas": {"type": "integer", "minimum": 1}, "tolerations": objects}
                ),
                "crds": _closed({"install": flag, "keep": flag}),
                "namespace": _closed({"create": flag}),
                "components": _closed(
                    {
                        component_key(name): {**flag, "description": s}
                        for name, s in switches.items()
                    }
                ),
                "global": {"type": "object"},
            }
        ),
    }


def _policy() -> dict[str, Any]:
    """The policy's own schema, so that a slip in a key or a duration is refused by Helm and not
    found in the remediator's log. `mode` has a place of its own.
    """
    known = {
        key: _bare(each)
        for key, each in policy_schema()["properties"].items()
        if key not in {"apiVersion", "kind", "mode"}
    }
    return _closed({**known, "mode": {"enum": ["set the value mode instead"]}})


def _bare(schema: Any) -> Any:
    """A schema without what only people read; a property may have any of those names."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _bare(each) for name, each in value.items()}
        if key == "properties"
        else _bare(value)
        for key, value in schema.items()
        if key not in {"description", "default", "title"}
    }


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
