"""The JSON Schema of every answer under `/api/`, made from the types that the answers are made
of.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from remediator.view import shapes

ANSWERS: Final[dict[str, type[msgspec.Struct]]] = {
    "/api/fleet": shapes.FleetPage,
    "/api/nodes/{name}": shapes.NodePage,
    "/api/history": shapes.HistoryPage,
    "error": shapes.ProblemShown,
}
"""By address; `error` is the answer of a refusal."""


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12: one definition per type, one reference per address."""
    found, definitions = msgspec.json.schema_components(ANSWERS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuward review page: answers under /api/",
        "answers": dict(zip(ANSWERS, found, strict=True)),
        "$defs": definitions,
    }


@cache
def schema_text() -> bytes:
    """The same as text; made when first asked for."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=1)
