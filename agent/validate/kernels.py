"""The kernels of the memory test and the checksum, as PTX text that the driver compiles.

Loaded by `device`. PTX is what a GPU of any architecture from Volta on understands through its own
driver, so no toolkit is needed. Nothing in here rounds or orders differently from one GPU to the
next: the checksum of the same work is the same number on every healthy GPU, of any product.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BLOCKS: Final = 2048
THREADS: Final = 256
"""One grid for every GPU, or the checksums could not be compared; it fills the largest part."""
BURN: Final = "burn"
BURN_ROUNDS: Final = 4096
"""Rounds of one launch: short enough that a sum comes many times a second, long enough to load."""
_ALL_ONES: Final = (1 << 64) - 1


class Pattern(NamedTuple):
    """One pass over the memory: `word` is the kernel pair, `shift` and `mask` its parameters."""

    word: str
    shift: int
    mask: int


PATTERNS: Final = (
    Pattern("address", 0, 0),
    Pattern("address", 0, _ALL_ONES),
    *(Pattern("walking", shift, mask) for shift in range(0, 64, 8) for mask in (0, _ALL_ONES)),
)
"""Each word holds its own number, and its complement: two addresses that reach one cell differ.
Then one bit walks through the words, as a one and as a zero, from eight starting places.
"""

_HEAD: Final = """\
.version 6.3
.target sm_70
.address_size 64
"""

_FILL: Final = "  st.global.u64 [%rd10], %rd9;\n"

_CHECK: Final = """\
  ld.global.u64 %rd11, [%rd10];
  xor.b64 %rd12, %rd11, %rd9;
  setp.eq.u64 %p2, %rd12, 0;
  @%p2 bra NEXT;
  red.global.add.u64 [%rd13], 1;
  red.global.min.u64 [%rd13+8], %rd5;
  red.global.or.b64 [%rd13+16], %rd12;
"""

_WORDS: Final = {
    "address": "  xor.b64 %rd9, %rd8, %rd4;\n",
    "walking": """\
  cvt.u32.u64 %r5, %rd8;
  and.b32 %r5, %r5, 63;
  mov.u64 %rd9, 1;
  shl.b64 %rd9, %rd9, %r5;
  xor.b64 %rd9, %rd9, %rd4;
""",
}

_KERNEL: Final = """
.visible .entry {name}(
  .param .u64 base, .param .u64 words, .param .u64 shift, .param .u64 mask, .param .u64 report)
{{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<14>;
  ld.param.u64 %rd1, [base];
  ld.param.u64 %rd2, [words];
  ld.param.u64 %rd3, [shift];
  ld.param.u64 %rd4, [mask];
  ld.param.u64 %rd13, [report];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd13, %rd13;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd5, %r1, %r2;
  cvt.u64.u32 %rd6, %r3;
  add.u64 %rd5, %rd5, %rd6;
  mul.wide.u32 %rd7, %r2, %r4;
LOOP:
  setp.ge.u64 %p1, %rd5, %rd2;
  @%p1 bra DONE;
  add.u64 %rd8, %rd3, %rd5;
{word}  shl.b64 %rd10, %rd5, 3;
  add.u64 %rd10, %rd10, %rd1;
{act}NEXT:
  add.u64 %rd5, %rd5, %rd7;
  bra LOOP;
DONE:
  ret;
}}
"""

_BURN: Final = """
.visible .entry burn(.param .u64 sum, .param .u64 seed, .param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .f32 %f<3>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [sum];
  ld.param.u64 %rd2, [seed];
  ld.param.u32 %r6, [rounds];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd3, %r1, %r2;
  cvt.u64.u32 %rd4, %r3;
  add.u64 %rd3, %rd3, %rd4;
  mad.lo.u64 %rd3, %rd3, 0x9E3779B97F4A7C15, %rd2;
  mov.f32 %f1, 0f3F800000;
LOOP:
  setp.eq.u32 %p1, %r6, 0;
  @%p1 bra DONE;
  mad.lo.u64 %rd3, %rd3, 0x5851F42D4C957F2D, 0x14057B7EF767814F;
  shr.u64 %rd5, %rd3, 33;
  xor.b64 %rd3, %rd3, %rd5;
  cvt.u32.u64 %r4, %rd3;
  and.b32 %r4, %r4, 0x007FFFFF;
  or.b32 %r4, %r4, 0x3F800000;
  mov.b32 %f2, %r4;
  fma.rn.f32 %f1, %f1, 0f3F000000, %f2;
  mov.b32 %r5, %f1;
  cvt.u64.u32 %rd6, %r5;
  xor.b64 %rd3, %rd3, %rd6;
  sub.u32 %r6, %r6, 1;
  bra LOOP;
DONE:
  red.global.add.u64 [%rd1], %rd3;
  ret;
}
"""
"""Each round multiplies, shifts and multiplies and adds in floating point, and takes the result's
bits into the word that goes on: one wrong bit anywhere is in the sum at the end.
"""

MODULE: Final = "".join(
    (
        _HEAD,
        *(
            _KERNEL.format(name=f"{act}_{word}", word=text, act=body)
            for word, text in _WORDS.items()
            for act, body in (("fill", _FILL), ("check", _CHECK))
        ),
        _BURN,
    )
)
