"""An API server that takes long: whoever sits at a terminal is told who is waited for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.support.remediator.kubectl_cluster import cluster


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("screen", [Screen, io.StringIO])
def test_walk3_a_slow_server_is_named_once_and_only_on_a_terminal(
    screen: type[io.StringIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remediator.kubectl.typed.patience.SLOW_S", 0.0)
    with cluster(tmp_path) as kubectl:
        monkeypatch.setattr("tests.support.remediator.kubectl_cluster.Stream", screen)
        code, _, err = kubectl("list", "--request-timeout", "20s")
    assert code == 0
    told = f"still waiting for {kubectl.hosted.server.url}, up to 20 s for each request"
    assert err.count(told) == (1 if screen is Screen else 0)
