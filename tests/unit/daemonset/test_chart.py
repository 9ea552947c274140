"""The Helm chart renders the same objects as kustomize for all components, and rejects invalid
values.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.chart.emit import components
from rules.policy.policy import Policy
from rules.policy.pools import load_policies
from rules.repair.component import component_key
from tests.support.cluster.manifest_builds import REPOSITORY, Object, build

CHART = REPOSITORY / "daemonset" / "chart"
SWITCHES = components()
CHOICES: list[Any] = [
    ("minimal", ()),
    ("full", tuple(SWITCHES)),
    *(pytest.param("minimal", (name,), marks=pytest.mark.slow, id=name) for name in SWITCHES),
    *(
        pytest.param(profile, chosen, marks=pytest.mark.slow)
        for profile in ("minimal", "nvml", "full")
        for chosen in ((), tuple(SWITCHES[::2]), tuple(SWITCHES[1::2]), tuple(SWITCHES))
    ),
]
pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["helm", "template", "gpuward", str(CHART), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def paths(value: dict[str, Any], head: str = "") -> list[str]:
    """The path of every section and key of `value`."""
    found: list[str] = []
    for key, each in value.items():
        found.append(head + key)
        if isinstance(each, dict):
            found += paths(each, f"{head}{key}.")
    return found


VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SECTIONS = [key for key, value in VALUES.items() if isinstance(value, dict)]
NESTED = [path for path in paths(VALUES) if path not in SECTIONS and ".affinity." not in path]
PATCH_POD_STATUS = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
LABELS = {"release": "kube-prometheus-stack", "app.kubernetes.io/name": "somebody"}


def rendered(values: dict[str, Any], folder: Path, namespace: str = "gpuward") -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))
    done = helm("--namespace", namespace, "--values", str(file))
    assert done.returncode == 0, done.stderr
    objects = [obj for obj in yaml.load_all(done.stdout, yaml.CSafeLoader) if obj]
    return sorted(objects, key=lambda o: (o["kind"], o["metadata"]["name"]))


def compared(obj: Object) -> Object:
    """An object without order of sets, layout of texts and Helm's labels, which may differ."""
    notes = obj["metadata"].get("annotations", {})
    notes.pop("helm.sh/resource-policy", None)
    if not notes:
        obj["metadata"].pop("annotations", None)
    if obj["kind"] == "ConfigMap":
        obj["data"] = {key: yaml.safe_load(text) for key, text in obj["data"].items()}
    if "rules" in obj:
        obj["rules"] = sorted(obj["rules"], key=json.dumps)
    template = obj.get("template") or obj.get("spec", {}).get("template", {})
    pod = template.get("spec", {})
    for container in pod.get("containers", ()):
        container["env"] = sorted(container.get("env", ()), key=lambda e: str(e["name"]))
        mounts = container.get("volumeMounts", ())
        container["volumeMounts"] = sorted(mounts, key=lambda m: str(m["mountPath"]))
    if pod:
        pod["volumes"] = sorted(pod.get("volumes", ()), key=lambda v: str(v["name"]))
    return obj


@pytest.mark.parametrize(("profile", "chosen"), CHOICES)
def test_chart_and_kustomize_build_the_same_objects(
    profile: str, chosen: tuple[str, ...], tmp_path: Path
) -> None:
    values = {
        "profile": profile,
        "namespace": {"create": True},
        "components": {component_key(name): True for name in chosen},
    }
    listed = chosen if profile == "minimal" else (profile, *chosen)
    wanted = sorted(build(*listed), key=lambda o: (o["kind"], o["metadata"]["name"]))
    for obj in wanted:
        # Components force and notice grant the same, and kustomize repeats the rule.
        if obj.get("rules", []).count(PATCH_POD_STATUS) > 1:
            obj["rules"].remove(PATCH_POD_STATUS)
    found = rendered(values, tmp_path)
    names = [[(o["kind"], o["metadata"]["name"]) for o in objects] for objects in (found, wanted)]
    assert names[0] == names[1]
    for ours, theirs in zip(found, wanted, strict=True):
        assert compared(ours) == compared(theirs)


