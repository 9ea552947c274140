"""The changelog's section of one version."""

from __future__ import annotations

import re


class NoSectionError(Exception):
    """The changelog has nothing under that version; the text names what it has."""


def notes(changelog: str, version: str) -> str:
    """What stands under `## VERSION`, with or without brackets and date; NoSectionError."""
    parts = re.split(r"^## +", changelog, flags=re.MULTILINE)[1:]
    sections = {_version(part): part.partition("\n")[2].strip() for part in parts}
    if not sections.get(version):
        known = ", ".join(sections) or "nothing"
        raise NoSectionError(
            f"CHANGELOG.md has no section {version} (it has {known}); move what stands under "
            f"Unreleased below a heading '## {version} - DATE'."
        )
    return sections[version] + "\n"


def _version(section: str) -> str:
    return section.split()[0].strip("[]")
