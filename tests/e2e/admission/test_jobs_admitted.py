"""Jobs of our own on a real API server: held to what was installed, after its defaults (issue 13).

The simulator stores admission policies and does not enforce them; what they decide is shown there
by tests/unit/daemonset/test_job_components.py. These need KUBEBUILDER_ASSETS.
"""

import copy
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster.client import HttpClient, Object
from hack.sim.cluster.controllers.nodes import node_object
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import (
    JOBS,
    POD_TEMPLATES,
    RUNTIME_CLASSES,
    VALIDATING_ADMISSION_POLICIES,
)
from hack.sim.control_plane import ASSETS
from hack.sim.real_control_plane import find_binaries
from rules.api.nodes import NodeView
from rules.api.pods import LABEL_COMPONENT
from rules.api.repair_writes import WriteRepairObject
from rules.session.validation.jobs import job_of, name_of_test, new_node_job_of
from tests.support.cluster.either_cluster import Cluster, a_cluster
from tests.support.cluster.manifest_builds import (
    COMPONENTS,
    OTHER_COMPONENTS,
    PROOF_COMPONENTS,
    REPAIR_COMPONENTS,
    build,
)
from tests.support.repair.job_world import JobWorld

OURS, REMEDIATOR, NODE = "gpuward", "gpuward-remediator", "gpu-0"
ALL = (*COMPONENTS[1:], *PROOF_COMPONENTS, *REPAIR_COMPONENTS, *OTHER_COMPONENTS)
"""`nvml` and `full` exclude each other."""
FOREIGN = {"PodMonitor", "PrometheusRule", "ServiceMonitor"}
"""Kinds of the Prometheus operator."""
ADAPTERS = [
    ("ResetGPUJob", "ResetGPU", "gpuward-reset-gpu"),
    ("RestartNodeJob", "RestartNode", "gpuward-restart-node"),
]
TEST = "gpuward-validate"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get(ASSETS),
        reason=f"admission policies need a real API server: set {ASSETS}",
    ),
]


@dataclass(frozen=True)
class Everything:
    """Base and all components in a cluster, and the remediator's own credential."""

    cluster: Cluster
    remediator: HttpClient

    async def written(self, job: Object, namespace: str = OURS) -> str:
        """The error for a Job of the remediator; "" if it is admitted."""
        body = {**job, "metadata": {**job["metadata"], "namespace": namespace}}
        try:
            await self.remediator.create(JOBS, body, namespace, dry_run=True)
        except ApiError as error:
            return f"{error.code} {error}"
        return ""

    async def template(self, name: str) -> Object:
        """A PodTemplate as the server holds it, defaults filled in."""
        found: Object = await self.cluster.client.get(POD_TEMPLATES, name, OURS)
        return found


@asynccontextmanager
async def everything(folder: Path) -> AsyncIterator[Everything]:
    objects = [o for o in build(*ALL) if o["kind"] not in FOREIGN]
    objects.sort(key=lambda o: o["kind"] not in {"Namespace", "CustomResourceDefinition"})
    listed = folder / "everything.json"
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    async with a_cluster(secure=True) as cluster:
        for name in {o["metadata"].get("namespace", OURS) for o in objects} - {OURS}:
            await cluster.add_namespace(name)
        status, _, errors = await cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", str(listed)
        )
        assert status == 0, errors
        written = [line for line in errors.splitlines() if "would violate PodSecurity" not in line]
        assert written == [], "no field unknown, none deprecated"
        runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        head = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
        await cluster.client.create(RUNTIME_CLASSES, {**head, **runtime})
        plane = cluster.plane
        token = await plane.service_account_token(OURS, REMEDIATOR)
        async with plane.client_of(token) as client:
            found = Everything(cluster, client)
            await in_force(found)
            yield found


async def in_force(found: Everything) -> None:
    """A policy takes effect some moments after it is stored, each at its own: wait for those on
    Jobs.
    """
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    kinds = {
        "unnamed": "with an installed component",
        "validate": "for tests under load",
        "reset-gpu": "PodTemplate gpuward-reset-gpu",
        "restart-node": "PodTemplate gpuward-restart-node",
    }

    async def all_refuse() -> bool:
        for kind, expected in kinds.items():
            job = job_of(pod, name="x", node="n", session="s", session_uid="u", timeout_s=60)
            for each in (job, job["spec"]["template"]):
                each["metadata"]["labels"][LABEL_COMPONENT] = kind
            if expected not in await found.written(job):
                return False
        return True

    await found.cluster.until(all_refuse, "every policy on Jobs in force")


def changed(job: Object, change: Callable[[Any], Any]) -> Object:
    """The Job with another pod."""
    other = copy.deepcopy(job)
    change(other["spec"]["template"]["spec"])
    return other


async def repair_job(found: Everything, name: str, step: str, template: str) -> Object:
    """The Job that the rules make, from the PodTemplate that this server holds."""
    world = JobWorld(name, step)
    held = await found.template(template)
    world.put("v1", "podtemplates", template, OURS, template=held["template"])
    world.fault()
    world.until(lambda: world.held("jobs"))
    (body,) = [
        write.body
        for _, write, _, _ in world.sent
        if isinstance(write, WriteRepairObject) and write.address.resource == "jobs"
    ]
    return copy.deepcopy(dict(body))