def test_values_reach_the_objects(tmp_path: Path) -> None:
    values = {
        "mode": "Enforce",
        "policy": {"drain": {"fatalTimeout": "2h"}},
        "images": {
            "agent": {"repository": "registry.example/a", "tag": "7"},
            "pullSecrets": [{"name": "registry"}],
        },
        "remediator": {"replicas": 3, "tolerations": []},
        "crds": {"keep": False},
        "components": {"validate": True},
    }
    objects = {
        (o["kind"], o["metadata"]["name"]): o for o in rendered(values, tmp_path, "gpu-health")
    }
    policy = yaml.safe_load(objects["ConfigMap", "gpuward-policy"]["data"]["policy.yaml"])
    assert (policy["mode"], policy["drain"]) == ("Enforce", {"fatalTimeout": "2h"})
    agent = objects["DaemonSet", "gpuward-agent"]
    assert agent["metadata"]["namespace"] == "gpu-health"
    pod = agent["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/a:7"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    tested = objects["PodTemplate", "gpuward-validate"]["template"]["spec"]
    assert tested["containers"][0]["image"].startswith("nvcr.io/"), "a test of the site's own"
    assert tested["imagePullSecrets"] == [{"name": "registry"}]
    assert objects["Deployment", "gpuward-remediator"]["spec"]["replicas"] == 3
    binding = objects["ClusterRoleBinding", "gpuward-remediator"]
    assert {subject["namespace"] for subject in binding["subjects"]} == {"gpu-health"}
    assert ("Namespace", "gpuward") not in objects
    definition = objects["CustomResourceDefinition", "gpuquarantines.gpuward.io"]
    assert "helm.sh/resource-policy" not in definition["metadata"].get("annotations", {})


def test_crds_stay_after_helm_uninstall_by_default(tmp_path: Path) -> None:
    kept = [o for o in rendered({}, tmp_path) if o["kind"] == "CustomResourceDefinition"]
    assert kept
    assert {o["metadata"]["annotations"]["helm.sh/resource-policy"] for o in kept} == {"keep"}
    without = rendered({"crds": {"install": False}}, tmp_path)
    assert not [o for o in without if o["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    "wrong",
    [
        "profile=everything",
        "mode=enforce",
        "components.forced=true",
        "policy.mode=Enforce",
        "policy.budgt=2",
        "policy.release.healthyFor=5min",
        "policy.budget.maxUnavailable.percent=500",
        "policy.repair.attempts=0",
        "remediator.replicas=0",
    ],
)
def test_an_invalid_value_is_denied(wrong: str) -> None:
    done = helm("--set", wrong)
    assert done.returncode != 0
    assert wrong.partition("=")[0].rpartition(".")[2] in done.stderr


@pytest.mark.parametrize(
    ("asks", "component"),
    [
        ("policy.repair.steps.RestartNode.adapter=NodeConditions", "repairNodeConditions"),
        ("policy.repair.steps.ResetGPU.adapter=ResetGPUJob", "repairResetGpuJob"),
        ("policy.drain.onTimeout=Force", "force"),
        ("policy.drain.notice=10m", "notice"),
        ("policy.drain.nodeConditions=true", "lifecycleConditions"),
        ("policy.validate.provider=Job", "validate"),
        ("policy.validate.newNodes=true", "validate"),
    ],
)
def test_a_policy_that_needs_a_disabled_component_is_rejected(asks: str, component: str) -> None:
    """Helm would install it, and the API server would deny each request afterwards."""
    asked = ("--set", "policy.repair.mode=Ask", "--set", asks)
    done = helm(*asked)
    assert done.returncode != 0
    assert f"needs components.{component}: true" in done.stderr
    assert helm(*asked, "--set", f"components.{component}=true").returncode == 0


def test_pools_of_the_values_are_policies_by_name(tmp_path: Path) -> None:
    trial = {"nodeSelector": "team=t", "mode": "Shadow", "drain": {"onTimeout": "Force"}}
    values = {"mode": "Enforce", "policy": {"isolate": "Node"}, "pools": {"trial": trial}}
    (tmp_path / "pools.yaml").write_text(json.dumps(values))
    done = helm("--values", str(tmp_path / "pools.yaml"))
    assert "needs components.force: true" in done.stderr

    objects = rendered({**values, "components": {"force": True}}, tmp_path)
    (found,) = (o for o in objects if o["metadata"]["name"] == "gpuward-policy")
    policy = load_policies([*yaml.safe_load_all(found["data"]["policy.yaml"])])
    assert isinstance(policy, Policy)
    assert [(one.name, one.mode) for one in policy.policies] == [
        ("default", "Enforce"), ("trial", "Shadow"),
    ]  # fmt: skip
    assert policy.policies[1].drain.on_timeout == "Force"


@pytest.mark.parametrize(
    "path", [*SECTIONS, *(pytest.param(path, marks=pytest.mark.slow) for path in NESTED)]
)
def test_an_empty_section_or_key_of_values_is_its_default(path: str) -> None:
    """null removes the chart's own default before the templates see it."""
    plain, emptied = helm(), helm("--set-json", f"{path}=null")
    assert emptied.returncode == 0, emptied.stderr
    assert emptied.stdout == plain.stdout


def test_values_of_an_older_chart_without_most_sections_render(tmp_path: Path) -> None:
    """As in `helm upgrade --reuse-values`: new templates with the values of an older chart."""
    chart = tmp_path / "gpuward"
    shutil.copytree(CHART, chart)
    (chart / "values.yaml").write_text("agent: {tolerations: []}\n")
    done = subprocess.run(
        ["helm", "template", "gpuward", str(chart)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_usual_keys_of_a_chart_reach_both_programs(tmp_path: Path) -> None:
    usual: dict[str, Any] = {
        "podLabels": {"team": "gpu", "app.kubernetes.io/component": "other"},
        "podAnnotations": {"note": "1"},
        "resources": {"limits": {"memory": "2Gi"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"x": []}, "nodeAffinity": None},
        "imagePullSecrets": [{"name": "own"}],
        "priorityClassName": "system-node-critical",
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraArgs": ["--log-level=debug"],
        "monitor": {"labels": {"by": "team"}, "interval": "15s"},
    }
    values = {
        "profile": "nvml",
        "commonLabels": LABELS,
        "images": {"pullSecrets": [{"name": "all"}]},
        "agent": usual,
        "remediator": usual,
        "alerts": {"labels": {"role": "alerts"}, "docs": "https://docs.example.com/"},
        "components": {"prometheusOperator": True, "validate": True, "preempting": True},
    }
    objects = {(o["kind"], o["metadata"]["name"]): o for o in rendered(values, tmp_path)}
    assert {o["metadata"]["labels"]["release"] for o in objects.values()} == {LABELS["release"]}
    for kind, program in (("DaemonSet", "agent"), ("Deployment", "remediator")):
        workload = objects[kind, f"gpuward-{program}"]["spec"]
        pod = workload["template"]
        labels = pod["metadata"]["labels"]
        assert workload["selector"]["matchLabels"].items() <= labels.items()
        assert (labels["team"], labels["release"]) == ("gpu", LABELS["release"])
        assert pod["metadata"]["annotations"]["note"] == "1"
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        assert container["resources"]["limits"] == {"memory": "2Gi"}
        assert container["resources"]["requests"]
        assert container["env"].count({"name": "TZ", "value": "UTC"}) == 1
        assert container["args"][-1] == "--log-level=debug"
        assert spec["affinity"] == {"podAntiAffinity": {"x": []}}
        assert spec["imagePullSecrets"] == [{"name": "all"}, {"name": "own"}]
        for key in ("nodeSelector", "tolerations", "priorityClassName"):
            assert spec[key] == usual[key]
    for kind, name in (("PodMonitor", "agent"), ("ServiceMonitor", "remediator")):
        monitor = objects[kind, f"gpuward-{name}"]
        assert monitor["metadata"]["labels"]["by"] == "team"
        (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
        assert endpoint["interval"] == "15s"
    assert objects["PrometheusRule", "gpuward"]["metadata"]["labels"]["role"] == "alerts"
    groups = objects["PrometheusRule", "gpuward"]["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert {rule["annotations"]["runbook_url"] for rule in alerts} == {
        f"https://docs.example.com/docs/runbooks/{rule['alert']}.md" for rule in alerts
    }
