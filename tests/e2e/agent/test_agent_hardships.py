"""A real agent process with failures around it: API server down, full disk, floods."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3

from agent.sources.host import pci_functions
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.server import run_in_thread
from hack.sim.driver import NODES as DESCRIPTIONS
from hack.sim.driver import set_node
from hack.sim.proxy.faults import Fault
from rules.api.metadata import ObjectMeta
from rules.api.names import ANNOTATION_SESSION
from rules.api.nodes import HealthView, NodeView
from rules.session.observation import staleness
from tests.support.agent.agent_process import XID79, AgentProcess, AgentRestarted, running
from tests.support.agent.publish_parts import Server

NODE = "gpu-1"


def until(check: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError(f"never seen: {what}")


class Around(Server):
    """The environment of the agent of one node."""

    def agent(
        self, folder: Path, kind: type[AgentProcess] = AgentProcess, **options: str
    ) -> AgentProcess:
        return kind(
            folder, self.hosted.server.write_kubeconfig(folder / "config"), NODE, **options
        )

    @property
    def healthy(self) -> str:
        """The status of the node's GPUHealthy condition."""
        return self.condition(NODE, "GPUHealthy")

    @property
    def status(self) -> dict[str, Any]:
        """The status of the object; empty while there is none."""
        return dict((self.health(NODE) or {}).get("status", {}))

    def incidents(self, count: int) -> list[dict[str, Any]]:
        """Wait until the object has so many incidents: object and condition are two writes."""

        def there() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self.status.get("incidents") or []
            return found if len(found) == count else []

        found: list[dict[str, Any]] = until(there, f"{count} incidents in the object")
        return found

    def nvml(self) -> tuple[str, str]:
        """Return the published state and reason of a source."""
        found = {each["name"]: each for each in self.status.get("sources", ())}.get("nvml", {})
        return found.get("state", ""), found.get("reason", "")


@pytest.fixture
def around() -> Iterator[Around]:
    with run_in_thread() as hosted:
        found = Around(hosted)
        found.define()
        found.add_node(NODE)
        yield found
        found.kube.close()


ORDINARY = {
    **{str(code): Fault(status=code, body=b"{}") for code in (410, 429, 500, 502, 503, 504)},
    "a proxy's page": Fault(status=503, body=b"<html>", content_type="text/html"),
    "reset": Fault(action="reset"),
    "410 for watches": None,
}


def test_temporary_api_errors_are_retried_by_every_writer(around: Around, tmp_path: Path) -> None:
    server = around.hosted.server
    with running(around.agent(tmp_path)) as agent:
        until(lambda: around.healthy == "Unknown", "the first health status")
        for number, (name, fault) in enumerate(ORDINARY.items(), 1):
            if fault is not None:
                server.faults.add(replace(fault, agent="gpuward-agent", times=None))
                around.hosted.run(_in_loop(server.faults.drop_watches))
            else:
                around.hosted.run(_in_loop(server.faults.expire_watches))
            enough = len(server.requests.all) + 3
            agent.kernel_line(XID79.format(pci=f"0000:{number:02x}:00"))
            until(partial(_asked, around, enough), f"calls that met {name}")
            server.faults.clear()
            annotations = {ANNOTATION_SESSION: json.dumps({"session": f"session-{number}"})}
            patch = {"metadata": {"annotations": annotations}}
            around.patch_node(NODE, patch)
            around.incidents(number)
        until(
            lambda: "Saved the evidence of session session-9" in agent.log.read_text(), "evidence"
        )
    log = agent.log.read_text()
    assert "unexpected error" not in log
    assert "bug in gpuward" not in log
    assert "Traceback" not in log


def _asked(around: Around, calls: int) -> bool:
    return len(around.hosted.server.requests.all) >= calls


async def _in_loop(change: Callable[[], object]) -> None:
    change()


