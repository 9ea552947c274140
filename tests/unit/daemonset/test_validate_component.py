"""Component validate: the test it installs is one that the admission policy lets the remediator
make.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

pytest.importorskip("celpy", reason="cel-python is not installed")

from agent.commands import validate as command
from hack.sim.manifests import read_manifests
from remediator.settings import make_parser, run_settings
from rules.api.nodes import NodeView
from rules.api.repair.writes import SetValidated
from rules.api.requests import request
from rules.policy.validation import BUILTIN_TEMPLATE
from rules.validate.jobs import (
    IDLE_PRIORITY,
    LABEL_COMPONENT,
    LABEL_NAME,
    idle_job_of,
    job_of,
)
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


def test_issue13_03_the_builtin_test_is_what_the_remediator_may_make() -> None:
    assert TEMPLATE["metadata"]["name"] == BUILTIN_TEMPLATE
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
def test_issue13_03_whatever_else_it_tries_is_refused(changes: dict[str, Any], why: str) -> None:
    (said,) = refused(job(**changes))
    assert why in said


def test_issue13_03_a_job_that_is_no_test_is_refused() -> None:
    other = job()
    other["metadata"]["name"] = "miner"
    assert refused(other)


def test_issue13_03_an_idle_check_may_be_made_and_its_result_said_with_the_component_only() -> (
    None
):
    view = msgspec.convert(node(), NodeView)
    idle = idle_job_of(
        copy.deepcopy(TEMPLATE["template"]), name="gpu-1-idle-validate-1", node=view, gpus=8,
        timeout_s=60,
    )  # fmt: skip
    assert refused(idle) == []
    idle["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
    assert "at the lowest priority" in refused(idle)[0]

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
    assert one(classes, "PriorityClass", IDLE_PRIORITY)["value"] == -100000


def test_issue13_03_the_component_builds_and_sets_what_the_remediator_knows() -> None:
    objects = build("validate")
    (found,) = one(objects, "Deployment", "gpuward-remediator")["spec"]["template"]["spec"][
        "containers"
    ]
    environ = {e["name"]: e["value"] for e in found["env"] if "value" in e}
    assert run_settings(make_parser(environ).parse_args(["run"]), environ).builtin_validation
    assert not run_settings(make_parser({}).parse_args(["run"]), {}).builtin_validation
    template = one(objects, "PodTemplate", BUILTIN_TEMPLATE)["template"]
    (container,) = template["spec"]["containers"]
    agent = one(objects, "DaemonSet", "gpuward-agent")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == agent["image"], "the test is of the agent's own release"
    assert container["command"][:2] == ["gpuward-agent", command.__name__.rpartition(".")[2]]
