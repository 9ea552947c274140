"""Runs PTX text: the few instructions that our kernels use, as a Python function for each entry.

Called by the simulated driver. Whatever it does not know, a register that was not declared or of
the wrong width, is a PtxError, as the driver's compiler would refuse it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)\s*\{(.*?)\n\}", re.DOTALL)
PARAMETER = re.compile(r"\.param \.(\w+) (\w+)")
DECLARATION = re.compile(r"\.reg \.(\w+) (%\w+?)<(\d+)>")
WIDTHS = {"pred": 1, "f32": 32, "b32": 32, "b64": 64}
SPECIAL = {"%ctaid.x": "ctaid", "%ntid.x": "ntid", "%tid.x": "tid", "%nctaid.x": "nctaid"}
COMPARED = {"ge": ">=", "eq": "==", "lt": "<", "ne": "!="}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
_bytes_of, _single_of = struct.Struct("<f").pack, struct.Struct("<f").unpack
_bytes_of_bits, _bits_of = struct.Struct("<I").pack, struct.Struct("<I").unpack
M32, M64 = "0xFFFFFFFF", "0xFFFFFFFFFFFFFFFF"


class PtxError(Exception):
    """The text cannot be compiled."""


class Memory(Protocol):
    """What a kernel reaches. Addresses are the device's."""

    def load(self, address: int) -> int: ...

    def store(self, address: int, value: int) -> None: ...

    def fma(self, one: float, other: float, added: float) -> float: ...


class Entry(NamedTuple):
    """A kernel: its parameters as (type, name), and one thread of it."""

    parameters: list[tuple[str, str]]
    run: Callable[..., None]


def compile_module(text: str) -> dict[str, Entry]:
    """Every entry of a module. Raises PtxError."""
    if not re.match(r"\.version \d+\.\d+\n\.target sm_\d+\n\.address_size 64\n", text):
        raise PtxError("no version, target and address size at the beginning")
    return {
        name: Entry(PARAMETER.findall(given), _compile(name, PARAMETER.findall(given), body))
        for name, given, body in ENTRY.findall(text)
    }


def _compile(name: str, parameters: list[tuple[str, str]], body: str) -> Callable[..., None]:
    """Blocks between labels become branches of one loop; registers become local variables."""
    registers = {
        f"{prefix}{number}": kind
        for kind, prefix, count in DECLARATION.findall(body)
        for number in range(int(count))
    }
    given = {n: kind for kind, n in parameters}
    blocks: dict[str, list[str]] = {"": []}
    current = ""
    for line in body.splitlines():
        words = line.partition("//")[0].strip()
        if not words or words.startswith(".reg"):
            continue
        if words.endswith(":"):
            blocks[current].append(f"pc = {words[:-1]!r}; continue")
            current = words[:-1]
            blocks[current] = []
            continue
        if not words.endswith(";"):
            raise PtxError(f"{name}: {words!r} does not end")
        blocks[current] += _Instruction(words[:-1], registers, given, set(_labels(body))).python()
    lines = ["def kernel(P, M, ctaid, ntid, tid, nctaid):", " pc = ''", " while True:"]
    for label, statements in blocks.items():
        lines.append(f"  if pc == {label!r}:")
        lines += [f"   {statement}" for statement in statements] or ["   pass"]
    scope: dict[str, Any] = {"to_float": to_float, "to_bits": to_bits}
    exec("\n".join(lines), scope)
    found: Callable[..., None] = scope["kernel"]
    return found


def _labels(body: str) -> list[str]:
    return re.findall(r"^\s*(\w+):", body, re.MULTILINE)


