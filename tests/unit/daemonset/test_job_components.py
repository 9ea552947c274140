"""Jobs with the host's rights: admission limits them to the installed templates (issue 13)."""

import copy
from typing import Any

import pytest

pytest.importorskip("celpy", reason="cel-python is not installed")

from agent.commands import reset_gpu, restart_node
from rules.api import names
from rules.repair import operands
from rules.repair.adapter import ADAPTERS, RequestFacts, filled
from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import REMEDIATOR, node
from tests.support.cluster.manifest_builds import build, one

ROWS = [("ResetGPUJob", "repair-reset-gpu-job"), ("RestartNodeJob", "repair-restart-node-job")]
FACTS = RequestFacts(
    node="gpu-1", node_uid="u", session="s", boot_id="b", gpu_uuids=("GPU-1", "GPU-2"),
    reason="Xid79", step="ResetGPU",
)  # fmt: skip
Object = dict[str, Any]


def action(name: str) -> Any:
    (found,) = ADAPTERS[name].steps.values()
    return found


def built(*folders: str) -> list[Object]:
    """Everything of base and components."""
    return build(*folders)


def template(folder: str, name: str) -> Object:
    found: Object = one(built(folder), "PodTemplate", action(name).pod)
    return found


def job(name: str, folder: str) -> Object:
    """Return the Job that the remediator creates: `object` merged into the PodTemplate."""
    made: Object = filled(action(name).object, FACTS)
    pod = copy.deepcopy(template(folder, name)["template"])
    wanted = made["spec"]["template"]
    meta = {**pod["metadata"], **wanted["metadata"]}
    made["spec"]["template"] = {"metadata": meta, "spec": {**pod["spec"], **wanted["spec"]}}
    return made


def refused(made: Object, folders: tuple[str, ...], params: Object | None = None) -> list[str]:
    shipped = [o for o in built(*folders) if o["kind"] == "ValidatingAdmissionPolicy"]
    write = Write(
        user=REMEDIATOR, resource="jobs", group="batch", operation="CREATE", new=made,
        params=params,
    )  # fmt: skip
    return refusals(write, shipped)


@pytest.mark.parametrize(("name", "folder"), ROWS)
def test_a_repair_job_needs_its_component_and_its_template(name: str, folder: str) -> None:
    made, params = job(name, folder), template(folder, name)
    assert refused(made, (folder,), params) == []
    assert refused(made, (folder,)), "without its PodTemplate"
    (denial,) = refused(made, ())
    assert "with an installed component" in denial
    other = next(each for _, each in ROWS if each != folder)
    assert refused(made, (other,), params)
    together = ("validate", *(each for _, each in ROWS))
    shown = [each for each in refused(made, together, params) if "nothing but" not in each]
    assert shown == []