def tampered(job: Object) -> dict[str, Object]:
    """By what is wrong with it."""

    def first(**fields: Any) -> Callable[[Any], Any]:
        return lambda spec: spec["containers"][0].update(fields)

    host = [{"name": "h", "hostPath": {"path": "/"}}]
    env = [{"name": "LD_PRELOAD", "value": "/x.so"}]
    miner = {"name": "m", "image": "miner"}
    pods: dict[str, Callable[[Any], Any]] = {
        "image": first(image="miner"),
        "command": first(command=["sh", "-c", "true"]),
        "args": first(args=["--wait", "0"]),
        "env": first(env=env),
        "lifecycle": first(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}),
        "capabilities": first(
            securityContext={"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}}
        ),
        "hostPath": lambda spec: spec.update(volumes=host),
        "container": lambda spec: spec["containers"].append(miner),
        "initContainer": lambda spec: spec.update(initContainers=[miner]),
        "account": lambda spec: spec.update(
            serviceAccountName=REMEDIATOR, serviceAccount=REMEDIATOR
        ),
        "token": lambda spec: spec.update(automountServiceAccountToken=True),
        "hostNetwork": lambda spec: spec.update(hostNetwork=True),
        "no node": lambda spec: spec.pop("nodeName"),
        "runtime": lambda spec: spec.update(runtimeClassName="nvidia"),
    }
    found = {what: changed(job, change) for what, change in pods.items()}
    for field in ("parallelism", "completions", "backoffLimit"):
        found[field] = copy.deepcopy(job)
        found[field]["spec"][field] = 7
    unnamed = copy.deepcopy(job)
    del unnamed["spec"]["template"]["metadata"]["labels"][LABEL_COMPONENT]
    unlabelled = copy.deepcopy(job)
    del unlabelled["metadata"]["labels"][LABEL_COMPONENT]
    return found | {"no kind": unnamed, "not to be found": unlabelled}


async def test_a_job_of_the_remediator_is_admitted_only_as_it_creates_it(
    tmp_path: Path,
) -> None:
    async with everything(tmp_path) as found:
        await found.cluster.add_namespace("elsewhere")
        for name, step, template in ADAPTERS:
            job = await repair_job(found, name, step, template)
            assert await found.written(job) == "", name
            for what, wrong in tampered(job).items():
                assert "ValidatingAdmissionPolicy" in await found.written(wrong), (name, what)
            assert (await found.written(job, "elsewhere")).startswith("403"), "rights are of one"
            # What was changed by an administrator is what runs, and what runs already is not.
            patch = {"template": (await found.template(template))["template"]}
            patch["template"]["spec"]["containers"][0]["image"] = "registry.example/agent:2"
            await found.cluster.client.patch(POD_TEMPLATES, template, patch, OURS)

            async def outdated(job: Object = job) -> bool:
                return "ValidatingAdmissionPolicy" in await found.written(job)

            await found.cluster.until(outdated, "the Job of the former PodTemplate refused")
            assert await found.written(await repair_job(found, name, step, template)) == "", name
            await found.cluster.client.delete(POD_TEMPLATES, template, OURS)
            await found.cluster.until(outdated, "no Job without its PodTemplate")


async def test_tests_under_load_and_of_new_nodes_are_admitted_and_no_other_jobs(
    tmp_path: Path,
) -> None:
    async with everything(tmp_path) as found:
        template = (await found.template(TEST))["template"]
        test = job_of(
            template, name=name_of_test("gpu-0-0a1b2c3d", 1), node=NODE,
            session="gpu-0-0a1b2c3d", session_uid="u", timeout_s=600,
        )  # fmt: skip
        view = node_object(NODE, now=utc_now(), gpus=8, labels={})
        node = msgspec.convert(view, NodeView, strict=False)
        new_node = new_node_job_of(
            template, name=name_of_test("gpu-0", 1), node=node, gpus=8, timeout_s=600
        )
        assert await found.written(test) == ""
        assert await found.written(new_node) == ""
        pinned = changed(test, lambda spec: spec.update(hostPID=True))
        assert "of the host" in await found.written(pinned)
        root = changed(
            test, lambda spec: spec["containers"][0].update(securityContext={"privileged": True})
        )
        assert "of the host" in await found.written(root)
        mine = changed(new_node, lambda spec: spec.update(serviceAccountName=REMEDIATOR))
        assert "service account" in await found.written(mine)
        user = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "train"}],
                    }
                }
            },
        }
        assert "with an installed component" in await found.written(user), "as the remediator"
        await found.cluster.client.create(JOBS, user, "default")


async def test_the_policies_of_all_components_are_type_checked_without_a_warning(
    tmp_path: Path,
) -> None:
    assets = Path(os.environ[ASSETS])
    if find_binaries(assets).controller_manager is None:
        pytest.skip(f"the controller manager checks types, and {ASSETS} has none")
    async with everything(tmp_path) as found:

        async def checked() -> dict[str, Any]:
            policies, _ = await found.cluster.client.list(VALIDATING_ADMISSION_POLICIES)
            status = {p["metadata"]["name"]: p.get("status") or {} for p in policies}
            seen = [s for s in status.values() if "observedGeneration" in s]
            return status if len(seen) == len(status) else {}

        shown = await found.cluster.until(checked, "every policy type-checked")
        assert len(shown) > len(REPAIR_COMPONENTS[:2])
        warned = {name: s["typeChecking"] for name, s in shown.items() if s.get("typeChecking")}
        assert {n: w for n, w in warned.items() if w.get("expressionWarnings")} == {}
