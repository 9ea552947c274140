"""Whatever was measured: what a verdict may never do."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rules.session.validation.result import Check, Result, Verdict, read

texts = st.text(max_size=200)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
checks = st.builds(
    Check,
    id=st.text(max_size=30),
    gpu=texts,
    peer=texts,
    verdict=st.sampled_from(Verdict),
    value=numbers,
    floor=numbers,
    ceiling=numbers,
    note=texts,
)
results = st.builds(
    Result,
    verdict=st.sampled_from(Verdict),
    message=st.text(max_size=3000),
    checks=st.lists(checks, max_size=60),
    notes=st.lists(texts, max_size=20),
)


@given(
    st.none() | st.integers(-20, 260),
    st.text() | results.map(lambda r: msgspec.json.encode(r).decode()),
)
def test_nothing_but_a_status_of_0_beside_clean_words_passes(
    status: int | None, text: str
) -> None:
    if read(status, text).verdict is Verdict.PASS:
        assert status == 0
        assert not text.strip() or json.loads(text)["verdict"] == "pass"
