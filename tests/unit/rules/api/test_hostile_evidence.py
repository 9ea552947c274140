"""A GPUEvidence that somebody else wrote: whatever is in it, nothing breaks and nothing is
believed.
"""

from __future__ import annotations

import pytest

from rules.api.evidence import EvidenceView, session_of
from rules.api.names import ANNOTATION_SESSION
from rules.text.tolerant import understand

NAMED = b'{"metadata":{"name":"s"},"spec":%s}'


@pytest.mark.parametrize(
    "spec",
    [
        b"[]", b"1", b"null", b'"text"', b"{}", b'{"sha256":1}', b'{"sha256":"x"}',
        b'{"sha256":["x"],"session":{"a":1}}', b'{"session":1e400}',
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b'{"sha256":"' + b"f" * 100_000 + b'"}', b'{"kernelLog":"\\ud800"}',
    ],
)  # fmt: skip
def test_what_is_no_evidence_is_not_whole(spec: bytes) -> None:
    found = understand(NAMED % spec, EvidenceView).value
    if found is None:
        return
    assert not found.whole
    assert isinstance(found.says("session"), str)
    assert isinstance(found.says("nodeName"), str)


@pytest.mark.parametrize(
    "note",
    ["", "{", "[]", '{"session":1}', '{"session":"../nodes"}', '{"session":"A B"}',
     '{"session":"s"'
     + " " * 5000 + "}", '{"session":"' + "s" * 300 + '"}'],
)  # fmt: skip
def test_a_note_that_names_no_possible_session_asks_for_no_evidence(note: str) -> None:
    assert session_of({ANNOTATION_SESSION: note}) == ""
