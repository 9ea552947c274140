"""Values of the chart: `with_choices` puts them into a build, `switches` are the conditions under
which objects differ, `default_values` and `schema` describe them to Helm. Pure.
"""

import copy
import json
import textwrap
from collections.abc import Mapping
from typing import Any, Final

import yaml

from hack.chart.emit import PROFILES, Identity, Object, Template, WhenSet
from hack.chart.merge import Condition
from rules.policy.components import ANY, NEEDS, Need
from rules.policy.policy import Policy, effective_view
from rules.policy.reader import policy_schema
from rules.repair.component import component_key

NAMESPACE: Final = "gpuward"
KEEP: Final = ".Values.crds.keep"
PROGRAMS: Final = {
    ("DaemonSet", "gpuward-agent"): "agent",
    ("Deployment", "gpuward-remediator"): "remediator",
}
MONITORS: Final = {
    "PodMonitor": "agent",
    "ServiceMonitor": "remediator",
    "PrometheusRule": "alerts",
}
"""Return the values section with the scrape settings of this kind."""

CONDITIONAL_FILES: Final[Mapping[str, Condition]] = {
    "CustomResourceDefinition": ".Values.crds.install",
    "Namespace": ".Values.namespace.create",
}
"""What objects of these kinds depend on, whatever components say."""

DOCS: Final = "http://localhost:9414/"
"""Where `runbook_url` of each alert leads in rules/alerts."""

_LACKS: Final = "without it what the policy asks for does not happen"


def _read(path: tuple[str, ...], start: str = "$policy") -> str:
    """A value of the policy; sections that are left out are none."""
    for key in path:
        start = f"({start}).{key}"
    return f"({start})"


