"""Write the runbooks into the review page: `python -m hack.runbooks`, `--check` compares only."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    made = text()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == made:
        return 0
    if parser.parse_args().check:
        print("remediator/page/runbooks.json is stale: python -m hack.runbooks")
        return 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
