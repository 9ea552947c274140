"""The written schema is the types' own, and docs/api.md names every address."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from remediator.view import shapes

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = ROOT / "remediator" / "page" / "schema.json"
ANSWERS = {
    "/api/fleet": shapes.FleetSummary,
    "/api/nodes": shapes.NodePage,
    "/api/nodes/{name}": shapes.NodeDetail,
    "/api/sessions": shapes.SessionPage,
    "/api/sessions/{name}": shapes.SessionDetail,
    "/api/history": shapes.History,
    "/api/live": shapes.LivePage,
    "error": shapes.Problem,
}


def generated() -> dict[str, Any]:
    found, definitions = msgspec.json.schema_components(ANSWERS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuward review page: answers under /api/",
        "answers": dict(zip(ANSWERS, found, strict=True)),
        "$defs": definitions,
    }


def test_the_written_schema_is_generated_from_the_types() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        SCHEMA.write_text(json.dumps(generated(), indent=1, ensure_ascii=True) + "\n")

    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(generated()))


def test_the_document_names_every_address() -> None:
    text = (ROOT / "docs" / "api.md").read_text()

    assert [
        address for address in ANSWERS if address.startswith("/") and address not in text
    ] == []
