"""The one gate for what goes into a Kubernetes label value.

Called by `rules.judge.health_object` for every label, so that one odd value (a vendor string, a
UUID with a colon) costs that label only and never the whole patch. It never raises: it returns
what it refuses, for the caller to log and count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_LABEL_CHARS: Final = 63
"""Kubernetes' limit for a label value."""

_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_EDGES: Final = "-_."
_REFUSED_CHARS: Final = 80


class RefusedLabel(NamedTuple):
    """A label that was left out, with its value escaped and cut for a log line."""

    name: str
    value: str


def is_label_value(text: str) -> bool:
    """Whether the API server takes `text` as a label value."""
    return len(text) <= MAX_LABEL_CHARS and _VALUE.fullmatch(text) is not None


def checked_labels(wanted: Mapping[str, str]) -> tuple[dict[str, str], tuple[RefusedLabel, ...]]:
    """Split into the labels that may be written and those that may not."""
    kept = {name: value for name, value in wanted.items() if is_label_value(value)}
    refused = tuple(
        RefusedLabel(name, ascii(value)[:_REFUSED_CHARS])
        for name, value in wanted.items()
        if name not in kept
    )
    return kept, refused


def product_label(product: str) -> str:
    """Spell a GPU's product name as GPU feature discovery does: `NVIDIA-H100-80GB-HBM3`.

    Whitespace becomes a dash; what a label cannot carry is dropped, so that the name of a known
    product never changes.
    """
    dashed = "-".join(product.split())
    return _NOT_ALLOWED.sub("", dashed)[:MAX_LABEL_CHARS].strip(_EDGES)
