"""The fast way through the usual start of a line answers as the slow one does."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules.kernel_log.stamps import stamp_of
from rules.kernel_log.starts import BARE, USUAL, UsualStamps
from rules.kernel_log.text import BARE as ALWAYS_BARE
from rules.kernel_log.text import split_prefix
from tests.support.scenario.examples import examples

NOW = 1_740_400_000.0
STAMPS = UsualStamps(NOW)
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
        b"3,1202,9876600,-;",
        b"11,1,2,-;",
        b"4,1227,437812449932,c,caller=T1;",
        b"kern  :err   : ",
        b"user  :notice: ",
        b"[ T1946]",
        b"[ T1946] ",
        b"[12.5]",
        b",123456",
        b"+0200",
        b"1740327858.123456 ",
        b"174032785.1 ",
        b" 4u8",
        b"gpu-1 ",
        b"Gpu1 ",
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
        b"traps: kern: info: [2025-02-23T16:24:18Z]: x",
        b"traps: a.py[71] general protection kernel: x",
        b"a[71] kernel: x",
        b"a[71]: kernel: x",
        b"INFO: task kernel: x",
        b"watchdog: BUG: kernel: x",
        b"DMAR:[DMA] kernel: x",
        rb"NVRM: a\x0ab \x",
        b"nvidia 0000:c1:00.0: AMD-Vi: x",
        b"nvidia: probe of 0000:c1:00.0 failed",
        b"nvidia-peermem nv_get_p2p_free_callback:127 ERROR",
        b"mlx5_cmd_out_err:838:(pid 268269): kernel: x",
        b"mlx5_cmd_out_err:838:(pid kernel: x",
        b"pci 0000:01:00.0: can't change",
        b"PCIe Bus Error: severity=",
    ]
)


@given(start=st.lists(parts, max_size=5).map(b"".join), message=messages)
@example(b"Feb 23 16:24:18 gpu-1 kernel: [ 12.5] ", b"NVRM: x")
@example(b"2025-02-23T16:24:18.123456+01:00 g kernel: ", b"NVRM: x")
@example(b"[Sat Oct 12 18:35:32 2024] ", b"pcieport 0000:c0:03.1: AER: x")
@settings(max_examples=examples(400))
def test_the_usual_start_of_a_line_is_read_as_by_the_whole_grammar(
    start: bytes, message: bytes
) -> None:
    line = start + message
    if line.startswith(tuple({*BARE} - {*ALWAYS_BARE})):
        assert (line, False) == split_prefix(line)
        assert stamp_of(line, NOW).text == b""
    usual = USUAL.match(line)
    if usual is None:
        return
    assert (line[usual.end() :], False) == split_prefix(line)
    assert STAMPS.of(usual) == stamp_of(line, NOW).text
