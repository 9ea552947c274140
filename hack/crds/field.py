"""What is said of one published field: its text, its bounds, the form of what stands in it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Field(NamedTuple):
    """One field's text and bounds."""

    text: str
    max_length: int = 256
    max_items: int = 16
    enum: tuple[str, ...] = ()
    default: str | bool | None = None
    immutable: bool = False
    pattern: str = ""
    """What its text, or that of each item, looks like. Only where Kubernetes or we fix the form
    for good, and only of what people write: a status or a verdict that one definition refuses is
    lost, and whoever writes on a broken node could keep it from being taken out with one space."""


NODE_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""A DNS-1123 subdomain, as the API server wants the name of a Node."""
