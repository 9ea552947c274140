"""Words for the short codes of the Xid catalog, shared by `explain` and `docs/xid.md`.

The words are `rules/data/words.json`. The codes are facts about other programs at the time of the
catalog; the sentences are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from rules.catalog.data_file import data_file

if TYPE_CHECKING:
    from rules.catalog.xid import XidRow


class _WordsFile(msgspec.Struct, frozen=True):
    buckets: dict[str, str]
    peers: dict[str, dict[str, str]]
    """By column of the catalog."""


_FILE: Final = msgspec.json.decode(data_file("words.json"), type=_WordsFile)
BUCKETS: Final = _FILE.buckets

PEERS: Final = (
    ("device_plugin", "device plugin"),
    ("eks", "EKS agent"),
    ("dcgm", "DCGM health"),
    ("nvsentinel", "NVSentinel"),
)
"""Column of the catalog and name of the peer, in the order shown."""


def peer_sentence(row: XidRow, peer: str) -> str:
    """Return what `peer` (a column of the catalog) does with the Xid."""
    code: str = getattr(row, peer)
    return _FILE.peers.get(peer, {}).get(code, code) + "."
