"""The runbooks: one for each alert and each Blocked reason, each with what an operator needs."""

import re
from pathlib import Path

import pytest

from rules.catalog.why_not import WhyNot
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from tests.support.cluster.promql_names import REPOSITORY, rules

RUNBOOKS = REPOSITORY / "docs" / "runbooks"
ALERTS = {rule["alert"] for rule in rules() if "alert" in rule}
ALWAYS = {
    "README",
    "stop-everything",
    "is-gpuward-well",
    "fire-drill",
    "support-bundle",
    "return-a-gpu",
}
PAGES = sorted(RUNBOOKS.rglob("*.md"))
BOOKS = [page for page in PAGES if page.stem != "README"]
HEADINGS = {"What it means", "How to check", "What to do", "How to undo"}


def ids(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


def test_there_is_a_page_for_each_alert_and_no_other() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == ALERTS | ALWAYS


def test_there_is_a_page_for_each_blocked_reason_and_no_other() -> None:
    """A new reason in the rules needs a page; a page needs a reason that can still occur."""
    assert {page.stem for page in (RUNBOOKS / "blocked").glob("*.md")} == set(WhyNot)


@pytest.mark.parametrize("page", BOOKS, ids=ids(BOOKS))
def test_a_page_says_meaning_check_remedy_and_way_back(page: Path) -> None:
    title, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    found = dict(section.split("\n", 1) for section in sections)

    assert title.startswith("# ")
    assert set(found) == HEADINGS
    assert all(text.strip() for text in found.values())
    assert "kubectl" in found["How to check"]
    assert len(page.read_text().splitlines()) < 70


def waits(rule: dict[str, str]) -> str | None:
    """How long it waits: `for`, else how long ago it asks, itself or by what it is recorded of."""
    if "for" in rule:
        return rule["for"]
    asked = re.findall(r"offset (\d+m)", rule["expr"])
    recorded = [r for r in rules() if "record" in r and r["record"] in rule["expr"]]
    return next(iter(asked or [w for r in recorded if (w := waits(r))]), None)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_and_the_index_say_how_urgent_the_alert_is(alert: str) -> None:
    found = [(r["labels"]["severity"], waits(r)) for r in rules() if r.get("alert") == alert]
    times = [f"{word}, after {wait}" if wait else f"{word}, at once" for word, wait in found]
    words = ", ".join(dict.fromkeys(word for word, _ in found))

    assert f"Severity: {'; '.join(dict.fromkeys(times))}." in " ".join(
        (RUNBOOKS / f"{alert}.md").read_text().split()
    )
    assert f"| [{alert}]({alert}.md) | {words} |" in (RUNBOOKS / "README.md").read_text()


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)]+)\)", (RUNBOOKS / "README.md").read_text()))

    assert linked == {str(page.relative_to(RUNBOOKS)) for page in BOOKS}


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_policy_keys_that_a_page_names_exist(page: Path) -> None:
    """`budget.maxUnavailable` and the like are keys of the policy, as the loader knows them."""
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
