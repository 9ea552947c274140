"""A real Prometheus scrapes an agent and a remediator: an Xid fires the alerts."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from hack.sim.driver import NODES as DESCRIPTIONS
from tests.support.agent.agent_process import XID79, AgentProcess
from tests.support.agent.agent_process import running as running_agent
from tests.support.cluster.either_cluster import until
from tests.support.remediator import remediator_process
from tests.support.remediator.remediator_process import RemediatorProcess

PROMETHEUS = shutil.which("prometheus")
RULES = Path(__file__).parents[2] / "rules" / "alerts"
NODE, OTHER = "gpu-1", "gpu-2"
PCI = "0000:61:00"
LOST = "Xid79GPUFallenOffBus"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
]


class Prometheus:
    """A server with its own folder that scrapes and evaluates every second."""

    def __init__(self, folder: Path, targets: list[tuple[str, str, dict[str, str]]]) -> None:
        self._folder = folder
        self._log = folder / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None
        config = {
            "global": {
                "scrape_interval": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [f"{RULES}/*.yaml"],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address], "labels": labels}]}
                for job, address, labels in targets
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(PROMETHEUS),
                    f"--config.file={self._folder}/prometheus.yaml",
                    f"--storage.tsdb.path={self._folder}/data",
                    "--web.listen-address=127.0.0.1:0",
                ],
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def ask(self, path: str) -> dict[str, Any]:
        """Return the data of an API response; {} without a response."""
        listens = re.search(r'msg="Listening on" address=(\S+)', self._log.read_text())
        if listens is None:
            return {}
        try:
            text = await asyncio.to_thread(self._read, f"http://{listens[1]}/api/v1/{path}")
        except OSError:
            return {}
        found: dict[str, Any] = json.loads(text)["data"]
        return found

    def _read(self, url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: bytes = answer.read()
        return found

    async def scraped(self) -> dict[str, str]:
        """Health of each target by job."""
        found = (await self.ask("targets")).get("activeTargets", ())
        return {target["labels"]["job"]: target["health"] for target in found}

    async def rules(self) -> list[dict[str, Any]]:
        groups = (await self.ask("rules")).get("groups", ())
        return [rule for group in groups for rule in group["rules"]]

    async def firing(self, name: str) -> list[dict[str, Any]]:
        found = (await self.ask("alerts")).get("alerts", ())
        return [
            alert
            for alert in found
            if alert["state"] == "firing" and alert["labels"]["alertname"] == name
        ]


@contextmanager
def running(prometheus: Prometheus) -> Iterator[None]:
    prometheus.start()
    try:
        yield
    finally:
        prometheus.stop()


@pytest.fixture
async def fleet(cluster: Any) -> Any:
    """Two nodes of one pool, so that one of them may be quarantined."""
    await remediator_process.prepare(cluster)
    await cluster.add_nodes(NODE, OTHER)
    await cluster.health.all_healthy([OTHER])
    return cluster


async def boot_file(cluster: Any, folder: Path) -> Path:
    """Write the boot ID of the Node object, which must be the agent's too."""
    node = await cluster.node(NODE)
    file = folder / "boot_id"
    file.write_text(f"{node['status']['nodeInfo']['bootID']}\n")
    return file


async def test_an_xid_79_fires_the_alerts_that_name_node_and_gpu(
    fleet: Any, tmp_path: Path
) -> None:
    description = tmp_path / "node.yaml"
    description.write_bytes((DESCRIPTIONS / "h100-8-nvswitch.yaml").read_bytes())
    agent = AgentProcess(
        tmp_path,
        fleet.plane.kubeconfig,
        NODE,
        **{
            "listen": "127.0.0.1:0",
            "nvml": f"sim:{description}",
            "poll": "1",
            "boot-id": str(await boot_file(fleet, tmp_path)),
        },
    )
    remediator = RemediatorProcess(tmp_path, fleet.plane.kubeconfig)

    async def agent_port() -> int | None:
        return agent.port

    with running_agent(agent), remediator_process.running(remediator):
        await remediator_process.leads(fleet, "one")
        listen = f"127.0.0.1:{await until(agent_port, 'the port of the agent')}"
        prometheus = Prometheus(
            tmp_path,
            [
                ("gpuward-agent", listen, {"node": NODE}),
                ("gpuward-remediator", f"127.0.0.1:{remediator.port}", {}),
            ],
        )
        with running(prometheus):
            await _all_is_well(prometheus)
            for address in (listen, f"127.0.0.1:{remediator.port}"):
                await asyncio.to_thread(_promtool_accepts, f"http://{address}/metrics")
            agent.kernel_line(XID79.format(pci=PCI))
            await _the_fault_fires(prometheus)
            await _the_quarantine_fires(prometheus)


async def _all_is_well(prometheus: Prometheus) -> None:
    """Both programs are scraped, every rule is evaluated, and no alert fires."""

    async def scraped() -> bool:
        wanted = {"gpuward-agent": "up", "gpuward-remediator": "up"}
        return await prometheus.scraped() == wanted

    async def evaluated() -> bool:
        rules = await prometheus.rules()
        return bool(rules) and all(rule["health"] == "ok" for rule in rules)

    await until(scraped, "both programs scraped")

    async def has_gpu() -> bool:
        found = await prometheus.ask("query?query=" + quote(f'gpuward_gpu_info{{pci="{PCI}"}}'))
        return bool(found.get("result"))

    async def silent() -> bool:
        return (await prometheus.ask("alerts")).get("alerts") == []

    await until(evaluated, "every rule evaluated")
    await until(has_gpu, "the GPU through NVML")
    await until(silent, "no alert, not even a pending one")


def _promtool_accepts(url: str) -> None:
    with urllib.request.urlopen(url, timeout=5) as page:
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=page.read(), capture_output=True, check=False
        )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


async def _the_fault_fires(prometheus: Prometheus) -> None:
    (alert,) = await until(lambda: prometheus.firing("GPUWardGPUFaultFatal"), "the fault")

    assert alert["labels"]["reason"] == LOST
    assert alert["labels"]["severity"] == "warning"
    assert alert["labels"]["pci"] == PCI
    assert alert["labels"]["uuid"] == "GPU-6f2a1d33-8c1e-4b57-9f60-0a41c2d7e103"
    assert alert["annotations"]["summary"] == (
        f"GPU {alert['labels']['index']} ({PCI}) on {NODE} has a fatal fault: {LOST}."
    )
    assert alert["annotations"]["runbook_url"] == (
        "http://localhost:9414/docs/runbooks/GPUWardGPUFaultFatal.md"
    )


async def _the_quarantine_fires(prometheus: Prometheus) -> None:
    (alert,) = await until(lambda: prometheus.firing("GPUWardNodeQuarantined"), "the quarantine")

    assert alert["labels"]["severity"] == "info"
    summary = f"Node {NODE} is quarantined by gpuward: {LOST}."
    assert alert["annotations"]["summary"] == summary
    assert await prometheus.firing("GPUWardFatalUntouched") == []
