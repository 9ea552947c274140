"""Every Xid of the catalog has its documented result on each simulated kind of node."""

import re
from pathlib import Path

import pytest

from hack.sim.driver import NODES
from hack.sim.driver.store import load
from rules.catalog.xid import catalog
from rules.judge.incident import Incident
from tests.support.scenario.judgement_world import World

PAGE = Path(__file__).parents[4] / "docs" / "xid.md"
ROW = re.compile(r"\|(\d+)\|\w+\|[^|]+\|(\w+)\|(\w+), (\w+)(?:, (\w+))?\|")
DOCUMENTED = {
    int(found[1]): (found[2], found[3], found[4], found[5] or "None")
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if (found := ROW.match(line))
}
KINDS = sorted(path.stem for path in NODES.glob("*.yaml"))
BEFORE_R570 = ("a100-4-partial-nvlink", "t4-1")
"""The simulated nodes with an old driver."""


def judged(xid: int, kind: str) -> Incident:
    """Return the incident of one line on a healthy node of this kind, after the context delay."""
    node = load(NODES / f"{kind}.yaml")
    first = {**node.get("defaults", {}), **node["gpus"][0]}
    world = World(1, driver=node["driver"]["version"], architecture=first["architecture"]).start()
    world.kernel(f"NVRM: Xid (PCI:0000:10:00): {xid}, pid=77, name=python, some text")
    world.advance(31)  # longer than any context
    return world.only()


def columns(incident: Incident) -> tuple[str, str, str, str]:
    row = incident.row
    return str(row.klass), str(row.severity), str(row.level), str(row.action)


def test_the_page_documents_the_catalog() -> None:
    assert set(DOCUMENTED) <= set(catalog())
    assert len(DOCUMENTED) > 60


@pytest.mark.parametrize("kind", KINDS)
def test_every_documented_xid_gives_its_columns(kind: str) -> None:
    found = {xid: columns(judged(xid, kind)) for xid in DOCUMENTED}
    documented = dict(DOCUMENTED)
    if kind in BEFORE_R570:
        # The driver has no answer to a 109 yet, so nothing is waited for.
        documented[109] = ("Decisive", *documented[109][1:])
    assert found == documented


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_number_reports_and_never_acts(kind: str) -> None:
    others = [xid for xid in (*range(1, 200), 999, 65_535) if xid not in DOCUMENTED]
    found = {columns(judged(xid, kind))[1:3] for xid in others}
    assert found == {("Info", "Report")}