def test_an_agent_started_in_an_outage_keeps_the_published_status(
    around: Around, tmp_path: Path
) -> None:
    agent = around.agent(tmp_path)
    with running(agent):
        until(lambda: around.healthy == "Unknown", "the first health status")
        agent.kernel_line(XID79.format(pci="0000:3b:00"))
        until(lambda: around.healthy == "False", "the fault")
        (before,) = around.incidents(1)
    faults = around.faults
    away = faults.fail(
        ApiError(503, "ServiceUnavailable", "away"), agent="gpuward-agent", times=None
    )
    with running(agent):
        until(lambda: away.hits >= 6, "the agent trying")
        agent.kernel_line(XID79.format(pci="0000:5e:00"))
        until(lambda: agent.log.read_text().count("Incident Opened") >= 2, "the second fault")
        faults.clear()
        assert before["id"] in {each["id"] for each in around.incidents(2)}
        assert around.healthy == "False"


def test_ten_thousand_xids_in_a_burst_are_all_read_and_written_a_few_times(
    around: Around, tmp_path: Path
) -> None:
    with running(around.agent(tmp_path, listen="127.0.0.1:0")) as agent:
        until(lambda: around.healthy == "Unknown", "the first health status")
        for number in range(10_000):
            agent.kernel_line(
                f"NVRM: Xid (PCI:0000:{number % 200:02x}:00): 79, pid={number}, name=python, lost"
            )

        def recognised() -> bool:
            url = f"http://127.0.0.1:{agent.port}/metrics"
            page = urllib3.request("GET", url, timeout=10.0, retries=False).data.decode()
            return 'gpuward_kernel_records_total{result="recognised"} 10000.0' in page

        until(recognised, "every line recognised")
        until(lambda: around.healthy == "False", "the fault")
        assert len(around.incidents(64)) == 64
    writes = [
        each for each in around.hosted.server.requests.all if each.verb in ("update", "patch")
    ]
    assert len(writes) < 200


def test_a_full_disk_does_not_stop_the_agent(around: Around, tmp_path: Path) -> None:
    agent = around.agent(tmp_path)
    agent.log = Path("/dev/full")
    with running(agent):
        until(lambda: around.healthy == "Unknown", "the first health status")
        agent.kernel_line(XID79.format(pci="0000:3b:00"))
        until(lambda: around.healthy == "False", "the fault")
        assert agent.stop() == 0


def test_a_hung_driver_does_not_hold_up_the_kernel_log(around: Around, tmp_path: Path) -> None:
    node = tmp_path / "node.yaml"
    node.write_bytes((DESCRIPTIONS / "h100-8-nvswitch.yaml").read_bytes())
    with running(around.agent(tmp_path, nvml=f"sim:{node}", poll="1")) as agent:
        until(lambda: around.healthy == "True", "the first health status")
        # A hang is reported after 5 s; what is reported has to be published before the call
        # returns.
        set_node(node, hang_s={"nvmlDeviceGetFieldValues": 12})
        until(lambda: around.nvml() == ("Down", "CallHung"), "the hung call")
        until(lambda: around.healthy == "Unknown", "the condition, which is another write")
        agent.kernel_line(XID79.format(pci="0000:1b:00"))
        until(lambda: around.healthy == "False", "the fault")
        set_node(node, hang_s={})


def test_without_library_and_gpu_the_kernel_log_alone_judges(
    around: Around, tmp_path: Path
) -> None:
    if gpus_on_this_bus():
        pytest.skip("this machine has NVIDIA functions or no PCI bus: a driver is expected")
    agent = around.agent(tmp_path, AgentRestarted, nvml="real")
    with running(agent):
        until(lambda: around.healthy == "Unknown", "the first health status")

        absent = ("Absent", "DriverAbsent")
        until(lambda: around.nvml() == absent, "the source that is not there")
        agent.kernel_line(XID79.format(pci="0000:3b:00"))
        until(lambda: around.healthy == "False", "the fault")
        until(lambda: around.status.get("health") == "Unhealthy", "the health status")
        node = NodeView(metadata=ObjectMeta(name=NODE, uid=around.status["nodeUID"]))
        published = msgspec.convert(around.health(NODE), HealthView)
        assert staleness(published, node, {}, time.time()) == ""


def gpus_on_this_bus() -> bool:
    try:
        return bool(pci_functions())
    except OSError:
        return True
