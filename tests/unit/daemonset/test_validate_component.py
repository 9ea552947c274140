"""Component validate: admission allows the installed test, and the scripts of the shipped tests
convert the output of their tools to a result.
"""

import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

pytest.importorskip("celpy", reason="cel-python is not installed")

from hack.sim.manifests import read_manifests
from remediator.settings import make_parser, run_settings
from rules.api.nodes import NodeView
from rules.api.pods import LABEL_COMPONENT, LABEL_NAME
from rules.api.repair_writes import SetValidated
from rules.api.requests import request
from rules.policy.policy import VALIDATE_TEMPLATE
from rules.session.validation.jobs import (
    NEW_NODE_PRIORITY,
    job_of,
    new_node_job_of,
)
from rules.session.validation.result import Assessment, read
from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import REMEDIATOR, node
from tests.support.cluster.manifest_builds import DAEMONSET, build, one

FOLDER = DAEMONSET / "components" / "validate"
OBJECTS = read_manifests(FOLDER)
ALL_CAPABILITIES = {"capabilities": {"add": ["ALL"]}}
SHIPPED = [o for o in OBJECTS if o["kind"] == "ValidatingAdmissionPolicy"]
(TEMPLATE,) = [o for o in OBJECTS if o["kind"] == "PodTemplate"]


def job(**changes: Any) -> dict[str, Any]:
    made = job_of(
        copy.deepcopy(TEMPLATE["template"]),
        name="gpu-1-abc-validate-1",
        node="gpu-1",
        session="gpu-1-abc",
        session_uid="uid-1",
        timeout_s=1800,
    )
    made["spec"]["template"]["spec"] |= changes
    return made


def refused(made: dict[str, Any]) -> list[str]:
    write = Write(
        user=REMEDIATOR, resource="jobs", group="batch", operation="CREATE", new=made, old=None
    )
    return refusals(write, SHIPPED)


def test_the_remediator_may_create_the_builtin_test() -> None:
    assert TEMPLATE["metadata"]["name"] == VALIDATE_TEMPLATE
    assert refused(job()) == []
    labels = TEMPLATE["template"]["metadata"]["labels"]
    assert labels == {LABEL_NAME: "gpuward", LABEL_COMPONENT: "validate"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodeName": ""}, "on one named node"),
        ({"serviceAccountName": "gpuward-remediator"}, "only as service account"),
        ({"automountServiceAccountToken": True}, "without its token"),
        ({"hostPID": True}, "of the host"),
        ({"hostNetwork": True}, "of the host"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "of the host"),
        ({"containers": [{"name": "x", "securityContext": {"privileged": True}}]}, "of the host"),
        ({"initContainers": [{"name": "x", "securityContext": ALL_CAPABILITIES}]}, "of the host"),
    ],
)  # fmt: skip
def test_all_other_writes_are_denied(changes: dict[str, Any], why: str) -> None:
    (denial,) = refused(job(**changes))
    assert why in denial


