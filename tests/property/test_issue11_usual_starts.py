"""The fast way through the usual start of a line answers as the slow one does."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules.kernel_log.stamps import USUAL, stamp_of, usual_time
from rules.kernel_log.text import split_prefix
from tests.support.scenario.examples import examples

NOW = 1_740_400_000.0
parts = st.sampled_from(
    [
        b"[  12.345678] ",
        b"[Sat Oct 12 18:35:32 2024] ",
        b"[Xyz Foo 99 99:99:99 0000] ",
        b"<3>",
        b"<14>",
        b"Feb 23 16:24:18",
        b"Feb  3 16:24:18",
        b"Feb 31 26:24:61",
        b"2025-02-23T16:24:18",
        b"2025-99-23T16:24:18",
        b".123456",
        b"Z",
        b"+01:00",
        b"-25:99",
        b" gpu-1",
        b" EST",
        b" kernel: ",
        b"kernel: ",
        b"kernel[7]: ",
        b" ",
        b"6,1,2,-;",
    ]
)
messages = st.sampled_from(
    [
        b"NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=a",
        b"NVRM: [1.0] kernel: x",
        b"nvidia-nvswitch0: SXid (PCI:0000:1b:00.0): 1",
        b"nvidia-nvswitch0 kernel: NVRM: x",
        b"mlx5_core 0000:a0:00.0: kernel: x",
        b"mlx5_core 0000:a0:00.0 kernel: x",
        b"pcieport 0000:c0:03.1: AER: x",
        b"kernel: NVRM: x",
    ]
)


@given(start=st.lists(parts, max_size=5).map(b"".join), message=messages)
@example(b"Feb 23 16:24:18 gpu-1 kernel: [ 12.5] ", b"NVRM: x")
@example(b"2025-02-23T16:24:18.123456+01:00 g kernel: ", b"NVRM: x")
@example(b"[Sat Oct 12 18:35:32 2024] ", b"pcieport 0000:c0:03.1: AER: x")
@settings(max_examples=examples(400))
def test_issue11_20_the_usual_start_of_a_line_is_read_as_by_the_whole_grammar(
    start: bytes, message: bytes
) -> None:
    line = start + message
    usual = USUAL.match(line)
    if usual is None:
        return
    assert (line[usual.end() :], False) == split_prefix(line)
    assert usual_time(usual, NOW) == stamp_of(line, NOW).text