@pytest.mark.parametrize(("name", "folder"), ROWS)
@pytest.mark.parametrize(
    "changes",
    [
        {"containers": [{"name": "x", "image": "miner", "command": ["sh"]}]},
        {"initContainers": [{"name": "x", "image": "miner"}]},
        {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
        {"serviceAccountName": "gpuward-remediator"},
        {"automountServiceAccountToken": True},
        {"hostNetwork": True},
        {"nodeName": ""},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_only_the_node_of_the_pod_can_be_set(name: str, folder: str, changes: Object) -> None:
    made = job(name, folder)
    made["spec"]["template"]["spec"] |= changes
    assert refused(made, (folder,), template(folder, name))


@pytest.mark.parametrize(("name", "folder"), ROWS)
@pytest.mark.parametrize("field", ["completions", "parallelism", "backoffLimit"])
def test_it_runs_once(name: str, folder: str, field: str) -> None:
    made = job(name, folder)
    made["spec"][field] = 5
    (denial,) = refused(made, (folder,), template(folder, name))
    assert "once" in denial


@pytest.mark.parametrize("label", ["", "miner", "unnamed", None])
def test_a_job_of_an_unknown_kind_is_always_denied(
    label: str | None,
) -> None:
    made = job(*ROWS[0])
    made["spec"]["template"]["metadata"]["labels"] = (
        {} if label is None else {"app.kubernetes.io/component": label}
    )
    params = template(ROWS[0][1], ROWS[0][0])
    (denial,) = refused(made, ("validate", *(folder for _, folder in ROWS)), params)
    assert "with an installed component" in denial


@pytest.mark.parametrize(("name", "folder"), ROWS)
def test_the_pod_sets_the_variables_of_its_program(name: str, folder: str) -> None:
    command = reset_gpu if name == "ResetGPUJob" else restart_node
    pod = job(name, folder)["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert " ".join(container["command"][:2]) == command.PROGRAM
    notes = pod["metadata"]["annotations"]
    variables = {
        each["name"]: notes[each["valueFrom"]["fieldRef"]["fieldPath"].split("'")[1]]
        for each in container["env"]
    }
    assert variables[command.ENV_BOOT] == "b"
    assert set(variables.values()) == {"b", "s" if command is restart_node else "GPU-1,GPU-2"}


@pytest.mark.parametrize(("name", "folder"), ROWS)
def test_its_account_has_no_right_and_no_token(name: str, folder: str) -> None:
    objects = built(folder)
    pod = template(folder, name)["template"]["spec"]
    account = one(objects, "ServiceAccount", pod["serviceAccountName"])
    assert (account["automountServiceAccountToken"], pod["automountServiceAccountToken"]) == (
        False,
        False,
    )
    bound = [s["name"] for o in objects if "subjects" in o for s in o["subjects"]]
    assert pod["serviceAccountName"] not in bound
    agent = one(objects, "DaemonSet", "gpuward-agent")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == agent["containers"][0]["image"]


@pytest.mark.parametrize(("name", "folder"), ROWS)
def test_a_job_without_the_label_of_its_policy_is_denied_by_the_base(
    name: str, folder: str
) -> None:
    made = job(name, folder)
    labels = made["metadata"].pop("labels")
    (denial,) = refused(made, (folder,))
    assert "the same labels as its pods" in denial
    made["metadata"]["labels"] = labels | {"app.kubernetes.io/component": "validate"}
    assert "the same labels as its pods" in " ".join(refused(made, (folder, "validate")))


@pytest.mark.parametrize("user", [REMEDIATOR, "system:serviceaccount:kube-system:job-controller"])
def test_jobs_of_other_users_need_no_podtemplate(user: str) -> None:
    """The API server looks up parameters before it matches the user."""
    folders = tuple(each for _, each in ROWS)
    shipped = [o for o in built(*folders) if o["kind"] == "ValidatingAdmissionPolicy"]
    train = {"metadata": {"name": "train"}, "spec": {"template": {"spec": {}}}}
    write = Write(user=user, resource="jobs", group="batch", operation="CREATE", new=train)
    denials = refusals(write, shipped)
    assert "no params found" not in denials
    assert bool(denials) is (user == REMEDIATOR)


@pytest.mark.parametrize("folders", [(ROWS[0][1],), ()], ids=["with it", "without"])
@pytest.mark.parametrize(
    ("before", "after", "quarantined", "allowed"),
    [
        ("true", names.PAUSED_BY_US, True, True),
        ("true", names.PAUSED_BY_US, False, False),
        (names.PAUSED_BY_US, "true", False, True),
        (names.PAUSED_BY_US, "false", False, False),
        ("paused-for-driver-upgrade", "true", False, False),
    ],
)
def test_pausing_gpu_clients_needs_taint_and_component_and_undoing_does_not(
    before: str, after: str, folders: tuple[str, ...], *, quarantined: bool, allowed: bool
) -> None:
    _pauses("dcgm", before, after, folders, quarantined=quarantined, allowed=allowed)


@pytest.mark.parametrize("name", ["dcgm-dra", "dcgm-exporter-dra", "dra-driver", "later"])
def test_every_operand_can_be_paused_with_the_component(name: str) -> None:
    for folders in ((ROWS[0][1],), ()):
        _pauses(name, "true", names.PAUSED_BY_US, folders, quarantined=True, allowed=True)
        _pauses(name, "true", "false", folders, quarantined=True, allowed=False)
        _pauses(name, "false", names.PAUSED_BY_US, folders, quarantined=True, allowed=False)
        _pauses(name, None, names.PAUSED_BY_US, folders, quarantined=True, allowed=False)
        _pauses(name, "true", None, folders, quarantined=True, allowed=False)


@pytest.mark.parametrize("name", operands.OPERANDS.stays)
def test_the_pods_that_may_stay_cannot_be_paused(name: str) -> None:
    folders = (ROWS[0][1],)
    _pauses(name, "true", names.PAUSED_BY_US, folders, quarantined=True, allowed=False)


def _pauses(
    name: str,
    before: str | None,
    after: str | None,
    folders: tuple[str, ...],
    *,
    quarantined: bool,
    allowed: bool,
) -> None:
    label = f"{names.PREFIX_GPU_DEPLOY}{name}"
    old = node(metadata__annotations={names.ANNOTATION_SESSION: "{}"} if quarantined else {})
    new = copy.deepcopy(old)
    for each, value in ((old, before), (new, after)):
        each["metadata"]["labels"] = dict(each["metadata"]["labels"])
        if value is not None:
            each["metadata"]["labels"][label] = value
    pauses = after == names.PAUSED_BY_US
    assert changed(old, new, folders) is (allowed and (bool(folders) or not pauses))


@pytest.mark.parametrize("folders", [(ROWS[0][1],), ()], ids=["with it", "without"])
@pytest.mark.parametrize("note", [f"{names.COMPONENT_REMEDIATOR}: s-1", "swapping a card"])
def test_the_release_request_can_be_removed_without_the_component(
    note: str, folders: tuple[str, ...]
) -> None:
    old = node(metadata__annotations={names.ANNOTATION_RELEASE_GPU: note})
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][names.ANNOTATION_RELEASE_GPU]
    assert changed(old, new, folders) is (bool(folders) or note != "swapping a card")


def test_a_pause_record_can_be_removed_without_the_component() -> None:
    old = node(metadata__annotations={names.ANNOTATION_MOVED: "{}"})
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][names.ANNOTATION_MOVED]
    assert changed(old, new, ())
    assert not changed(new, old, ()), "nor is one written without it"


def changed(old: Object, new: Object, folders: tuple[str, ...]) -> bool:
    """Whether the remediator may change one object into the other."""
    shipped = [o for o in built(*folders) if o["kind"] == "ValidatingAdmissionPolicy"]
    return refusals(Write(user=REMEDIATOR, resource="nodes", new=new, old=old), shipped) == []