def test_the_example_with_resource_claims_may_run_on_one_node() -> None:
    path = DAEMONSET.parent / "docs" / "examples" / "validation-dra.yaml"
    claim, template = yaml.safe_load_all(path.read_text("utf-8"))
    made = job_of(
        template["template"], name="s-validate-1", node="gpu-1", session="s", session_uid="u",
        timeout_s=60,
    )  # fmt: skip
    assert refused(made) == []
    pod = made["spec"]["template"]["spec"]
    assert pod["resourceClaims"][0]["resourceClaimTemplateName"] == claim["metadata"]["name"]
    assert "nodeName" not in pod, "the scheduler allocates its GPUs"
    (affinity,) = pod["affinity"]["nodeAffinity"].values()
    (term,) = affinity["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    assert field["values"] == ["gpu-1"]
    assert refused(
        {
            **made,
            "spec": {
                "template": {
                    **made["spec"]["template"],
                    "spec": {**pod, "priorityClassName": "high"},
                }
            },
        }
    )
    for fields in ([], [{**field, "values": ["gpu-1", "gpu-2"]}]):
        term["matchFields"] = fields
        (denial,) = refused(made)
        assert "on one named node" in denial


def test_a_job_that_is_not_a_test_is_denied() -> None:
    other = job()
    other["metadata"]["name"] = "miner"
    assert refused(other)


def test_tests_of_new_nodes_need_the_component() -> None:
    view = msgspec.convert(node(), NodeView)
    new_node = new_node_job_of(
        copy.deepcopy(TEMPLATE["template"]), name="gpu-1-new-validate-1", node=view, gpus=8,
        timeout_s=60,
    )  # fmt: skip
    assert refused(new_node) == []
    new_node["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
    assert "at the lowest priority" in refused(new_node)[0]

    sent = request(SetValidated(node="gpu-1", node_uid="u", passed=True, message="m", at=0.0))
    assert sent.body is not None
    old = node()
    conditions = [*old["status"]["conditions"], *sent.body["status"]["conditions"]]
    new = {**old, "status": {**old["status"], "conditions": conditions}}
    write = Write(user=REMEDIATOR, resource="nodes/status", new=new, old=old)
    assert refusals(write)
    built = [o for o in build("validate") if o["kind"] == "ValidatingAdmissionPolicy"]
    assert refusals(write, built) == []
    classes = [o for o in build("validate") if o["kind"] == "PriorityClass"]
    assert one(classes, "PriorityClass", NEW_NODE_PRIORITY)["value"] == -100000


def test_the_component_sets_variables_of_the_remediator() -> None:
    objects = build("validate")
    (found,) = one(objects, "Deployment", "gpuward-remediator")["spec"]["template"]["spec"][
        "containers"
    ]
    environ = {e["name"]: e["value"] for e in found["env"] if "value" in e}
    assert run_settings(make_parser(environ).parse_args(["run"]), environ).builtin_validation
    assert not run_settings(make_parser({}).parse_args(["run"]), {}).builtin_validation
    assert one(objects, "PodTemplate", VALIDATE_TEMPLATE)


ROOT = Path(__file__).resolve().parents[3]
DCGM = ROOT / "daemonset" / "components" / "validate" / "pod-template.yaml"
ALL_REDUCE = ROOT / "docs" / "interop" / "all-reduce.yaml"
DIAG = """{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests":
 [{"name": "Memory", "results": [{"entity_id": 0, "status": "%s"}]}]}]}}"""
BANDWIDTH = """# nThread 1 nGpus 8 minBytes 8589934592
 8589934592    2147483648     float     sum      -1    31500  272.7  477.2      0
# Out of bounds values : %s
# Avg bus bandwidth    : %s
#"""


def run(template: Path, folder: Path, tools: dict[str, str], **environ: str) -> tuple[int, str]:
    """Run the first container with `tools` in place of the real programs."""
    spec = yaml.safe_load(template.read_text("utf-8"))["template"]["spec"]
    (container,) = spec["containers"]
    for name, body in tools.items():
        tool = folder / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
    result = folder / "result"
    given = {e["name"]: e["value"] for e in container["env"]}
    done = subprocess.run(
        [*container["command"], *container["args"]],
        env={**given, "PATH": f"{folder}:{os.environ['PATH']}", "RESULT": str(result), **environ},
        capture_output=True,
        check=False,
        timeout=30,
    )
    return done.returncode, result.read_text("utf-8")


@pytest.mark.parametrize(
    ("output", "status", "expected"),
    [
        pytest.param(DIAG % "Pass", 0, Assessment.PASS, id="all tests pass"),
        pytest.param(DIAG % "Fail", 226, Assessment.FAIL, id="a test fails"),
        pytest.param("Error: unable to connect", 1, Assessment.UNKNOWN, id="it cannot run"),
        pytest.param("", 127, Assessment.UNKNOWN, id="it is not there"),
    ],
)
def test_the_result_of_dcgm_diag(
    tmp_path: Path, output: str, status: int, expected: Assessment
) -> None:
    diag = f"cat <<'END'\n{output}\nEND\nexit {status}"
    found = read(*run(DCGM, tmp_path, {"nv-hostengine": "exit 0", "dcgmi": diag}))

    assert (found.assessment, [c.id for c in found.checks]) == (expected, ["dcgm-diag-r3"])


@pytest.mark.parametrize(
    ("wrong", "measured", "status", "expected"),
    [
        pytest.param("0 OK", "477.2", 0, Assessment.PASS, id="above the floor"),
        pytest.param("0 OK", "212.9", 0, Assessment.DEGRADED, id="below the floor"),
        pytest.param("3 FAILED", "477.2", 1, Assessment.FAIL, id="wrong data"),
        pytest.param("0 OK", "", 0, Assessment.UNKNOWN, id="no bandwidth printed"),
        pytest.param("0 OK", "477.2", 2, Assessment.UNKNOWN, id="the tool ends with an error"),
    ],
)
def test_the_result_of_all_reduce(
    tmp_path: Path, wrong: str, measured: str, status: int, expected: Assessment
) -> None:
    shown = BANDWIDTH % (wrong, measured)
    if not measured:
        shown = shown.replace("# Avg bus bandwidth    : \n", "")
    perf = f"cat <<'END'\n{shown}\nEND\nexit {status}"
    tools = {"nvidia-smi": "echo GPU 0; echo GPU 1", "all_reduce_perf": perf}
    found = read(*run(ALL_REDUCE, tmp_path, tools, FLOOR="460"))

    assert (found.assessment, [c.id for c in found.checks]) == (expected, ["all-reduce"])


@pytest.mark.parametrize("path", [DCGM, ALL_REDUCE], ids=["dcgm", "all-reduce"])
def test_a_shipped_test_is_labelled_and_has_no_rights(path: Path) -> None:
    template = yaml.safe_load(path.read_text("utf-8"))["template"]

    assert template["metadata"]["labels"] == {LABEL_NAME: "gpuward", LABEL_COMPONENT: "validate"}
    assert template["spec"]["serviceAccountName"] == "gpuward-validate"
    assert template["spec"]["automountServiceAccountToken"] is False
