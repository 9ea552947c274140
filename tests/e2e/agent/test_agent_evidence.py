"""A real agent saves evidence once when its node is quarantined."""

import json
from pathlib import Path

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, Resource
from hack.sim.driver import NODES as DESCRIPTIONS
from rules.api.evidence import digest
from rules.api.names import ANNOTATION_SESSION
from tests.support.agent.agent_process import AgentProcess, running

NODE = "gpu-1"
EVIDENCES = Resource("gpuward.io", "v1alpha1", "gpuevidences", False, "GPUEvidence")
LINES = (
    "4,1,1000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=python, GPU has "
    "fallen off the bus.\n"
    "6,2,2000000,-;EXT4-fs (sda1): mounted filesystem\n"
    "4,3,3000000,-;pcieport 0000:1a:01.0: AER: \x1b]0;evil\n"
)


async def test_evidence_of_a_quarantined_node(cluster, tmp_path: Path) -> None:
    await cluster.add_nodes(NODE)
    log = tmp_path / "kmsg.log"
    log.write_text(LINES)
    description = tmp_path / "node.yaml"
    description.write_text((DESCRIPTIONS / "h100-8-nvswitch.yaml").read_text())
    agent = AgentProcess(
        tmp_path, cluster.plane.kubeconfig, NODE, nvml=f"sim:{description}", kmsg=str(log)
    )

    async def kept():
        try:
            return await cluster.client.get(EVIDENCES, "session-1")
        except ApiError:
            return None

    note = json.dumps({"session": "session-1"})
    patch = {"metadata": {"annotations": {ANNOTATION_SESSION: note}}}
    with running(agent):
        await cluster.client.patch(NODES, NODE, patch)
        found = await cluster.until(kept, "the evidence")
        spec = found["spec"]
        assert spec["nodeName"] == NODE
        assert spec["nodeUID"] == (await cluster.node(NODE))["metadata"]["uid"]
        assert "Xid (PCI:0000:1b:00): 79" in spec["kernelLog"]
        assert "EXT4" not in spec["kernelLog"]
        assert "AER: \\x1b]0;evil" in spec["kernelLog"]
        assert len(spec["gpus"]) == 8
        assert all(gpu["serial"] and gpu["vbios"] and gpu["readings"] for gpu in spec["gpus"])
        assert digest(spec) == spec["sha256"], "the same after its trip through the API server"
        assert "ownerReferences" not in found["metadata"]
        assert agent.stop() == 0
        agent.start()
        log.write_text(f"{LINES}4,4,4000000,-;NVRM: later\n")
        await cluster.until(lambda: watches_again(agent), "Watching the node works again")
        again = await kept()
        assert again is not None
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def watches_again(agent: AgentProcess) -> bool:
    return agent.log.read_text().count("Reading the kernel log") >= 2
