"""The schema of the page's answers: every address is in it and in docs/api.md."""

from __future__ import annotations

import re
from pathlib import Path

from remediator.page import site
from remediator.page.schema import ANSWERS, schema

ROOT = Path(__file__).resolve().parents[4]


def test_every_address_that_answers_json_has_a_schema_and_no_other() -> None:
    assert {address for address in ANSWERS if address.startswith("/")} == {
        path for path in site.PAGES if path.startswith("/api/")
    }


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    made = schema()
    referred = set(re.findall(r"#/\$defs/(\w+)", repr(made)))

    assert referred <= made["$defs"].keys()
    assert made["answers"].keys() == ANSWERS.keys()


def test_the_document_names_every_address() -> None:
    text = (ROOT / "docs" / "api.md").read_text()

    assert [
        address for address in ANSWERS if address.startswith("/") and address not in text
    ] == []
