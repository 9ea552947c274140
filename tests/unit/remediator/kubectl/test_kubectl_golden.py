"""What every command prints, for a healthy, an unknown, a blocked and an absent node.

`UPDATE_GOLDEN=1` rewrites the files in tests/golden/kubectl.
"""

import os
import re
from pathlib import Path

import pytest

from remediator.kubectl.command import COMMANDS
from tests.support.remediator.kubectl_cluster import REPOSITORY, Kubectl, cluster
from tests.support.remediator.kubectl_fleet import load_fleet, load_nodes
from tests.support.remediator.kubectl_objects import STATES

GOLDEN = REPOSITORY / "tests" / "golden" / "kubectl"
ABSENT = "gpu-never"
REASON = ("--reason", "fan noise")
NODES = (*STATES, ABSENT)


OTHER_STATES = (
    "gpu-budget", "gpu-storm", "gpu-held", "gpu-paused", "gpu-opted-out", "gpu-shadow",
    "gpu-replace", "gpu-cancelled", "gpu-cordoned",
    "gpu-no-agent",
)  # fmt: skip


def each(*arguments: str, after: tuple[str, ...] = (), nodes: tuple[str, ...] = NODES):
    return tuple((*arguments, node, *after) for node in nodes)


UNHEALTHY = 'jsonpath={.items[?(@.health=="Unhealthy")].metadata.name}'
LOOKS = {
    "fleet": (
        ("fleet",),
        ("fleet", "-o", "wide"),
        ("fleet", "-o", "json"),
        ("fleet", "-o", UNHEALTHY),
    ),
    "why": each("why"),
    "why-other-states": each("why", nodes=OTHER_STATES),
    "why-wide": each("why", after=("-o", "wide"), nodes=("gpu-blocked",)),
    "why-yaml": each("why", after=("-o", "yaml")),
    "plan": (("plan",), *each("plan"), ("plan", "gpu-blocked", "-o", "json")),
    "evidence": (("evidence", "gpu-blocked"), ("evidence", "gpu-healthy")),
    "preflight": (("preflight",), ("preflight", "-o", "json")),
}
ACTS = {
    "quarantine": (("quarantine", "gpu-healthy", *REASON),
                   ("quarantine", "gpu-blocked", *REASON),
                   *each("quarantine", after=(*REASON, "--yes")),
                   ("quarantine", "gpu-healthy", *REASON)),
    "release": (("release", "gpu-blocked", *REASON), *each("release", after=(*REASON, "--yes"))),
    "approve": (
        *each("approve"),
        ("approve", "gpu-blocked", "--step", "RestartNode"),
        ("approve", "gpu-blocked", "--step", "RestartNode", "--yes", *REASON),
    ),
    "mark-replaced": each("mark-replaced", after=REASON),
    "hold": each("hold", after=REASON),
    "unhold": each("unhold", nodes=(*NODES, "gpu-held")),
    "pause": (
        ("pause", *REASON),
        *each("pause", after=REASON),
        ("pause", "--until", "2026-03-05T14:00:00Z", "-l", "gpuward.io/health=unknown", *REASON),
        ("pause", "--until", "2026-03-04T14:00:00Z", *REASON),
    ),
    "uninstall": (("uninstall",), ("uninstall", "--yes"), ("uninstall", "--yes")),
    "resume": (("resume", "nothing"), ("resume",), ("resume", "gpu-paused"),
               ("resume", "pause-0badcafe"), ("resume",)),
}  # fmt: skip


def compare(name: str, kubectl: Kubectl, commands: tuple[tuple[str, ...], ...]) -> None:
    message = "\n".join(kubectl.transcript(*command) for command in commands)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(message, encoding="utf-8")
    assert message == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_looking_prints_this(
    name: str, fleet: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compare(name, fleet, LOOKS[name])


@pytest.mark.parametrize("name", sorted(ACTS))
def test_acting_prints_this(name: str, tmp_path: Path) -> None:
    fill = load_nodes if name == "uninstall" else load_fleet
    with cluster(tmp_path, fill) as kubectl:
        compare(name, kubectl, ACTS[name])


def test_every_golden_file_is_of_a_command() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*LOOKS, *ACTS}


@pytest.mark.parametrize("node", [*STATES, *OTHER_STATES])
def test_why_shows_what_to_do_in_the_first_15_lines(node: str, fleet: Kubectl) -> None:
    """Headline, status, blocker, next step and actions come first; the rest follows."""
    lines = fleet("why", node)[1].splitlines()
    first = {"status", "blocker", "next", "actions"}
    labels = [line[:9].strip() if number else "" for number, line in enumerate(lines)]
    below = next(n for n, label in enumerate(labels) if label and label not in first)
    assert below <= 15
    assert not first.intersection(labels[below:])


EXAMPLE = re.compile(r"^```\n(\$ kubectl gpuward .*?)\n```$", re.MULTILINE | re.DOTALL)


def test_the_page_of_the_commands_shows_every_command_as_it_is() -> None:
    """Each example in docs/cli.md is a part of a golden file, and no command is left out."""
    path = REPOSITORY / "docs" / "cli.md"
    golden = [one.read_text(encoding="utf-8") for one in sorted(GOLDEN.glob("*.txt"))]
    parts = [part.rstrip("\n") for text in golden for part in re.split(r"\n(?=\$ )", text)]
    page = path.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDEN"):
        by_command = {part.split("\n")[0]: part for part in reversed(parts)}
        page = EXAMPLE.sub(lambda old: f"```\n{by_command[old[1].split(chr(10))[0]]}\n```", page)
        path.write_text(page, encoding="utf-8")
    examples = EXAMPLE.findall(page)
    assert [example for example in examples if example not in parts] == []
    assert set(re.findall(r"^### (\S+)$", page, re.MULTILINE)) == {one.name for one in COMMANDS}
    for command in COMMANDS:
        assert any(one.startswith(f"$ kubectl gpuward {command.name}") for one in examples)
