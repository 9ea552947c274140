"""The simulated compiler runs what a driver would, and refuses what a driver would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agent.validate.kernels import MODULE
from hack.sim.cuda.ptx import Entry, PtxError, compile_module, to_bits, to_float

HEAD = ".version 6.3\n.target sm_70\n.address_size 64\n"


class Words:
    """Memory as a dictionary of words."""

    def __init__(self) -> None:
        self.words: dict[int, int] = {}

    def load(self, address: int) -> int:
        return self.words.get(address, 0)

    def store(self, address: int, value: int) -> None:
        self.words[address] = value

    def fma(self, one: float, other: float, added: float) -> float:
        return to_float(to_bits(one * other + added))


def entry(body: str) -> Entry:
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    text = f"{HEAD}\n.visible .entry k(.param .u64 out)\n{{\n{lines}}}\n"
    return compile_module(text)["k"]


def stored(body: str) -> int:
    """What the lines leave in %rd2."""
    declared = ".reg .pred %p<2>;\n.reg .f32 %f<3>;\n.reg .b32 %r<5>;\n.reg .b64 %rd<6>;\n"
    begun = "ld.param.u64 %rd1, [out];\ncvta.to.global.u64 %rd1, %rd1;\n"
    memory = Words()
    entry(f"{declared}{begun}{body}\nst.global.u64 [%rd1], %rd2;\nret;").run(
        {"out": 64}, memory, 3, 256, 5, 9
    )
    return memory.words[64]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("mov.u64 %rd2, 0xFF;", 255, id="a constant"),
        pytest.param("mov.u64 %rd2, 1;\nsub.u64 %rd2, %rd2, 2;", (1 << 64) - 1, id="wraps"),
        pytest.param("mov.u64 %rd2, 3;\nshl.b64 %rd2, %rd2, 63;", 1 << 63, id="shifts out"),
        pytest.param(
            "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmul.wide.u32 %rd2, %r1, %r2;",
            768,
            id="wide product of two places in the grid",
        ),
        pytest.param(
            "mov.u64 %rd3, 0x100000007;\ncvt.u32.u64 %r1, %rd3;\ncvt.u64.u32 %rd2, %r1;",
            7,
            id="narrowed",
        ),
        pytest.param(
            "mov.f32 %f1, 0f3F800000;\nfma.rn.f32 %f1, %f1, 0f40000000, 0f3F000000;\n"
            "mov.b32 %r1, %f1;\ncvt.u64.u32 %rd2, %r1;",
            0x40200000,
            id="1 x 2 + 0.5",
        ),
        pytest.param(
            "mov.u64 %rd2, 0;\nAGAIN:\nadd.u64 %rd2, %rd2, 3;\nsetp.ge.u64 %p1, %rd2, 10;\n"
            "@%p1 bra DONE;\nbra AGAIN;\nDONE:",
            12,
            id="a loop",
        ),
    ],
)
def test_what_an_instruction_does(body: str, expected: int) -> None:
    assert stored(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("mov.u64 %rd9, 1;", id="a register that was not declared"),
        pytest.param("mov.u64 %r1, 1;", id="a register of another width"),
        pytest.param("mov.u64 %rd2, 1", id="no end"),
        pytest.param("bra NOWHERE;", id="no such label"),
        pytest.param("ld.param.u32 %r1, [out];", id="a parameter of another type"),
        pytest.param("ld.param.u64 %rd2, [in];", id="no such parameter"),
        pytest.param("div.u64 %rd2, %rd2, %rd2;", id="not used by us"),
    ],
)
def test_what_the_compiler_refuses(body: str) -> None:
    with pytest.raises(PtxError):
        stored(body)


def test_the_head_must_be_there() -> None:
    with pytest.raises(PtxError):
        compile_module("\n.visible .entry k(.param .u64 out)\n{\n  ret;\n}\n")


def test_every_kernel_of_ours_compiles() -> None:
    assert set(compile_module(MODULE)) == {
        "fill_address",
        "check_address",
        "fill_walking",
        "check_walking",
        "burn",
    }


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_nvidias_own_compiler_takes_our_kernels(architecture: str, tmp_path: Path) -> None:
    compiler = shutil.which("ptxas")
    if compiler is None:
        pytest.skip("ptxas of the CUDA toolkit is not installed")
    text = tmp_path / "kernels.ptx"
    text.write_text(MODULE)
    arguments = [compiler, "-arch", architecture, str(text), "-o", str(tmp_path / "out")]
    assert subprocess.run(arguments, check=False, capture_output=True).returncode == 0
