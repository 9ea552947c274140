"""Copy the runbooks into the review page: `python -m hack.runbooks`; `--check` only compares."""

import json
import sys
from pathlib import Path

from hack.generated import write_or_check

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = ROOT / "remediator" / "page" / "runbooks.json"


def text() -> str:
    """Return the runbooks and the page of blocking reasons as JSON, by their path under `docs`."""
    pages = (DOCS / "blocked.md", *(DOCS / "runbooks").glob("*.md"))
    found = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in pages}
    return json.dumps(found, indent=0, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Write or compare the file; return 1 if it is out of date."""
    return write_or_check("hack.runbooks", {PAGE: text()})


if __name__ == "__main__":
    sys.exit(main())
