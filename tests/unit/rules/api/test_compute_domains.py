"""Which ComputeDomains use a node, and how their IMEX daemons are restarted."""

from collections.abc import Mapping
from typing import Any

import pytest

from rules.api import compute_domains

UID = "19bc1698-3153-428b-867f-b0cda2102149"
OTHER = "19bc1698-3153-428b-867f-b0cda2102150"
RESTARTS = f"kubectl delete pods -A -l resource.nvidia.com/computeDomain={UID}"
LABELLED = {compute_domains.LABEL: UID}


def made(uid: object = UID, nodes: object = (), name: str = "llm") -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": uid}
    listed = [*nodes] if isinstance(nodes, tuple) else nodes
    return {"metadata": metadata, "status": {"status": "Ready", "nodes": listed}}


@pytest.mark.parametrize(
    ("objects", "labels", "commands"),
    [
        pytest.param(
            [made(nodes=({"name": "n0"},))], {}, [RESTARTS], id="its status has the node"
        ),
        pytest.param([made()], LABELLED, [RESTARTS], id="the node has its label"),
        pytest.param([made(nodes=({"name": "n1"},))], {}, [], id="another node"),
        pytest.param([made(OTHER)], LABELLED, [], id="another ComputeDomain"),
        pytest.param([], LABELLED, [], id="deleted"),
        pytest.param([made("x; reboot", ({"name": "n0"},))], {}, [""], id="UID with a command"),
        pytest.param([made("", ({"name": "n0"},))], {}, [""], id="no UID"),
        pytest.param([made(7, ({"name": "n0"},))], {}, [""], id="UID of another type"),
        pytest.param([{"metadata": None, "status": []}, {}], {}, [], id="no fields"),
        pytest.param([made(nodes="n0"), made(nodes=(None, 7))], {}, [], id="nodes of other types"),
    ],
)
def test_the_daemons_of_the_compute_domain_are_restarted(
    objects: list[Mapping[str, Any]], labels: dict[str, str], commands: list[str]
) -> None:
    found = compute_domains.used_on(objects, {"n0": labels})
    assert [one.restart_command for one in found] == commands


def test_the_clause_names_the_compute_domain_in_one_line() -> None:
    nodes = ({"name": "n0", "status": "NotReady"}, {"name": "n1"})
    (found,) = compute_domains.used_on([made(nodes=nodes, name="llm\n\x1b[2J")], {"n0": {}})
    assert found.clause("n0") == (
        r"ComputeDomain default/llm\x0a\x1b[2J (Ready, 2 nodes, this one NotReady)"
    )
    assert found.clause().endswith("(Ready, 2 nodes)")


def test_at_most_eight_are_shown() -> None:
    many = [made(nodes=({"name": "n0"},), name=f"job-{at}") for at in range(20)]
    assert len(compute_domains.used_on(many, {"n0": {}})) == compute_domains.MOST
