"""The pods of base: valid flags, probes on the right ports, safe updates; and the components in
docs/install.md.
"""

import argparse
import re
from typing import Any

import pytest
import yaml

from agent.daemon.loop import ALIVE_WITHIN_S
from agent.settings import add_options, settings_of
from hack.sim.manifests import read_manifests
from remediator.kube.resources import AGENT_SELECTOR
from remediator.settings import make_parser, run_settings
from rules.api.names import TAINT_QUARANTINE
from rules.api.requests import DEPLOYMENT
from tests.support.cluster.manifest_builds import (
    COMPONENTS,
    DAEMONSET,
    OTHER_COMPONENTS,
    PROOF_COMPONENTS,
    REPAIR_COMPONENTS,
    REPOSITORY,
    build,
    environment,
)

OBJECTS = read_manifests(DAEMONSET / "base")


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [o for o in OBJECTS if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


AGENT = one("DaemonSet", "gpuward-agent")["spec"]
REMEDIATOR = one("Deployment", DEPLOYMENT)["spec"]
POD_VALUES = {
    "metadata.name": "pod-1",
    "metadata.namespace": "gpuward",
    "metadata.uid": "uid-1",
    "spec.nodeName": "node-1",
}


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["template"]["spec"]


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod(spec)["containers"]
    return found


def variables(spec: dict[str, Any]) -> dict[str, str]:
    """Return the environment that the kubelet sets."""
    return {
        e["name"]: e.get("value") or POD_VALUES[e["valueFrom"]["fieldRef"]["fieldPath"]]
        for e in container(spec)["env"]
    }


def agent_settings(environ: dict[str, str]) -> Any:
    parser = argparse.ArgumentParser()
    add_options(parser, environ, collectors_only=False)
    known = set(re.findall(r"GPUWARD_\w+", parser.format_help()))
    assert {name for name in environ if name.startswith("GPUWARD_")} <= known
    return settings_of(parser.parse_args([]), environ)


def test_the_agent_starts_with_settings_it_has() -> None:
    environ = variables(AGENT)
    settings = agent_settings(environ)
    assert (settings.kmsg, settings.nvml, settings.dcgm) == ("syslog", "off", "off")
    assert settings.node_name == "node-1"
    assert container(AGENT)["command"] == ["gpuward-agent", "run"]


@pytest.mark.parametrize("profile", ["nvml", "full"])
def test_a_component_sets_only_variables_the_agent_has(profile: str) -> None:
    environ = environment(build(profile, "gpu-operator"))
    settings = agent_settings({**variables(AGENT), **environ})
    assert settings.nvml == "real"
    assert settings.dcgm.startswith("http://")


def test_the_remediator_starts_with_flags_it_has() -> None:
    environ = variables(REMEDIATOR)
    found = container(REMEDIATOR)
    command: list[str] = [*found["command"], *found["args"]]
    program, *arguments = command
    assert program == "gpuward-remediator"
    settings = run_settings(make_parser(environ).parse_args(arguments), environ)
    (mount,) = found["volumeMounts"]
    assert settings.policy == f"{mount['mountPath']}/policy.yaml"
    assert (settings.namespace, settings.identity) == ("gpuward", "pod-1")
    assert settings.node_name == "node-1"
    assert "policy.yaml" in one("ConfigMap", "gpuward-policy")["data"]


@pytest.mark.parametrize(
    ("spec", "listens"),
    [
        pytest.param(AGENT, {agent_settings({}).listen}, id="agent"),
        pytest.param(
            REMEDIATOR,
            {
                run_settings(make_parser({}).parse_args(["run"]), {}).listen,
                run_settings(make_parser({}).parse_args(["run"]), {}).page_listen,
            },
            id="remediator",
        ),
    ],
)
def test_ports_and_probes_are_where_the_program_listens(
    spec: dict[str, Any], listens: set[str]
) -> None:
    found = container(spec)
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    assert {f":{number}" for number in ports.values()} == listens
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert found[probe]["httpGet"]["path"] == path
        assert found[probe]["httpGet"]["port"] in ports


def test_the_remediator_finds_the_agents_pods_by_their_labels() -> None:
    labels = AGENT["template"]["metadata"]["labels"]
    assert dict(pair.split("=") for pair in AGENT_SELECTOR.split(",")).items() <= labels.items()


def test_the_operators_pods_tolerate_the_quarantine_taint() -> None:
    patch = DAEMONSET / "components" / "gpu-operator" / "cluster-policy-patch.yaml"
    tolerations = yaml.safe_load(patch.read_text())["spec"]["daemonsets"]["tolerations"]
    assert {one["key"] for one in tolerations} == {"nvidia.com/gpu", TAINT_QUARANTINE}


def test_a_hung_agent_is_replaced_in_about_a_minute_and_a_half() -> None:
    probe = container(AGENT)["livenessProbe"]
    failing_s = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert failing_s + probe["terminationGracePeriodSeconds"] <= 100
    # A busy agent gets four probes and has a minute to answer one.
    assert failing_s - probe["periodSeconds"] >= 60
    # A stuck main loop answers 503 early enough to be replaced soon.
    assert ALIVE_WITHIN_S <= 30


def test_training_pods_are_not_preempted_by_default() -> None:
    def policies(*components: str) -> set[str]:
        objects = build(*components)
        named = {
            o["spec"]["template"]["spec"]["priorityClassName"]
            for o in objects
            if o["kind"] in {"DaemonSet", "Deployment"}
        }
        classes = [o for o in objects if o["kind"] == "PriorityClass"]
        return {o["preemptionPolicy"] for o in classes if o["metadata"]["name"] in named}

    assert policies() == {"Never"}
    assert policies("preempting") == {"PreemptLowerPriority"}


def test_a_priority_class_name_has_fixed_fields() -> None:
    """The fields of a PriorityClass are immutable: a change of `preempting`, or an upgrade over a
    version with other fields, ended with an error.
    """
    builds = (build(), build("preempting"), build("validate"))
    seen: dict[str, dict[str, Any]] = {}
    for made in (o for objects in builds for o in objects if o["kind"] == "PriorityClass"):
        assert seen.setdefault(made["metadata"]["name"], made) == made
    # Names of older versions are not used again, because their classes cannot be changed.
    assert not {"gpuward-agent", "gpuward-remediator"} & seen.keys()


def test_a_second_apply_reports_unchanged() -> None:
    """kubectl compares with the stored object: a default that the server adds to a list, or a
    false that it omits, is reported as "configured" at every apply.
    """
    for made in build("validate", "repair-cluster-api", "repair-reset-gpu-job"):
        if made["kind"] == "ValidatingAdmissionPolicy":
            rules = made["spec"]["matchConstraints"]["resourceRules"]
            assert {rule.get("scope") for rule in rules} == {"*"}, made["metadata"]["name"]
        if made["kind"] == "PriorityClass":
            assert "globalDefault" not in made


INSTALL = (REPOSITORY / "docs" / "install.md").read_text()
SECURITY = (REPOSITORY / "SECURITY.md").read_text()


def blocks(text: str) -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_every_component_is_described_and_exists() -> None:
    _, _, table = INSTALL.partition("\n| component |")
    rows = table.partition("\n\n")[0]
    described = set(re.findall(r"^\| `([a-z0-9-]+)` \|", rows, re.MULTILINE))
    there = {path.parent.name for path in DAEMONSET.glob("components/*/kustomization.yaml")}
    ours = {*COMPONENTS, *OTHER_COMPONENTS, *PROOF_COMPONENTS, *REPAIR_COMPONENTS}
    assert described == there == ours


def test_the_openshift_constraints_match_profile_minimal() -> None:
    (constraints,) = [b for b in blocks(INSTALL) if "allowedCapabilities" in b]
    objects = read_manifests(DAEMONSET / "base")
    (agent,) = [o for o in objects if o["kind"] == "DaemonSet"]
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    asked = container["securityContext"]
    assert constraints["allowedCapabilities"] == asked["capabilities"]["add"]
    assert constraints["runAsUser"] == {"type": "MustRunAs", "uid": asked["runAsUser"]}
    assert constraints["readOnlyRootFilesystem"] is asked["readOnlyRootFilesystem"]
    assert not any(value is True for key, value in constraints.items() if key.startswith("allow"))
