"""Generated files: write those that differ, or with `--check` only name them."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(command: str, files: Mapping[Path, str], obsolete: Iterable[Path] = ()) -> int:
    """Make the files of `python -m COMMAND` what they should be and delete `obsolete` ones.

    With `--check` nothing is written: 1 where something differs.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = {p: t for p, t in files.items() if not p.exists() or p.read_text("utf-8") != t}
    gone = [path for path in obsolete if path.exists()]
    for path in (*stale, *gone):
        what = f"is stale: python -m {command}" if check else "written"
        print(f"{path.relative_to(ROOT)} {what if path in stale or check else 'deleted'}")
    if check:
        return 1 if stale or gone else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in gone:
        path.unlink()
    return 0
