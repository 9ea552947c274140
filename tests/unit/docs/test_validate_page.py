"""The page about the test under load names every check, verdict and floor that there is."""

from __future__ import annotations

from pathlib import Path

import yaml

from rules.validate.contract import EXIT_STATUS
from rules.validate.findings import CheckId
from rules.validate.floors import floor_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "validate.md").read_text(encoding="utf-8")


def test_issue13_04_every_check_and_verdict_is_described() -> None:
    assert [check for check in CheckId if f"`{check}`" not in PAGE] == []
    assert [
        v for v, exit_status in EXIT_STATUS.items() if f"| `{v}` | {exit_status} |" not in PAGE
    ] == []


def test_issue13_04_the_floors_of_the_page_are_those_of_the_rules() -> None:
    for product in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"):
        for check, link in ((CheckId.HOST_TO_DEVICE, ""), (CheckId.PEER, "NV12")):
            floor = floor_of(product, check, link)
            assert floor is None or f"{floor.gigabytes:g} GB/s" in PAGE
    assert floor_of("NVIDIA H100 PCIe", CheckId.HOST_TO_DEVICE, "") is None


def test_the_job_of_the_page_asks_for_no_gpu_and_no_privilege() -> None:
    job = yaml.safe_load(
        PAGE.partition("## In a pod")[2].partition("```yaml\n")[2].partition("```")[0]
    )
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["command"][:2] == ["gpuward-agent", "validate"]
