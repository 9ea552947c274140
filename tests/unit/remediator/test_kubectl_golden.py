"""What every command prints, for a healthy, an unknown, a blocked and an absent node.

``UPDATE_GOLDEN=1`` rewrites the files in tests/golden/kubectl.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubectl_cluster import REPOSITORY, Kubectl, cluster
from kubectl_fleet import load_fleet
from kubectl_objects import STATES

GOLDEN = REPOSITORY / "tests" / "golden" / "kubectl"
ABSENT = "gpu-never"
REASON = ("--reason", "fan noise")
NODES = (*STATES, ABSENT)
OTHER_STATES = (
    "gpu-budget", "gpu-storm", "gpu-held", "gpu-paused", "gpu-opted-out", "gpu-shadow",
    "gpu-replace", "gpu-cancelled", "gpu-cordoned",
    "gpu-no-agent",
)  # fmt: skip


def each(*words: str, after: tuple[str, ...] = (), nodes: tuple[str, ...] = NODES):
    return tuple((*words, node, *after) for node in nodes)


LOOKS = {
    "list": (("list",), ("list", "--all", "-o", "wide"), ("-o", "yaml", "list", "--all")),
    "fleet": (("fleet",), ("fleet", "-o", "wide"), ("fleet", "-o", "json")),
    "why": each("why"),
    "why-other-states": each("why", nodes=OTHER_STATES),
    "why-wide": each("-o", "wide", "why", nodes=("gpu-blocked",)),
    "why-yaml": each("why", after=("-o", "yaml")),
    "history": (*each("history"), ("history", "gpu-gone", "-o", "wide")),
    "show": (("show", "gpu-blocked-0badcafe"), ("show", "nothing")),
    "plan": (("plan",), *each("plan"), ("plan", "gpu-blocked", "-o", "json")),
    "preflight": (("preflight",), ("preflight", "-o", "json")),
}
ACTS = {
    "quarantine": (*each("quarantine", after=(*REASON, "--yes")),
                   ("quarantine", "gpu-healthy", *REASON)),
    "release": each("release", after=REASON),
    "repaired": each("repaired", after=REASON),
    "hold": each("hold", after=REASON),
    "unhold": each("unhold", nodes=(*NODES, "gpu-held")),
    "pause": (
        ("pause", *REASON),
        *each("pause", after=REASON),
        ("pause", "--until", "2026-03-05T14:00:00Z", "-l", "gpuward.io/health=unknown", *REASON),
        ("pause", "--until", "2026-03-04T14:00:00Z", *REASON),
    ),
    "resume": (("resume", "nothing"), ("resume", "pause-0badcafe"), ("resume",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("looks"), load_fleet) as kubectl:
        yield kubectl


def compare(name: str, kubectl: Kubectl, commands: tuple[tuple[str, ...], ...]) -> None:
    said = "\n".join(kubectl.transcript(*command) for command in commands)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_looking_prints_this(name: str, looked_at: Kubectl) -> None:
    compare(name, looked_at, LOOKS[name])


@pytest.mark.parametrize("name", sorted(ACTS))
def test_acting_prints_this(name: str, tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        compare(name, kubectl, ACTS[name])


def test_every_golden_file_is_of_a_command() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*LOOKS, *ACTS}
