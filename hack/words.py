"""Check that the tree uses plain words: `python -m hack.words [PATH ...]`.

Reads every tracked text file, splits identifiers into their parts, and reports each use of a word
of `hack/words.txt` with the plain one. `hack/words-allowed.txt` lists the exceptions with their
reasons. Ends with 1 if it finds one.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "hack" / "words.txt"
ALLOWED = ROOT / "hack" / "words-allowed.txt"
MOST_EXCEPTIONS = 30
TEXT = {
    *(
        ".css",
        ".html",
        ".js",
        ".json",
        ".md",
        ".py",
        ".sh",
        ".tmpl",
        ".toml",
        ".txt",
        ".yaml",
        ".yml",
    ),
    *("", ".prom", ".tpl"),
}
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")


class Use(NamedTuple):
    """A word that has a plainer one, where it stands."""

    path: str
    line: int
    word: str
    plain: str


class Allowed(NamedTuple):
    """Exceptions: paths that are not read, and texts that are removed from a line before it is."""

    paths: tuple[str, ...]
    texts: tuple[str, ...]


def rows(path: Path) -> list[tuple[str, str]]:
    """The two columns of a list, separated by ` -> `; `#` begins a comment."""
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    pairs = (line.partition(" -> ") for line in lines if line and not line.startswith("#"))
    return [(left.strip(), right.strip()) for left, _, right in pairs]


def allowed(exceptions: list[tuple[str, str]]) -> Allowed:
    """What the list of exceptions names; ValueError for one without a reason, or for too many."""
    if bare := [left for left, reason in exceptions if not reason]:
        raise ValueError(f"{ALLOWED.name}: no reason for {', '.join(bare)}")
    if len(exceptions) > MOST_EXCEPTIONS:
        raise ValueError(
            f"{ALLOWED.name}: {len(exceptions)} exceptions, {MOST_EXCEPTIONS} at most"
        )
    lefts = [left for left, _ in exceptions]
    paths = tuple(left.removeprefix("path:") for left in lefts if left.startswith("path:"))
    return Allowed(paths, tuple(left for left in lefts if not left.startswith("path:")))


def uses(
    text: str, words: list[tuple[str, str]], skipped: tuple[str, ...]
) -> list[tuple[int, str, str]]:
    """Line, word as it is written, and the plain word, for each word of the list in `text`."""
    every = re.compile("|".join(rf"\b(?:{word})\b" for word, _ in words), re.IGNORECASE)
    plain = [(re.compile(word, re.IGNORECASE), to) for word, to in words]
    allowed_text, found = re.compile("|".join(skipped)), []
    for number, line in enumerate(text.splitlines(), 1):
        read = allowed_text.sub(" ", line) if skipped else line
        for match in every.finditer(_PARTS.sub(" ", read)):
            word = match.group()
            found.append((number, word, next(to for one, to in plain if one.fullmatch(word))))
    return found


def main(arguments: list[str]) -> int:
    """Report the uses below the paths; a count for each folder first with `--count`."""
    words, exceptions = rows(LIST), allowed(rows(ALLOWED))
    paths = [one for one in arguments if one != "--count"]
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    found = [
        Use(name, *use)
        for name in listed
        if Path(name).suffix in TEXT
        and not name.startswith(exceptions.paths)
        and (ROOT / name).is_file()
        for use in uses((ROOT / name).read_text("utf-8", "replace"), words, exceptions.texts)
    ]
    if "--count" in arguments:
        folders = Counter("/".join(use.path.split("/")[:2]) for use in found)
        print("\n".join(f"{number:6} {folder}" for folder, number in folders.most_common()))
    else:
        print("\n".join(f"{use.path}:{use.line}: {use.word} -> {use.plain}" for use in found))
    print(f"{len(found)} uses of words that have a plainer one", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