def _is_off(path: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Whether another value makes it needless; by default it is what the policy's default is."""
    default: Any = effective_view(Policy())
    for key in path:
        default = default.get(key) if isinstance(default, dict) else None
    text = " ".join(f'"{value}"' for value in values)
    return f'has (toString ({_read(path)} | default "{default}")) (list {text})'


def _refused(need: Need) -> str:
    """Refuses a policy whose value asks for a component that is off."""
    start, opened, closed, key = "$policy", "", "", ".".join(need.path)
    path, named = need.path, ""
    if ANY in path:
        at = path.index(ANY)
        opened = f"{{{{- range $key, $each := {_read(path[:at])} }}}}\n"
        start, path, closed = "$each", path[at + 1 :], "{{- end }}\n"
        key, named = key.replace(ANY, "%s"), "$key "
    value = _read(path, start)
    pairs = " ".join(f'"{v}" "{component_key(c)}"' for v, c in need.components.items())
    always = need.components.get(ANY)
    asks = f'"{component_key(always)}"' if always else f"get (dict {pairs}) (toString {value})"
    found = f"{{{{- $needs := {asks} }}}}\n"
    text, shown = f"policy.{key}: %s needs", f"(toString {value}) "
    offs = "".join(f" (not ({_is_off(place, values)}))" for place, values in need.unless)
    return (
        f"{opened}{found}"
        f"{{{{- if and $needs (not (get $.Values.components $needs)){offs} }}}}\n"
        f'{{{{- fail (printf "{text} components.%s: true; {_LACKS}" {named}{shown}$needs) }}}}\n'
        f"{{{{- end }}}}\n{closed}"
    )


_KIND: Final = "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\n"
_POLICY: Final = Template(
    f"{_KIND}mode: {{{{ .Values.mode }}}}\n"
    "{{- with .Values.policy }}\n{{- toYaml . | nindent 4 }}\n{{- end }}\n"
    "{{- $policies := list .Values.policy }}\n{{- range $name, $pool := .Values.pools }}\n"
    "{{- $policies = append $policies (mergeOverwrite (deepCopy $.Values.policy) $pool) }}\n"
    f"---\n{_KIND}metadata: {{name: {{{{ $name }}}}}}\n{{{{- toYaml $pool | nindent 4 }}}}\n"
    "{{- end }}\n{{- range $policy := $policies }}\n"
    + "".join(map(_refused, NEEDS))
    + "{{- end }}\n"
)


def with_choices(objects: Mapping[Identity, Object]) -> dict[Identity, Object]:
    """The objects with templates where the installer decides."""
    return {key: _with_choices(key, copy.deepcopy(obj)) for key, obj in objects.items()}


def installer_variants(base: Mapping[Identity, Object]) -> dict[Condition, dict[Identity, Object]]:
    """Builds that no component makes: definitions that outlive the chart."""
    kept = copy.deepcopy(dict(base))
    for (kind, _), obj in kept.items():
        if kind == "CustomResourceDefinition":
            obj["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    return {KEEP: kept}


def _with_choices(identity: Identity, obj: Object) -> Object:
    if identity == ("Namespace", NAMESPACE):
        obj["metadata"]["name"] = Template("{{ .Release.Namespace }}")
    if identity == ("ConfigMap", "gpuward-policy"):
        obj["data"]["policy.yaml"] = _POLICY
    program = PROGRAMS.get(identity)
    if program is not None:
        _program(obj["spec"]["template"], program)
    if identity[0] == "PodTemplate":
        # Our own tests run the agent's program.
        _pulled(obj["template"]["spec"], "agent")
    if program == "remediator":
        obj["spec"]["replicas"] = Template("{{ .Values.remediator.replicas }}")
    own = MONITORS.get(identity[0])
    if own == "alerts":
        _labelled(obj, ".Values.alerts.labels")
        _documented(obj)
    elif own is not None:
        _labelled(obj, f".Values.{own}.monitor.labels")
        for endpoint in obj["spec"].get("podMetricsEndpoints") or obj["spec"]["endpoints"]:
            endpoint["interval"] = WhenSet(f".Values.{own}.monitor.interval")
    else:
        _labelled(obj)
    _place(obj)
    return obj


def _program(pod: Object, program: str) -> None:
    """What an installer may set of the pods of `program`; what the profile and the components
    need stays, except where a value replaces it by name.
    """
    values, spec = f".Values.{program}", pod["spec"]
    container = spec["containers"][0]
    _labelled(pod, f"{values}.podLabels")
    notes = pod["metadata"].get("annotations", {})
    pod["metadata"]["annotations"] = WhenSet(f"merge {_dict(notes)} {values}.podAnnotations")
    spec["tolerations"] = WhenSet(f"{values}.tolerations")
    spec["nodeSelector"] = WhenSet(f"{values}.nodeSelector")
    spec["affinity"] = WhenSet(f"{values}.affinity")
    name = spec["priorityClassName"]
    spec["priorityClassName"] = Template(
        f'{{{{ {values}.priorityClassName | default "{name}" }}}}'
    )
    resources = f"{_dict(container['resources'])} {values}.resources"
    container["resources"] = WhenSet(f"mergeOverwrite {resources}")
    container.setdefault("env", []).append(WhenSet(f"{values}.extraEnv"))
    arguments = f"{values}.extraArgs"
    if "args" in container:
        container["args"].append(WhenSet(arguments))
    else:
        container["args"] = WhenSet(arguments)
    _pulled(spec, program)


def _labelled(obj: Object, *more: str) -> None:
    """Add `commonLabels` and the labels of the values `more`; a label of gpuward, which selectors
    use, is never replaced.
    """
    ours = _dict(obj["metadata"].get("labels", {}))
    obj["metadata"]["labels"] = WhenSet(" ".join(("merge", ours, *more, ".Values.commonLabels")))


def _documented(rules: Object) -> None:
    """Let the installer choose where the runbooks are read."""
    for group in rules["spec"]["groups"]:
        for notes in (rule.get("annotations", {}) for rule in group["rules"]):
            if url := notes.get("runbook_url"):
                page = url.removeprefix(DOCS)
                notes["runbook_url"] = Template(f'"{{{{ $.Values.alerts.docs }}}}{page}"')


def _dict(value: Object) -> str:
    """A template expression for `value`."""
    return f"(fromJson `{json.dumps(value)}`)"


def _pulled(spec: Object, program: str) -> None:
    """Set the image of the containers that run `program`, and what opens its registry."""
    image = f".Values.images.{program}"
    tag = f"{{{{ {image}.tag | default .Chart.AppVersion }}}}"
    for container in spec["containers"]:
        if not container["image"].startswith(f"gpuward-{program}:"):
            continue
        container["image"] = Template(f'"{{{{ {image}.repository }}}}:{tag}"')
    secrets = f"concat .Values.images.pullSecrets .Values.{program}.imagePullSecrets"
    spec["imagePullSecrets"] = WhenSet(secrets)


def _place(value: Any) -> None:
    """Put the release's namespace in place of gpuward, wherever it is named."""
    for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if (key, each) == ("namespace", NAMESPACE):
            value[key] = Template("{{ .Release.Namespace }}")
        elif isinstance(each, dict | list):
            _place(each)


def default_values(base: Mapping[Identity, Object], switches: Mapping[str, str]) -> str:
    """values.yaml: everything that may be set, with what it does; `switches` name components."""
    pods = {
        program: base[identity]["spec"]["template"]["spec"]
        for identity, program in PROGRAMS.items()
    }
    replicas = base["Deployment", "gpuward-remediator"]["spec"]["replicas"]
    listed = "".join(
        f"  # {description}\n  {component_key(name)}: false\n"
        for name, description in switches.items()
    )
    return f"""\
# Data sources of the agent: minimal (kernel log), nvml (runtime class nvidia) or full \
(host's devices).
profile: minimal
# Shadow only reports what would be done; Enforce quarantines, drains and repairs nodes.
mode: Shadow
# All other keys of the policy, such as drain or budget; see docs/reference.md.
policy: {{}}
# Policies of pools by name: a nodeSelector and what differs; see docs/policy.md.
pools: {{}}
# Labels for all objects of the chart and for all pods.
commonLabels: {{}}
images:
  agent: {{repository: gpuward-agent, tag: ""}}  # empty tag: the chart's version
  remediator: {{repository: gpuward-remediator, tag: ""}}
  pullSecrets: []
agent:
{_pod_values(pods["agent"])}remediator:
  replicas: {replicas}
{_pod_values(pods["remediator"])}alerts:
  # Labels of the PrometheusRule, such as those that your Prometheus selects.
  labels: {{}}
  # URL of the runbooks, with a slash at the end. The default is the remediator's page through
  # kubectl port-forward deploy/gpuward-remediator 9414.
  docs: {DOCS}
crds:
  install: true
  # Keep the CRDs and all their objects after helm uninstall.
  keep: true
namespace:
  # Create the namespace with the Pod Security labels that the agent needs, which
  # helm --create-namespace does not set.
  create: false
# Each component adds its permissions and objects; see docs/install.md.
components:
{listed}"""


_MAP: Final = {"type": "object"}
_LABELS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_TEXT: Final = {"type": "string"}

_POD: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "podLabels": (_LABELS, "Labels for the pods."),
    "podAnnotations": (_LABELS, "Annotations for the pods."),
    "resources": (_MAP, "Requests and limits; missing keys use the profile's values."),
    "nodeSelector": (
        _LABELS,
        "Labels that a node needs to get a pod, in addition to the affinity.",
    ),
    "tolerations": (_OBJECTS, "Tolerations, in place of these."),
    "affinity": (_MAP, "Affinity; a list replaces the list of the same name."),
    "imagePullSecrets": (_OBJECTS, "Pull secrets, in addition to images.pullSecrets."),
    "priorityClassName": (_TEXT, "A PriorityClass, in place of the chart's own."),
    "extraEnv": (_OBJECTS, "More environment variables; to change a setting use extraArgs."),
    "extraArgs": (_TEXTS, "More flags (docs/reference.md); a flag overrides its variable."),
}
"""What may be set of a program's pods: schema and description."""
_MONITOR: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "labels": (_LABELS, "Labels by which your Prometheus selects monitors."),
    "interval": (
        {**_TEXT, "pattern": "^([0-9]+(ms|[smhdwy]))*$"},
        "How often to scrape, for instance 30s; empty: Prometheus' own interval.",
    ),
}
"""What may be set of a program's PodMonitor or ServiceMonitor."""


