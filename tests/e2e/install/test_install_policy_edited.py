"""What `preflight` says of an edited policy comes true: real kubectl and helm, a real API server.

The simulator has no server-side apply, so these need KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from remediator.kubectl.cluster import POLICY_MAP
from tests.support.cluster.either_cluster import REPOSITORY, Cluster
from tests.support.remediator.kubectl_cluster import run_command

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
HELM = shutil.which("helm")
POLICY = REPOSITORY / "daemonset" / "base" / "policy.yaml"
EDITED = '{"data": {"policy.yaml": "apiVersion: gpuward.io/v1alpha1\\nkind: QuarantinePolicy\\n'
EDITED += 'mode: Enforce\\n"}}'
CONFLICT, TAKEN_BACK = "ends in a conflict", "takes back what differs"
SERVER_SIDE = ("apply", "--server-side", "-f", str(POLICY))
FORCED = ("--force-conflicts", "--field-manager")


class Shop:
    """Somebody's namespace with the policy in it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def kubectl(self, *arguments: str) -> tuple[int, str]:
        return await self.run(KUBECTL or "kubectl", "-n", "gpuward", *arguments)

    async def run(self, *command: str) -> tuple[int, str]:
        """Exit status, and all that was printed."""
        env = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        done = await asyncio.to_thread(
            subprocess.run, command, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    async def told(self) -> str:
        """The line of preflight about the policy."""
        _, out, _ = await asyncio.to_thread(
            run_command, "--kubeconfig", str(self._kubeconfig), "preflight"
        )
        return next((line for line in out.splitlines() if line[6:].startswith("policy:")), "")

    async def enforces(self) -> bool:
        _, out = await self.kubectl("get", "configmap", POLICY_MAP, "-o", "yaml")
        return "mode: Enforce" in out

    async def edit(self) -> None:
        assert (await self.kubectl("patch", "configmap", POLICY_MAP, "-p", EDITED))[0] == 0
        assert await self.enforces()


@pytest.fixture
async def shop(secure_cluster: Cluster) -> Shop:
    if not secure_cluster.plane.is_real or KUBECTL is None:
        pytest.skip("server-side apply needs a real API server (KUBEBUILDER_ASSETS) and kubectl")
    shop = Shop(secure_cluster.plane.kubeconfig)
    await shop.kubectl("create", "namespace", "gpuward")
    return shop


@pytest.mark.parametrize(
    ("apply", "who", "becomes"),
    [
        pytest.param(SERVER_SIDE, "kubectl", CONFLICT, id="kubectl"),
        pytest.param(
            (*SERVER_SIDE, *FORCED, "argocd-controller"),
            "argocd-controller",
            TAKEN_BACK,
            id="argo",
        ),
        pytest.param(
            (*SERVER_SIDE, *FORCED, "kustomize-controller"),
            "kustomize-controller",
            TAKEN_BACK,
            id="flux",
        ),
    ],
)
async def test_an_edit_under_server_side_apply_is_said_and_becomes_what_is_said(
    shop: Shop, apply: tuple[str, ...], who: str, becomes: str
) -> None:
    assert (await shop.kubectl(*apply))[0] == 0
    assert await shop.told() == ""
    await shop.edit()
    told = await shop.told()
    assert told.startswith("warn  policy: last written by kubectl-patch on 20")
    assert f"not by {who}, which applies" in told
    assert becomes in told
    code, said = await shop.kubectl(*apply)
    assert await shop.enforces() == (code != 0) == (becomes == CONFLICT), said
    assert ("conflict" in said) == (becomes == CONFLICT)


async def test_an_edit_that_is_put_into_the_overlay_is_none_any_more(
    shop: Shop, tmp_path: Path
) -> None:
    await shop.kubectl(*SERVER_SIDE)
    await shop.edit()
    _, there = await shop.kubectl("get", "configmap", POLICY_MAP, "-o", "jsonpath={.data}")
    overlay = tmp_path / "policy.json"
    labels = '{"app.kubernetes.io/name": "gpuward"}'
    overlay.write_text(
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpuward-policy", '
        f'"labels": {labels}}}, "data": {there}}}'
    )
    code, said = await shop.kubectl("apply", "--server-side", "-f", str(overlay))
    assert code == 0, said
    assert await shop.told() == ""


async def test_what_client_side_apply_wrote_over_server_side_apply_is_taken_back_silently(
    shop: Shop, tmp_path: Path
) -> None:
    await shop.kubectl(*SERVER_SIDE)
    by_hand = tmp_path / "policy.yaml"
    by_hand.write_text(POLICY.read_text().replace("mode: Shadow", "mode: Enforce"))
    await shop.kubectl("apply", "-f", str(by_hand))
    told = await shop.told()
    assert "by kubectl-client-side-apply" in told
    assert TAKEN_BACK in told
    code, said = await shop.kubectl(*SERVER_SIDE)
    assert (code, await shop.enforces()) == (0, False), said
    assert await shop.told() == ""


@pytest.mark.skipif(HELM is None, reason="helm is not installed")
async def test_a_helm_upgrade_that_changes_nothing_of_the_policy_takes_an_edit_back(
    shop: Shop,
) -> None:
    _, version = await shop.run(HELM or "helm", "version", "--short")
    if not version.startswith("v3"):
        pytest.skip(f"helm {version.strip()} applies on the server")
    chart = str(REPOSITORY / "daemonset" / "chart")
    release = (HELM or "helm", "-n", "gpuward", "upgrade", "--install", "gpuward", chart)
    upgrade = (*release, "--set", "crds.install=false")  # the cluster has them
    code, said = await shop.run(*upgrade)
    assert code == 0, said
    assert await shop.told() == ""
    await shop.edit()
    told = await shop.told()
    assert "not by helm, which applies" in told
    assert f"the next helm upgrade {TAKEN_BACK} from your values" in told
    await shop.run(*upgrade, "--set", "remediator.replicas=3")
    assert not await shop.enforces()
    assert await shop.told() == ""
