"""How a replica reports an invalid policy file."""

from pathlib import Path

import pytest

from remediator.controller.policy_source import LeaderReport, PolicySource
from remediator.kube.answer import Answer
from remediator.kube.refusals import Refusals
from remediator.metrics import Metrics
from rules.api.nodes import leader_status
from rules.api.quarantine import Mode, QuarantineSpec
from rules.api.writes import CreateSession
from rules.catalog.why_not import Refusal
from rules.policy.policy import by_accident
from tests.support.remediator.virtual_clock import VirtualClock

TYPO = "drain: {fatalTimout: 10m}\n"


def of_path(path: Path) -> PolicySource:
    found = PolicySource(str(path), shadow=False, metrics=Metrics(), on_change=lambda policy: None)
    found.start()
    return found


def test_a_replica_that_starts_with_an_invalid_file_is_in_shadow_and_reports_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(TYPO)
    status = of_path(file).trouble
    assert "drain.fatalTimout is not a known key" in status
    assert status.endswith(
        "; this replica has read no policy since it started and runs in Shadow mode: failed "
        "nodes are not quarantined."
    )


def unread(metrics: Metrics) -> tuple[float | None, float | None]:
    value = metrics.registry.get_sample_value
    return value("gpuward_policy_unread"), value("gpuward_policy_reload_ok")


def test_unintended_shadow_differs_from_the_last_good_policy(tmp_path: Path) -> None:
    file, metrics, clock = tmp_path / "policy.yaml", Metrics(), VirtualClock()
    file.write_text(TYPO)
    heard: list[bool] = []
    replica = PolicySource(
        str(file), shadow=False, metrics=metrics, on_change=lambda p: heard.append(by_accident(p))
    )
    replica.start()
    assert (replica.unread, replica.mode) == (True, Mode.SHADOW)
    assert unread(metrics) == (1, 0)

    file.write_text(f"{TYPO}# still\n")
    replica.reload(clock)
    assert unread(metrics) == (1, 0)

    file.write_text("mode: Shadow\n")
    replica.reload(clock)
    assert (replica.unread, heard) == (False, [False]), "who acts by it hears that it was chosen"
    assert unread(metrics) == (0, 1)

    file.write_text(f"{TYPO}# again\n")
    replica.reload(clock)
    assert unread(metrics) == (0, 0)


def test_after_a_valid_file_the_last_good_policy_is_reported_with_its_time(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("mode: Enforce\n")
    replica, clock = of_path(file), VirtualClock()
    assert replica.trouble == ""

    file.write_text(TYPO)
    replica.reload(clock)
    status = replica.trouble
    assert "; this replica uses the last valid policy since " in status
    assert status.endswith(" UTC.")
    clock.at += 600
    file.write_text(f"{TYPO}# still\n")
    replica.reload(clock)
    assert replica.trouble == status, "since it first was"

    file.write_text("mode: Enforce\n# mended\n")
    replica.reload(clock)
    assert replica.trouble == ""


def of_file(path: Path, text: str) -> PolicySource:
    path.write_text(text)
    found = PolicySource(str(path), shadow=False, metrics=Metrics(), on_change=lambda policy: None)
    found.start()
    return found


def nothing() -> Refusal | None:
    return None


def test_the_lease_has_since_when_the_leader_cannot_act(tmp_path: Path) -> None:
    clock, why = VirtualClock(), "Listing nodes is refused (403)."
    policy = of_file(tmp_path / "policy.yaml", "mode: Enforce\n")
    report = LeaderReport(clock, lambda: why, nothing, policy)
    began = clock.now()
    assert report.annotations() == {}, "a list made again is no news"
    clock.at += 6
    status = leader_status(report.annotations())
    assert (status.unable, status.unable_since) == ("listing nodes is refused (403)", began)
    why = ""
    assert report.annotations() == {}
    why = "PDBs are refused (403)."
    clock.at += 60
    report.annotations()
    clock.at += 6
    status = leader_status(report.annotations())
    assert (status.unable, status.unable_since) == ("PDBs are refused (403)", began + 66)


def test_the_lease_has_unintended_shadow_or_the_last_good_policy(tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "policy.yaml"
    policy = of_file(file, "budgit: {}\n")
    status = leader_status(LeaderReport(clock, lambda: "", nothing, policy).annotations())
    assert "budgit is not a known key" in status.unread
    assert status.last_good == ""

    policy = of_file(file, "mode: Enforce\n")
    file.write_text("budgit: {}\n")
    policy.reload(clock)
    status = leader_status(LeaderReport(clock, lambda: "", nothing, policy).annotations())
    assert "budgit is not a known key" in status.last_good
    assert status.unread == ""


def test_a_missing_right_to_write_sessions_is_on_the_lease(tmp_path: Path) -> None:
    clock = VirtualClock()
    policy = of_file(tmp_path / "policy.yaml", "mode: Enforce\n")
    refusals = Refusals(clock)
    report = LeaderReport(clock, lambda: "", refusals.missing_session_right, policy)
    opened = CreateSession(name="s", spec=QuarantineSpec(node_name="gpu-1"))
    refusals.note(opened, Answer(code=403, body=b'{"kind":"Status","message":"is forbidden"}'))
    report.annotations()
    clock.at += 6
    status = leader_status(report.annotations())
    assert status.unable.startswith("the remediator may not open a session for the node (403")
    clock.at += 600
    assert report.annotations() == {}, "nobody has tried it again for long"
    refusals.note(opened, Answer(code=409, body=b'{"kind":"Status","message":"exists"}'))
    assert refusals.missing_session_right() is None


POOL = "metadata: {name: trial}\nnodeSelector: team=t\n"


@pytest.mark.parametrize(
    ("document", "error"),
    [
        pytest.param(f"{POOL}mod: Shadow\n", "policy trial: mod is not a known key", id="a key"),
        pytest.param(
            f"{POOL}budget: {{}}\n", "policy trial: budget limits the fleet", id="a limit"
        ),
        pytest.param("mode: Shadow\n", "holds 2 policies without metadata.name", id="no name"),
        pytest.param(f"{POOL}mode: [\n", "is not YAML: ", id="no YAML"),
    ],
)
def test_an_invalid_second_document_leaves_all_policies_in_effect(
    tmp_path: Path, document: str, error: str
) -> None:
    file = tmp_path / "policy.yaml"
    replica = of_file(file, f"mode: Enforce\n---\n{POOL}mode: Shadow\n")
    before = replica.policy
    file.write_text(f"mode: Shadow\n---\n{document}")
    replica.reload(VirtualClock())
    assert error in replica.trouble
    assert replica.policy is before
    assert [(one.name, one.mode) for one in before.policies] == [
        ("default", "Enforce"),
        ("trial", "Shadow"),
    ]
    assert (replica.mode, replica.unread) == (Mode.ENFORCE, False)