def _pod_values(spec: Object) -> str:
    """The defaults of one program's section."""
    empty = {"object": "{}", "array": "[]", "string": '""'}
    text = ""
    for key, (kind, description) in _POD.items():
        text += f"  # {description}\n"
        if key == "affinity":
            shown = yaml.safe_dump(spec[key], default_flow_style=None, width=200)
            text += f"  {key}:\n" + textwrap.indent(shown, "    ")
        else:
            shown = empty[kind["type"]]
            if key == "tolerations":
                shown = yaml.safe_dump(spec[key], default_flow_style=True, width=1000).strip()
            text += f"  {key}: {shown}\n"
    text += "  # The PodMonitor or ServiceMonitor of component prometheusOperator.\n  monitor:\n"
    for key, (kind, description) in _MONITOR.items():
        text += f"    # {description}\n    {key}: {empty[kind['type']]}\n"
    return text


def defaults_template(values: str) -> str:
    """_defaults.tpl: fills in what an installer left empty. `key:` with nothing below it removes
    the chart's default, and `--reuse-values` keeps the sections of an older chart.
    """
    return f"""\
{{{{- define "gpuward.defaults" }}}}
{{{{- include "gpuward.fill" (dict "values" .Values "defaults" (fromJson \
`{json.dumps(yaml.safe_load(values))}`)) }}}}
{{{{- end }}}}

{{{{- /* An affinity's parts can be removed: only the sections of values.yaml are filled in. */}}}}
{{{{- define "gpuward.fill" }}}}
{{{{- range $key, $default := .defaults }}}}
{{{{- $given := index $.values $key }}}}
{{{{- if kindIs "invalid" $given }}}}
{{{{- $_ := set $.values $key $default }}}}
{{{{- else if and (kindIs "map" $default) (ne $key "affinity") }}}}
{{{{- include "gpuward.fill" (dict "values" $given "defaults" $default) }}}}
{{{{- end }}}}
{{{{- end }}}}
{{{{- end }}}}
"""


