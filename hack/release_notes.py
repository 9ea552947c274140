"""`python -m hack.release_notes VERSION`: the changelog's section of that version."""

import re
import sys
from pathlib import Path


def notes(changelog: str, version: str) -> str:
    """What stands under `## VERSION`, with or without brackets and date.

    Raises LookupError where there is no such section; the text names those that there are.
    """
    parts = re.split(r"^## +", changelog, flags=re.MULTILINE)[1:]
    sections = {part.split()[0].strip("[]"): part.partition("\n")[2].strip() for part in parts}
    if not sections.get(version):
        known = ", ".join(sections) or "nothing"
        raise LookupError(
            f"CHANGELOG.md has no section {version} (it has {known}); move what stands under "
            f"Unreleased below a heading '## {version} - DATE'."
        )
    return sections[version] + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(Path("CHANGELOG.md").read_text(encoding="utf-8"), sys.argv[1]))
    except LookupError as error:
        sys.exit(str(error.args[0]))
