"""What the agent adds to a health status (publisher, rules version), and the restore of the
published status.
"""

from pathlib import Path

import pytest

from agent.daemon.judgement import (
    HEARTBEAT_EVERY_S,
    KEPT_OTHERS,
    Composer,
    Judgement,
    LoadedRules,
    NodeSettings,
    Pod,
    load_rules,
    pod_of,
)
from agent.settings import VERSION, SettingsError
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.observation import NodeSeen, SourceName, SourceState, Tick
from rules.judge.state import initial
from tests.support.scenario.judgement_world import START, World

AT = 1_800_000_000.0
LOADED = LoadedRules(DEFAULT_RULES, "test")


def heartbeats(*times: float) -> list[str]:
    composer = Composer(Pod(), LOADED)
    return [composer.compose(initial(AT), at).status.publisher.heartbeat for at in times]


def test_an_agent_in_a_pod_sends_no_heartbeat() -> None:
    environ = {"POD_NAME": "agent-x", "POD_NAMESPACE": "gpuward", "POD_UID": "u-1"}
    publisher = Composer(pod_of(environ), LOADED).compose(initial(AT), AT).status.publisher
    assert (publisher.pod, publisher.pod_uid, publisher.heartbeat) == (
        "gpuward/agent-x",
        "u-1",
        "",
    )


@pytest.mark.parametrize("missing", ["POD_NAME", "POD_NAMESPACE", "POD_UID"])
def test_a_pod_without_all_fields_is_ignored(missing: str) -> None:
    environ = {"POD_NAME": "agent-x", "POD_NAMESPACE": "gpuward", "POD_UID": "u-1"}
    assert pod_of({name: value for name, value in environ.items() if name != missing}) == Pod()


def test_the_heartbeat_is_sent_every_five_minutes() -> None:
    first, same, next_beat = heartbeats(AT, AT + HEARTBEAT_EVERY_S - 1, AT + HEARTBEAT_EVERY_S)
    assert first == same
    assert next_beat > first


def test_the_heartbeat_is_sent_at_once_if_the_clock_went_back() -> None:
    first, after = heartbeats(AT, AT - 3600)
    assert after < first


def test_rules_of_a_file_have_a_version_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("apiVersion: gpuward.io/v1alpha1\nkind: Rules\n")
    assert load_rules("").version == VERSION
    assert load_rules(str(path)).version.startswith(f"{VERSION}+")


def test_a_rules_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="name a readable file"):
        load_rules(str(tmp_path / "nothing"))
    path = tmp_path / "rules.yaml"
    path.write_text("apiVersion: gpuward.io/v1alpha1\nkind: Rules\nthresholds: {NoSuch: {}}\n")
    with pytest.raises(SettingsError, match="NoSuch"):
        load_rules(str(path))
    path.write_text("kind: Rules\nthresholds:\n  BootGrace: {value: 1}\n  BootGrace: {value: 2}\n")
    with pytest.raises(
        SettingsError, match=r"thresholds\.BootGrace is given twice, in lines 3 and 4"
    ):
        load_rules(str(path))
    path.write_text("[" * 5_000)
    with pytest.raises(SettingsError, match="nested too deeply"):
        load_rules(str(path))
    path.write_text("{")
    with pytest.raises(SettingsError, match="rules file"):
        load_rules(str(path))


@pytest.mark.parametrize("waited", [0, KEPT_OTHERS + 1], ids=["at once", "late"])
@pytest.mark.parametrize("asked", [True, False])
def test_the_release_request_is_known_however_late_the_status_is_read(
    waited: int, *, asked: bool
) -> None:
    before = World().start()
    before.annotations["gpuward.io/release-gpu"] = "swapping a card"
    before.node()
    before.source(SourceName.NVML, SourceState.RELEASED)
    who = NodeSettings(node_name="n1", expected_gpus=None, boot_id=before.boot)
    judgement = Judgement(who, DEFAULT_RULES, lambda: START)
    annotations = before.annotations if asked else {}
    judgement.observe(
        NodeSeen(at=START, name="n1", uid="node-uid-1", boot_id=before.boot,
                 annotations=annotations, labels={})
    )  # fmt: skip
    for _ in range(waited):
        judgement.observe(Tick(at=START))
    judgement.remember(before.published().status)
    assert judgement.state.standing_down is asked