def schema(switches: Mapping[str, str]) -> dict[str, Any]:
    """values.schema.json: a value that does not exist or is of a wrong type is refused."""
    flag = {"type": "boolean"}
    image = _closed({"repository": {**_TEXT, "minLength": 1}, "tag": _TEXT})
    monitor, pod = (
        {key: {**kind, "description": description} for key, (kind, description) in keys.items()}
        for keys in (_MONITOR, _POD)
    )
    pods = {**pod, "monitor": _closed(monitor)}
    labels = {**_LABELS, "description": "Labels for every object and for the pods."}
    components = {
        component_key(name): {**flag, "description": description}
        for name, description in switches.items()
    }
    rule = {
        "labels": {**_LABELS, "description": "Labels of the PrometheusRule."},
        "docs": {**_TEXT, "pattern": "/$", "description": "URL of the runbooks."},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_closed(
            {
                "profile": {"enum": ["minimal", *PROFILES]},
                "mode": {"enum": ["Shadow", "Enforce"]},
                "policy": _policy(),
                "pools": {"type": "object", "additionalProperties": _policy(pool=True)},
                "commonLabels": labels,
                "images": _closed({"agent": image, "remediator": image, "pullSecrets": _OBJECTS}),
                "agent": _closed(pods),
                "remediator": _closed({"replicas": {"type": "integer", "minimum": 1}, **pods}),
                "alerts": _closed(rule),
                "crds": _closed({"install": flag, "keep": flag}),
                "namespace": _closed({"create": flag}),
                "components": _closed(components),
                "global": {"type": "object"},
            }
        ),
    }


def _policy(*, pool: bool = False) -> dict[str, Any]:
    """The policy's own schema, so that a slip in a key or a duration is refused by Helm and not
    found in the remediator's log. `mode` has a place of its own, except in a pool.
    """
    away = {"apiVersion", "kind", "metadata", *(("budget", "limits") if pool else ())}
    found = policy_schema()["properties"].items()
    mode = {} if pool else {"mode": {"enum": ["set the value mode instead"]}}
    return _closed({**{key: _bare(each) for key, each in found if key not in away}, **mode})


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
