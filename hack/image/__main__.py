"""Write what the images are made of: requirements with hashes and bills of materials
(CycloneDX).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hack.image.requirements import bill_of_materials, render

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "daemonset"
# The image's interpreter and platforms; wheels only, so that no compiler is needed anywhere.
PYTHON = "3.11"
MACHINES = ("x86_64", "aarch64")
BILLS = {
    f"requirements-{image}.txt": (f"gpuward-{image}", f"{image}.cdx.json")
    for image in ("agent", "remediator")
}
TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


def main() -> int:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    agent = project["project"]["dependencies"]
    remediator = project["project"]["optional-dependencies"]["remediator"]
    for name, wanted in (
        ("requirements-agent.txt", agent),
        ("requirements-remediator.txt", agent + remediator),
        ("requirements-build.txt", project["build-system"]["requires"]),
    ):
        reports = [_resolved(wanted, machine) for machine in MACHINES]
        (FOLDER / name).write_text(render(reports), encoding="utf-8")
        if name in BILLS:
            image, bill = BILLS[name]
            text = bill_of_materials(image, project["project"]["version"], reports)
            (FOLDER / bill).write_text(text, encoding="utf-8")
    return 0


def _resolved(wanted: list[str], machine: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--implementation=cp"]
        command += [f"--python-version={PYTHON}", f"--target={folder}", f"--report={report}"]
        command += [f"--platform={tag}_{machine}" for tag in TAGS]
        command += [f"--constraint={REPOSITORY / 'constraints.txt'}", *wanted]
        subprocess.run(command, check=True)
        return json.loads(report.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
