"""Base of every part of the policy, beside it so that parts may have files of their own."""

from __future__ import annotations

import msgspec


class Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of every part of the policy: camelCase keys, none unknown."""
