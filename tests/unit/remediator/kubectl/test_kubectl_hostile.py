"""Hostile text in every field that is printed: kernel lines, annotations, objects of anybody."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from rules.text.printable import printable
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    PAUSES,
    QUARANTINES,
    quarantined,
    session,
    sick,
)
from tests.support.remediator.kubectl_objects import node as node_of
from tests.support.remediator.record_objects import RECORDS, records

EVIL = "\x1b[2J\x1b]0;owned\x07\r\nroot# \u202egnp.exe\u2028\U000e0041{0}%s[red]"
NAME = "gpu-evil"
SESSION = f"{NAME}-0badcafe"
COMMANDS = (
    ("why", NAME), ("why", NAME, "-o", "wide"), ("fleet", "-o", "wide"),
    ("plan",), ("plan", "-o", "wide"), ("why", "gone"),
    ("resume", "--yes"), ("fleet",), ("mark-replaced", NAME, "--reason", "x"),
    ("hold", "held", "--reason", "x"),
)  # fmt: skip
OWN_ANSWERS = frozenset({"plan", "fleet", "hold"})
"""What shows little or nothing of what others wrote."""


def poisoned(value: Any, keep: frozenset[str]) -> Any:
    """Every string but the enumerated ones and times becomes hostile."""
    if isinstance(value, dict):
        return {k: v if k in keep else poisoned(v, keep) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(item, keep) for item in value]
    return value + EVIL if isinstance(value, str) else value


KEPT = frozenset(
    {"phase", "mode", "phaseSince", "level", "severity", "source", "nodeName", "at", "status",
     "health", "firstSeen", "lastSeen", "observedAt", "publisher", "bootID", "type"}
)  # fmt: skip
KEPT_OF_RECORDS = KEPT | {"scope", "since", "lastAt", "endedAt", "outcome", "lemonSince"}


def fill(hosted: HostedServer) -> None:
    node = quarantined(
        NAME, SESSION, annotations={"gpuward.io/hold": EVIL, "gpuward.io/repaired": EVIL}
    )
    load(hosted, r.NODES, node)
    health = sick(NAME, line=EVIL)
    health["status"] = poisoned(health["status"], KEPT)
    load(hosted, HEALTHS, health)
    block = {
        "pdb": "a/b",
        "pods": {"named": [{"name": "a/c"}]},
        "owner": "Job a/d",
        "why": "w",
        "remedy": "r",
    }
    one = session(
        SESSION, NAME, "Draining", "m", steps=("Pending", "Marked"),
        conditions=[{"type": "Blocked", "status": "True", "reason": "R", "message": "m"}],
        drain={"evicted": 1, "blocked": [block]},
    )  # fmt: skip
    one["spec"]["release"] = {"by": "b", "reason": "r"}
    one["spec"]["causes"].append({"source": "Human", "message": "m", "by": "b"})
    gone = session("gone-0badcafe", "gone", "NodeGone", "m", evidence={
        "incidents": [{"reason": EVIL, "severity": EVIL, "evidence": [EVIL]}, EVIL],
    })  # fmt: skip
    for obj in (one, gone):
        obj["spec"] = poisoned(obj["spec"], KEPT)
        obj["status"] = poisoned(obj["status"], KEPT)
    load(hosted, QUARANTINES, one, gone)
    waits = [
        {"type": "Blocked", "status": "True", "reason": "Budget", "message": EVIL},
        {"type": "Storm", "status": "True", "reason": f"CorrelatedCause{EVIL}", "message": "m"},
    ]
    held = ("held", "0; reboot", "1; reboot")
    load(hosted, QUARANTINES, *(
        session(f"waits-{number}", on, "Pending", "m", conditions=waits)
        for number, on in enumerate(held)
    ))  # fmt: skip
    record, *_ = records()
    load(hosted, RECORDS, {**record, "status": poisoned(record["status"], KEPT_OF_RECORDS)})
    load(hosted, r.NODES, node_of("held", annotations={"gpuward.io/hold": EVIL}))
    spec = {"scope": {"all": True}, "by": EVIL, "reason": EVIL}
    pause = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUWardPause",
        "metadata": {"name": "p"},
    }
    load(hosted, PAUSES, {**pause, "spec": spec})


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("evil"), fill) as kubectl:
        yield kubectl


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(c) for c in COMMANDS])
def test_nothing_printed_can_drive_a_terminal(evil: Kubectl, command: tuple[str, ...]) -> None:
    code, out, err = evil(*command)
    assert code == 0
    assert "root#" in out or command[0] in OWN_ANSWERS
    assert [line for line in (out + err).split("\n") if not line.isprintable()] == []
    assert not any(line.strip().startswith("root#") for line in out.split("\n"))


@pytest.mark.parametrize("command", [("why", NAME), ("fleet",), ("plan",)])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents_escape_it_too(evil: Kubectl, command: tuple[str, ...], form: str) -> None:
    code, out, _ = evil(*command, "-o", form)
    assert code == 0
    assert [line for line in out.split("\n") if not line.isprintable()] == []


def test_objects_that_nobody_can_read_are_counted_and_named(
    tmp_path: Path,
) -> None:
    def with_strangers(hosted: HostedServer) -> None:
        load(hosted, r.NODES, node_of(NAME))
        load(hosted, QUARANTINES, session(SESSION, NAME, "Marked", "m"))
        for name in ("newer-1", "newer-2"):
            stranger = session(name, NAME, "Marked", "m")
            load(hosted, QUARANTINES, {**stranger, "spec": 5})

    with cluster(tmp_path, with_strangers, led=True) as kubectl:
        code, out, err = kubectl("fleet", "-o", "wide")

    assert code == 0
    assert SESSION in out
    assert err.count("\n") == 1
    assert "2 of gpuquarantines left out" in err
    assert "newer-1, newer-2" in err


@pytest.mark.parametrize(
    "arguments", [";id", "$(id)", " --yes", "`id`", "|sh", "&id", "\n", '"', "é"]
)
def test_text_of_an_agent_is_never_part_of_a_command(tmp_path: Path, arguments: str) -> None:
    """An agent that was taken over writes about its node, and an operator pastes as somebody
    else.
    """
    health = sick(NAME)
    incident, gpu = health["status"]["incidents"][0], health["status"]["gpus"][0]
    incident["reason"] += arguments
    incident["gpus"] = [gpu["uuid"]]
    gpu["pci"] = f"0:9d{arguments}"

    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NODES, node_of(NAME))
        load(hosted, HEALTHS, health)
        record, *_ = records()
        taken = {**record["status"], "uuid": f"{gpu['uuid']}{arguments}"}
        load(hosted, RECORDS, {
            **record, "metadata": {"name": gpu["uuid"].lower()}, "status": taken,
        })  # fmt: skip

    with cluster(tmp_path, fill) as kubectl:
        code, out, _ = kubectl("why", NAME, "-o", "wide")
    shown = printable(arguments)
    assert code == 0
    assert f"Xid95UncontainedMemoryError{shown}" in out, "it is shown, but not in a command"
    commands = re.findall(r"(?:gpuward-agent explain|nvidia-smi|kubectl) .*", out)
    assert [command for command in commands if shown.strip() in command] == []
