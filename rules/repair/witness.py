"""A second word on which machine belongs to a node: the provider's, where the first is the Node's.

A kubelet writes annotations and, as long as it is not set, the provider ID of its own Node. What
it says there can name the machine of another node, so whoever acts on a machine asks an object of
the provider, which no kubelet writes, whether it names this node too. Called by
`rules.session.repair.asking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.repair.adapter import Witness
from rules.repair.matching import at, clause, holds

Json = Mapping[str, Any]


def disagreement(
    witness: Witness, words: str, json: Json, target_words: str, target: Json, node: Json
) -> str:
    """Why the two do not belong to one node, a clause about `words` and `target_words`; "" where
    they do.

    What neither of them says is no agreement.
    """
    for match in witness.shows:
        if not holds(match, node if match.on == "Node" else json):
            return f"{words} does not confirm it: {clause(match, words)} is not so"
    for path, theirs in sorted(witness.agrees.items()):
        mine, other = at(target, path), at(json, theirs)
        if isinstance(mine, str) and mine and mine == other:
            continue
        return (
            f"{target_words} ({path} {_said(mine)}) and {words} ({theirs} {_said(other)}) differ"
        )
    return ""


def _said(value: object) -> str:
    return f"{value!r:.80}" if isinstance(value, str) and value else "says nothing"
