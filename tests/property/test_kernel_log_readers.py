"""Any bytes, cut anywhere: the readers lose no line, repeat none and never raise."""

from hypothesis import given
from hypothesis import strategies as st

from agent.sources.kernel_log import kept, new_text
from agent.sources.kernel_record import MAX_RECORD_BYTES, parse_record
from agent.sources.kmsg import Lines

SHORT = st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b" "))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_none(raw: bytes) -> None:
    header = parse_record(raw)
    assert header is None or header.sequence >= 0


@given(st.lists(SHORT, max_size=20), st.data())
def test_lines_come_out_the_same_however_the_stream_is_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    cutter = Lines()
    assert [line for chunk in chunks for line in cutter.feed(chunk)] == lines


@given(st.lists(st.integers(1, 3 * MAX_RECORD_BYTES), max_size=5))
def test_an_endless_line_takes_no_more_memory_than_a_record(sizes: list[int]) -> None:
    cutter = Lines()
    for size in sizes:
        assert cutter.feed(b"x" * size) == []
    *cut, last = cutter.feed(b"\nnext\n")
    assert last == b"next"
    assert all(len(line) <= MAX_RECORD_BYTES for line in cut)


@given(st.lists(SHORT, min_size=1, max_size=30), st.booleans(), st.data())
def test_reading_a_ring_again_and_again_yields_each_line_once(
    texts: list[bytes], dated: bool, data: st.DataObject
) -> None:
    log = [
        (f"<4>[{number:12.6f}] ".encode() if dated else b"<4>") + text + b"\n"
        for number, text in enumerate(texts)
    ]
    ends = sorted(data.draw(st.lists(st.integers(1, len(log)), min_size=1, max_size=6)))
    seen, tail = b"", b""
    for end in [*ends, len(log)]:
        ring = b"".join(log[:end])
        fresh, gap = new_text(tail, ring)
        assert not gap
        seen += fresh
        tail = kept(ring)
    assert seen == b"".join(log)
