"""What the leader says of itself on its Lease comes back as it was meant, whoever wrote it."""

from __future__ import annotations

from rules.api.nodes import MAX_WORDS, LeaderStatus, leader_status
from rules.api.timestamps import parse_time


def test_it_comes_back_as_it_was_written() -> None:
    since = parse_time("2026-11-23T21:11:00Z")
    word = LeaderStatus(unable="nodes: 403", unable_since=since, last_good="budgit is not known")
    assert leader_status(word.annotations()) == word
    assert LeaderStatus().annotations() == {}
    assert leader_status({"other": "x"}) == LeaderStatus()


def test_what_others_wrote_there_is_bounded_and_printable() -> None:
    said = leader_status({"gpuward.io/unable": "no time\x1b[2J" + "x" * 10_000})
    assert said.unable.startswith("no time\\x1b[2J")
    assert len(said.unable) <= MAX_WORDS + 8
    assert said.unable_since is None
    assert leader_status({"gpuward.io/unable": "2026-11-23T21:11:00Z"}).unable == ""
