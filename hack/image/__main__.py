"""Write daemonset/requirements.txt and requirements-build.txt: one pip dry run per platform."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hack.image.requirements import render

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "daemonset"
# The image's interpreter and platforms; wheels only, so that no compiler is needed anywhere.
PYTHON = "3.11"
MACHINES = ("x86_64", "aarch64")
TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


def main() -> int:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    for name, wanted in (
        ("requirements.txt", project["project"]["dependencies"]),
        ("requirements-build.txt", project["build-system"]["requires"]),
    ):
        text = render([_resolved(wanted, machine) for machine in MACHINES])
        (FOLDER / name).write_text(text, encoding="utf-8")
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
