"""A pause that is over leaves a trace: who paused what, why, until when, and who resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kubectl.past.pauses import KEPT, outlived, paused_lately
from remediator.view.timeline import node_timeline
from rules.api.metadata import ObjectMeta
from rules.api.nodes import PauseView
from rules.api.quarantine import PauseEnded, PauseScope, PauseSpec
from rules.api.timestamps import format_time
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import PAUSES, Object

DAY_S = 86_400.0
NOW = 1_800_000_000.0


def pauses_of(kubectl: Kubectl) -> list[Object]:
    found, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(PAUSES))
    return found


def test_a_resumed_pause_says_who_ended_it_and_is_over_everywhere(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        code, out, err = kubectl("resume", "pause-0badcafe")
        assert (code, out, err) == (0, "ended pause-0badcafe, paused by ann: fire drill\n", "")
        (kept,) = pauses_of(kubectl)
        was = kept["spec"]["ended"]
        assert was == {"by": "kubernetes-admin", "until": "2026-03-05T14:00:00Z"}
        assert kept["spec"]["until"] < was["until"]
        assert "paused for" not in kubectl("list")[1]
        assert "pause-0badcafe" not in kubectl("fleet")[1]
        assert kubectl("resume", "--yes")[1] == "nothing was paused\n"
        assert kubectl("resume", "pause-0badcafe")[1] == "pause-0badcafe was over already\n"
        told = kubectl("history", "--since", "0")[1]
        (line,) = [one for one in told.splitlines() if one.startswith("pause-0badcafe")]
        assert " ann " in line
        assert "kubernetes-admin" in line
        assert line.endswith("fire drill")
        of_node = kubectl("history", "gpu-paused")[1]
        assert "paused" in of_node
        assert "pause ended" in of_node
        assert "pause ended" not in kubectl("history", "gpu-held")[1]


def test_where_it_may_not_be_written_it_goes(tmp_path: Path) -> None:
    """A pause has to end, with or without its trace."""

    def refuse(hosted: HostedServer) -> None:
        load_fleet(hosted)
        client = hosted.server.client
        kept = hosted.run(client.get(r.CUSTOM_RESOURCE_DEFINITIONS, "gpuwardpauses.gpuward.io"))
        schema = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        schema["properties"]["until"]["maxLength"] = 1
        hosted.run(client.update(r.CUSTOM_RESOURCE_DEFINITIONS, kept))

    with cluster(tmp_path, refuse) as kubectl:
        code, out, _ = kubectl("resume", "pause-0badcafe")
        assert code == 0
        assert "the record of pause-0badcafe could not be kept: " in out
        assert pauses_of(kubectl) == []


def test_definitions_that_do_not_know_who_ended_it_keep_that_it_is_over(tmp_path: Path) -> None:
    def older(hosted: HostedServer) -> None:
        load_fleet(hosted)
        client = hosted.server.client
        kept = hosted.run(client.get(r.CUSTOM_RESOURCE_DEFINITIONS, "gpuwardpauses.gpuward.io"))
        schema = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        del schema["properties"]["ended"]
        hosted.run(client.update(r.CUSTOM_RESOURCE_DEFINITIONS, kept))

    with cluster(tmp_path, older) as kubectl:
        assert kubectl("resume", "pause-0badcafe")[0] == 0
        (kept,) = pauses_of(kubectl)
        assert "ended" not in kept["spec"]
        assert "paused for" not in kubectl("list")[1]


def test_the_next_pause_forgets_what_history_keeps_no_longer(tmp_path: Path) -> None:
    def old(hosted: HostedServer) -> None:
        load_fleet(hosted)
        for name, until in (
            ("pause-00000001", "2020-01-01T00:00:00Z"),
            ("pause-00000002", "2099-01-01T00:00:00Z"),
            ("pause-00000003", "whenever"),
            ("by-hand", "2020-01-01T00:00:00Z"),
        ):
            spec = {"scope": {"nodes": ["gpu-held"]}, "until": until}
            load(hosted, PAUSES, {"kind": "GPUWardPause", "apiVersion": "gpuward.io/v1alpha1",
                                  "metadata": {"name": name}, "spec": spec})  # fmt: skip

    with cluster(tmp_path, old) as kubectl:
        code, out, _ = kubectl("pause", "--reason", "x")
        names = {one["metadata"]["name"] for one in pauses_of(kubectl)}
        made = out.split(" as ", 1)[1].split(",", 1)[0]
    assert code == 0
    in_force = {"pause-00000002", "pause-00000003", "pause-0badcafe", made}
    assert names == in_force | {"by-hand"}


def pause(name: str, until_s: float | None, **spec: Any) -> PauseView:
    until = format_time(NOW + until_s) if until_s is not None else ""
    made = ObjectMeta(name=name, creation_timestamp=format_time(NOW - 9 * DAY_S))
    scope = PauseScope(nodes=("a",))
    return PauseView(metadata=made, spec=PauseSpec(scope=scope, until=until, **spec))


@pytest.mark.parametrize("until_s", [None, 1.0, 40 * DAY_S])
def test_one_in_force_is_never_forgotten_whatever_its_record_says(until_s: float | None) -> None:
    ended = PauseEnded(by="mallory", until="2020-01-01T00:00:00Z")
    assert outlived([pause("pause-00000001", until_s, ended=ended)], NOW) == ()


def test_of_many_that_are_over_the_latest_stay() -> None:
    many = [pause(f"pause-{n:08x}", -60.0 - n) for n in range(KEPT + 3)]
    names = {one.metadata.name for one in outlived(many, NOW)}
    assert names == {f"pause-{KEPT + n:08x}" for n in range(3)}


def test_history_tells_of_those_that_were_in_force_at_that_time() -> None:
    week, old, now = pause("week", -6 * DAY_S), pause("old", -8 * DAY_S), pause("now", None)
    found = paused_lately([week, old, now], None, 7 * DAY_S, NOW)
    assert {one.metadata.name for one in found} == {"week", "now"}
    assert len(paused_lately([week, old, now], None, 0.0, NOW)) == 3


def test_the_timeline_of_a_node_says_who_paused_it_and_who_ended_that() -> None:
    ended = PauseEnded(by="ben", until="")
    one = pause("p", -60.0, by="ann", reason="upgrade", ended=ended)
    items = node_timeline("a", [], None, (), NOW, [one])
    assert [(i.at, i.what, i.by, i.said) for i in items] == [
        (format_time(NOW - 9 * DAY_S), "paused", "ann", "p: upgrade"),
        (format_time(NOW - 60.0), "pause ended", "ben", "p"),
    ]
    expired = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, ended=None))
    last = node_timeline("a", [], None, (), NOW, [expired])[-1]
    assert (last.what, last.by, last.said) == ("pause ended", "gpuward", "p, its time was over")