class _Instruction:
    """One instruction and what its operands are."""

    def __init__(
        self, text: str, registers: dict[str, str], given: dict[str, str], labels: set[str]
    ) -> None:
        guard = re.match(r"@(%\w+) ", text)
        self.guard = guard[1] if guard else ""
        self.text = text[guard.end() :] if guard else text
        self.code, _, rest = self.text.partition(" ")
        self.operands = [part.strip() for part in rest.split(",")] if rest else []
        self.registers, self.given, self.labels = registers, given, labels

    def python(self) -> list[str]:
        """Its statements. Raises PtxError."""
        done = self._statement()
        return [f"if {self._read(self.guard, 'pred')}: {done}"] if self.guard else [done]

    def _statement(self) -> str:
        operation, *kinds = self.code.split(".")
        ops = self.operands
        match operation, kinds:
            case "ret", []:
                return "return"
            case "bra", [] if ops[0] in self.labels:
                return f"pc = {ops[0]!r}; continue"
            case "ld", ["param", kind] if self.given.get(ops[1].strip("[]")) == kind:
                return self._set(ops[0], kind, f"P[{ops[1].strip('[]')!r}]")
            case "ld", ["global", "u64"]:
                return self._set(ops[0], "u64", f"M.load({self._address(ops[1])})")
            case "st", ["global", "u64"]:
                return f"M.store({self._address(ops[0])}, {self._read(ops[1], 'u64')})"
            case "red", ["global", "add" | "min" | "or" as how, "u64" | "b64"]:
                return self._reduced(how)
            case "mov", [kind]:
                return self._moved(kind)
            case "cvta", ["to", "global", "u64"]:
                return self._set(ops[0], "u64", self._read(ops[1], "u64"))
            case "cvt", ["u64" | "u32" as to, "u64" | "u32" as of]:
                mask = M32 if to == "u32" else M64
                return self._set(ops[0], to, f"{self._read(ops[1], of)} & {mask}")
            case "mul", ["wide", "u32"]:
                a, b = (self._read(op, "u32") for op in ops[1:])
                return self._set(ops[0], "u64", f"{a} * {b}")
            case "mad", ["lo", "u64"]:
                a, b, c = (self._read(op, "u64") for op in ops[1:])
                return self._set(ops[0], "u64", f"({a} * {b} + {c}) & {M64}")
            case "fma", ["rn", "f32"]:
                read = ", ".join(self._read(op, "f32") for op in ops[1:])
                return self._set(ops[0], "f32", f"M.fma({read})")
            case "setp", [how, "u64" | "u32" as kind] if how in COMPARED:
                a, b = (self._read(op, kind) for op in ops[1:])
                return self._set(ops[0], "pred", f"{a} {COMPARED[how]} {b}")
            case "add" | "sub" | "shl" | "shr" | "and" | "or" | "xor", [kind]:
                return self._arithmetic(operation, kind)
        raise PtxError(f"{self.text!r} is not understood")

    def _arithmetic(self, operation: str, kind: str) -> str:
        target, one, other = self.operands
        a = self._read(one, kind)
        b = self._read(other, "u32" if operation in ("shl", "shr") else kind)
        mask = M64 if kind.endswith("64") else M32
        sign = {"add": "+", "sub": "-", "shl": "<<", "shr": ">>"}.get(operation)
        return self._set(target, kind, f"({a} {sign or BITWISE[operation]} {b}) & {mask}")

    def _reduced(self, how: str) -> str:
        address, value = self._address(self.operands[0]), self._read(self.operands[1], "u64")
        old = f"M.load({address})"
        new = {
            "add": f"({old} + {value}) & {M64}",
            "min": f"min({old}, {value})",
            "or": f"{old} | {value}",
        }[how]
        return f"M.store({address}, {new})"

    def _moved(self, kind: str) -> str:
        target, source = self.operands
        if source in SPECIAL:
            return self._set(target, kind, SPECIAL[source])
        if kind == "b32" and self.registers.get(target) == "f32":
            return f"{self._name(target)} = to_float({self._read(source, 'u32')})"
        if kind == "b32" and self.registers.get(source) == "f32":
            return self._set(target, kind, f"to_bits({self._name(source)})")
        return self._set(target, kind, self._read(source, kind))

    def _set(self, register: str, kind: str, value: str) -> str:
        self._same(register, kind)
        return f"{self._name(register)} = {value}"

    def _read(self, operand: str, kind: str) -> str:
        if operand.startswith("%"):
            self._same(operand, kind)
            return self._name(operand)
        if kind == "f32" and operand.startswith("0f"):
            return repr(to_float(int(operand.replace("0f", "0x"), 16)))
        return str(int(operand, 0))

    def _address(self, operand: str) -> str:
        found = re.fullmatch(r"\[(%\w+)(?:\+(\d+))?\]", operand)
        if found is None:
            raise PtxError(f"{operand!r} is no address")
        return f"{self._read(found[1], 'u64')} + {found[2] or 0}"

    def _same(self, register: str, kind: str) -> None:
        declared = self.registers.get(register)
        if declared is None:
            raise PtxError(f"{register} is not declared")
        width = 1 if kind == "pred" else int(kind[1:])
        if WIDTHS[declared] != width or (declared == "f32") != (kind == "f32"):
            raise PtxError(f"{register} is {declared}, {kind} was asked for in {self.text!r}")

    def _name(self, register: str) -> str:
        return register.removeprefix("%")


def to_float(bits: int) -> float:
    """The single precision number with these bits."""
    found: float = _single_of(_bytes_of_bits(bits))[0]
    return found


def to_bits(number: float) -> int:
    """The bits of a number in single precision."""
    found: int = _bits_of(_bytes_of(number))[0]
    return found


def rounded(number: float) -> float:
    """The number in single precision."""
    found: float = _single_of(_bytes_of(number))[0]
    return found
