"""Shell completion as docs/cli.md sets it up: the script there, run by a real shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.remediator.kubectl_cluster import REPOSITORY, Kubectl, cluster
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("completion"), load_fleet) as kubectl:
        yield kubectl


def offered(folder: Path, kubeconfig: Path, *words: str) -> set[str]:
    """What the script of the docs offers after `words`, the last of which may be unfinished."""
    page = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(#!/bin/sh\n.*?)```", page, re.DOTALL)
    program = folder / "kubectl-gpuward"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m remediator.kubectl.cli "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script, "kubectl_complete-gpuward", *words],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(REPOSITORY), "HOME": str(folder),
        },
        capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60,
    )  # fmt: skip
    *lines, directive = done.stdout.splitlines()
    assert (done.returncode, done.stderr, directive) == (0, "", ":4")
    return {line.strip() for line in lines if line.strip()}


def test_commands_options_and_nodes_are_offered(fleet: Kubectl, tmp_path: Path) -> None:
    assert offered(tmp_path, fleet.kubeconfig, "pre") == {"preflight"}
    assert "--kubeconfig" in offered(tmp_path, fleet.kubeconfig, "fleet", "--")
    assert offered(tmp_path, fleet.kubeconfig, "fleet", "-o", "") == {"json", "yaml", "wide"}
    for _ in range(10):  # names are offered within two seconds or not at all
        if nodes := offered(tmp_path, fleet.kubeconfig, "why", "gpu-"):
            break
    assert {BLOCKED, HEALTHY} <= nodes


def test_a_cluster_that_is_away_offers_no_node_and_no_error(tmp_path: Path) -> None:
    with cluster(tmp_path) as kubectl:
        kubeconfig = kubectl.kubeconfig
    assert offered(tmp_path, kubeconfig, "why", "gpu-") == set()
