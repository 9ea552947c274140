"""What a replica says of itself while it leads: what lasts, and since when."""

from __future__ import annotations

from pathlib import Path

from remediator.kube.answer import Answer
from remediator.kube.refusals import Refusals
from remediator.metrics import Metrics
from remediator.upkeep.policy_source import PolicySource
from remediator.upkeep.self_report import SelfReport
from rules.api.leaders_word import leaders_word
from rules.api.quarantine import QuarantineSpec
from rules.api.writes import CreateSession
from rules.catalog.why_not import Refusal
from tests.support.remediator.virtual_clock import VirtualClock


def of_file(path: Path, text: str) -> PolicySource:
    path.write_text(text)
    found = PolicySource(str(path), shadow=False, metrics=Metrics(), on_change=lambda policy: None)
    found.start()
    return found


def nothing() -> Refusal | None:
    return None


def test_it_says_since_when_it_cannot_act_once_that_lasts(tmp_path: Path) -> None:
    clock, why = VirtualClock(), "Listing nodes is refused (403)."
    policy = of_file(tmp_path / "policy.yaml", "mode: Enforce\n")
    report = SelfReport(clock, lambda: why, nothing, policy)
    began = clock.now()
    assert report.annotations() == {}, "a list made anew is no news"
    clock.at += 6
    said = leaders_word(report.annotations())
    assert (said.unable, said.unable_since) == ("listing nodes is refused (403)", began)
    why = ""
    assert report.annotations() == {}
    why = "PDBs are refused (403)."
    clock.at += 60
    report.annotations()
    clock.at += 6
    said = leaders_word(report.annotations())
    assert (said.unable, said.unable_since) == ("PDBs are refused (403)", began + 66)


def test_it_tells_shadow_by_accident_from_the_last_good_policy(tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "policy.yaml"
    policy = of_file(file, "budgit: {}\n")
    said = leaders_word(SelfReport(clock, lambda: "", nothing, policy).annotations())
    assert "budgit is not a known key" in said.unread
    assert said.last_good == ""

    policy = of_file(file, "mode: Enforce\n")
    file.write_text("budgit: {}\n")
    policy.look(clock)
    said = leaders_word(SelfReport(clock, lambda: "", nothing, policy).annotations())
    assert "budgit is not a known key" in said.last_good
    assert said.unread == ""


def test_what_no_session_can_say_is_said(tmp_path: Path) -> None:
    clock = VirtualClock()
    policy = of_file(tmp_path / "policy.yaml", "mode: Enforce\n")
    refusals = Refusals(clock)
    report = SelfReport(clock, lambda: "", refusals.unsaid, policy)
    opened = CreateSession(name="s", spec=QuarantineSpec(node_name="gpu-1"))
    refusals.note(opened, Answer(code=403, body=b'{"kind":"Status","message":"is forbidden"}'))
    report.annotations()
    clock.at += 6
    said = leaders_word(report.annotations())
    assert said.unable.startswith("the remediator may not open a session for the node (403")
    clock.at += 600
    assert report.annotations() == {}, "nobody has tried it again for long"
    refusals.note(opened, Answer(code=409, body=b'{"kind":"Status","message":"exists"}'))
    assert refusals.unsaid() is None
