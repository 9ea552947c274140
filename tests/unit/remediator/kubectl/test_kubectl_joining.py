"""A person's word that is added to a session while others write to it, too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remediator.kubectl.cli import parser
from remediator.kubectl.cluster import GROUP_PATH, Cluster, connect
from remediator.kubectl.command import CommandError
from remediator.kubectl.request import join
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import QUARANTINES, session

NAME = "gpu-7-0a1b2c3d"
PATH = f"{GROUP_PATH}/gpuquarantines/{NAME}"
ANN = Cause(source="Human", reason="Requested", message="noise", by="ann")
BOB = {"source": "Human", "reason": "Requested", "message": "smoke", "by": "bob"}


def joined(folder: Path, meanwhile: dict[str, Any], level: str, *, stops: bool) -> tuple[Any, str]:
    """The session's spec after ann joined, while somebody else wrote `meanwhile`; what she was
    told.
    """

    async def told(kubectl: Kubectl) -> str:
        words = ["--kubeconfig", str(kubectl.kubeconfig), "fleet"]
        async with connect(parser().parse_args(words), print) as one:
            seen = await one.session(NAME)
            assert seen is not None
            await one.patch(PATH, meanwhile)
            return await answer(one, seen)

    async def answer(one: Cluster, seen: QuarantineView) -> str:
        try:
            return await join(one, seen, ANN, level, stops=stops)
        except CommandError as error:
            return f"refused: {error}"

    marked = session(NAME, "gpu-7", "Marked", "m", spec={"level": "Cordon"})
    with cluster(folder, lambda hosted: load(hosted, QUARANTINES, marked)) as found:
        said = asyncio.run(told(found))
        return found.get(QUARANTINES, NAME)["spec"], said


def test_what_a_detector_added_meanwhile_stays(tmp_path: Path) -> None:
    detector = {"source": "Detector", "reason": "Xid95UncontainedMemoryError"}
    spec, said = joined(tmp_path, {"spec": {"causes": [detector]}}, "Cordon", stops=False)
    assert [cause["reason"] for cause in spec["causes"]] == [detector["reason"], "Requested"]
    assert "was added" in said


@pytest.mark.parametrize("level", ["Cordon", "Drain"])
def test_what_another_person_asked_for_meanwhile_is_not_overwritten(
    tmp_path: Path, level: str
) -> None:
    """Ann said yes to what she was shown, which is no more so."""
    bobs = {"spec": {"causes": [BOB], "level": "Drain"}}
    spec, said = joined(tmp_path, bobs, level, stops=True)
    assert spec["level"] == "Drain"
    assert [cause["by"] for cause in spec["causes"]] == ["bob"]
    assert said.startswith("refused:")
    assert "ask again" in said
