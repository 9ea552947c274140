"""Write the runbooks into the review page: `python -m hack.runbooks`, `--check` compares only."""

import json
import sys
from pathlib import Path

from hack.generated import write_or_check

ROOT = Path(__file__).resolve().parents[1]
RUNBOOKS = ROOT / "docs" / "runbooks"
PAGE = ROOT / "remediator" / "page" / "runbooks.json"


def text() -> str:
    """Every page of the folder by its path in it."""
    found = {
        str(path.relative_to(RUNBOOKS)): path.read_text(encoding="utf-8")
        for path in sorted(RUNBOOKS.rglob("*.md"))
    }
    return json.dumps(found, indent=0, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Write or compare; 1 when the page is behind."""
    return write_or_check("hack.runbooks", {PAGE: text()})


if __name__ == "__main__":
    sys.exit(main())
