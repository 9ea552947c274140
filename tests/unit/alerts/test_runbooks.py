"""The runbooks: one for each alert, one section for each blocking reason."""

import re
from pathlib import Path

import pytest

from rules.catalog.why_not import WhyNot, runbook
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.cluster.promql_names import REPOSITORY, rules

RUNBOOKS = REPOSITORY / "docs" / "runbooks"
REASONS = REPOSITORY / "docs" / "blocked.md"
ALERTS = {rule["alert"] for rule in rules() if "alert" in rule}
PROCEDURES = {
    "stop-everything",
    "check-gpuward",
    "fire-drill",
    "support-bundle",
    "return-a-gpu",
}
BOOKS = [page for page in sorted(RUNBOOKS.glob("*.md")) if page.stem != "README"]
PAGES = [*BOOKS, RUNBOOKS / "README.md", REASONS]
OF_ALERT = {"Meaning", "Check", "Fix"}
OF_PROCEDURE = {"Purpose", "Steps", "Verify"}


def ids(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


def sections(page: Path, level: str) -> dict[str, str]:
    """The texts of a page by their headings of this level."""
    parts = re.split(rf"^{level} ", page.read_text(), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts[1:])


def test_there_is_a_page_for_each_alert_and_no_other() -> None:
    assert {page.stem for page in BOOKS} == ALERTS | PROCEDURES
    assert [path for path in RUNBOOKS.iterdir() if path.is_dir()] == []


def test_there_is_a_section_for_each_blocking_reason_and_no_other() -> None:
    """A new reason needs a section; a section needs a reason that can occur."""
    found = sections(REASONS, "###")

    assert set(found) == set(WhyNot)
    for reason, text in found.items():
        assert text.strip().startswith((
            "**Waiting helps.** ", "**Needs an operator.** ", "**Operator or policy decision.** ",
        )), reason  # fmt: skip
        assert re.search(r"^- Check: .*kubectl", text, re.MULTILINE | re.DOTALL), reason
        assert "\n- Fix: " in text, reason
        assert runbook(reason) == f"docs/blocked.md#{reason.lower()}"


def test_the_lists_of_blocking_reasons_are_complete() -> None:
    """One list for each kind, with every reason whose section begins with that kind."""
    text, found = REASONS.read_text(), sections(REASONS, "###")
    listed: list[str] = []
    for kind in ("Waiting helps", "Needs an operator", "Operator or policy decision"):
        (names,) = re.findall(rf"^\*\*{kind}\*\*: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
        for reason, anchor in re.findall(r"\[(\w+)\]\(#(\w+)\)", names):
            assert anchor == reason.lower()
            assert found[reason].strip().startswith(f"**{kind}.**")
            listed.append(reason)

    assert sorted(listed) == sorted(WhyNot)


@pytest.mark.parametrize("page", BOOKS, ids=ids(BOOKS))
def test_a_page_has_its_sections_and_is_short(page: Path) -> None:
    found = sections(page, "##")

    assert page.read_text().startswith("# ")
    assert set(found) == (OF_ALERT if page.stem in ALERTS else OF_PROCEDURE)
    assert all(text.strip() for text in found.values())
    assert "kubectl" in page.read_text()
    assert len(page.read_text().splitlines()) < 110


def waits(rule: dict[str, str]) -> str | None:
    """How long the alert waits: `for`, or else an offset of its expression or recording rules."""
    if "for" in rule:
        return rule["for"]
    offsets = re.findall(r"offset (\d+m)", rule["expr"])
    recorded = [r for r in rules() if "record" in r and r["record"] in rule["expr"]]
    return next(iter(offsets or [w for r in recorded if (w := waits(r))]), None)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_and_the_index_state_the_severity_of_each_reason(alert: str) -> None:
    page = " ".join((RUNBOOKS / f"{alert}.md").read_text().split())
    mine = [rule for rule in rules() if rule.get("alert") == alert]
    reasons = list(dict.fromkeys(rule["labels"].get("reason", "") for rule in mine))
    for reason in reasons:
        of_reason = [rule for rule in mine if rule["labels"].get("reason", "") == reason]
        times = "; ".join(dict.fromkeys(
            f"{rule['labels']['severity']}, "
            + (f"after {wait}" if (wait := waits(rule)) else "at once")
            for rule in of_reason
        ))  # fmt: skip
        assert (f"| `{reason}` | {times} |" if reason else f"Severity: {times}.") in page
    found = {rule["labels"]["severity"] for rule in mine}
    severities = ", ".join(one for one in ("critical", "warning", "info") if one in found)
    row = f"| [{alert}]({alert}.md) | {severities} | {', '.join(reasons)} |"
    assert row in (RUNBOOKS / "README.md").read_text()


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)]+)\)", (RUNBOOKS / "README.md").read_text()))

    assert linked == {page.name for page in BOOKS} | {"../alerting.md", "../blocked.md"}


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_policy_keys_that_a_page_names_exist(page: Path) -> None:
    """`budget.maxUnavailable` and the like are keys of the policy."""
    for section, key in re.findall(
        r"`(budget|drain|limits|release)\.(\w+)(?:\.\w+)?`", page.read_text()
    ):
        problems = load_policy({
            "apiVersion": "gpuward.io/v1alpha1", "kind": "QuarantinePolicy", section: {key: None},
        })  # fmt: skip
        if not isinstance(problems, Policy):
            assert not any("not a known key" in p.sentence("policy.yaml") for p in problems), key


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:daemonset|docs|rules|hack)/[\w./-]+)`", page.read_text())

    assert [name for name in named if not (REPOSITORY / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_links_of_a_page_lead_to_headings_that_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
        text = (page.parent / target if target else page).read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w-]", "", one.lower().replace(" ", "-")) for one in headings}
        assert anchor in anchors, f"{page.name}: {target}#{anchor}"
