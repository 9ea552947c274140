"""What people type who know kubectl, or our other programs: the word that does it here.

Only words and sentences; read when a command line was wrong, or before it is parsed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

_HERE: Final = {
    "get": "list, or fleet, or why NODE",
    "describe": "why NODE",
    "status": "fleet, or why NODE",
    "nodes": "fleet",
    "node": "why NODE",
    "sessions": "list",
    "drain": 'quarantine NODE --reason "..."',
    "cordon": 'quarantine NODE --level Cordon --reason "..."',
    "uncordon": 'release NODE --reason "..."',
    "undo": 'release NODE --reason "..."',
    "delete": "uninstall",
}
_AGENT: Final = ("check", "decode", "explain", "reset-gpu", "restart-node")
_REMEDIATOR: Final = ("policy", "run")
_ANYWHERE: Final = frozenset({"-A", "--all-namespaces"})
"""Said to be of the whole cluster; our objects are, and kubectl takes it of such, too."""
_FORMED: Final = ("--no-headers", "--show-labels", "--sort-by", "--field-selector", "--template")


def other_word(word: str, program: str) -> str:
    """`; it is PROGRAM COMMAND` for a word of kubectl or of our other programs; "" else."""
    if word in _AGENT:
        return f"; it is gpuward-agent {word}"
    if word in _REMEDIATOR:
        return f"; it is gpuward-remediator {word}"
    here = _HERE.get(word)
    return f"; it is {program} {here}" if here else ""


def kubectls_form(words: Sequence[str]) -> str:
    """What to take instead of kubectl's ways to print a table; "" where none of them is there."""
    if not any(word.startswith(_FORMED) for word in words):
        return ""
    said = f"unrecognized arguments: {' '.join(words)}"
    return f"{said}; for other forms take -o json, or kubectl get gq,gnh"


def no_node(word: str) -> str:
    """What to say of a word where none is taken: a node more often than not."""
    return f"takes no NODE ({word[:80]}); about one node: why {word[:80]}"


def plain_words(arguments: Sequence[str]) -> list[str]:
    """The words as the parser knows them: kubectl's spellings of a dry run, and bytes that the
    locale could not read, as text.
    """
    spelled = {"--dry-run=server": "--dry-run", "--dry-run=client": "--dry-run"}
    return [
        spelled.get(word, _text(word))
        for word in arguments
        if word != "--dry-run=none" and word not in _ANYWHERE
    ]


def _text(word: str) -> str:
    """A word without surrogates: they stand for bytes of another encoding than the locale's, and
    nothing that is sent may hold them.
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        raw = os.fsencode(word)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw.decode("latin-1")
    return word
