"""Every recognised line that carries no Xid or SXid number, as a table of anchored shapes.

Called by ``rules.kernel_line`` with a message whose prefix is already gone. A row is a regular
expression that must match from the start of the message; named groups fill the fields of the
same name. To recognise one more line, add a row (and an anchor in ``rules.kernel_line_scan`` if
none of its words is there yet). Never decides what a line means.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rules.kernel_line_kind import KernelLine, Kind
from rules.kernel_line_text import normal_pci, printable

_PCI: Final = rb"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_ANY_DRIVER: Final = rb"[\w.-]{1,32} " + _PCI + rb"(?: \w{1,32})?: "
_PORT: Final = rb"(?:pcieport|pcieport-driver) " + _PCI + rb": "
_MLX5: Final = rb"(?:mlx5_core " + _PCI + rb"(?: \w{1,32})?: (?:mlx5_)?|mlx5_)"
_MLX5_CORE: Final = rb"mlx5_core " + _PCI + rb"(?: \w{1,32})?: "
_FUNCTION: Final = rb"(?:\w{1,48}:\d{1,5}:)?(?:\(pid \d{1,10}\): )?\s?"
_NV_NAMES: Final = rb"(?:nvidia|nvc:|nv-|nv_|irq/\d{1,5}-(?:s-)?nvidia|UVM |dcgm|cuda)"


class _Shape(NamedTuple):
    kind: Kind
    pattern: re.Pattern[bytes]


def _shape(kind: Kind, pattern: bytes) -> _Shape:
    return _Shape(kind, re.compile(pattern))


NVRM_SHAPES: Final = (
    _shape(Kind.GPU_LOST, rb"The NVIDIA GPU " + _PCI + rb"(?:\s*$|[^\n]{0,64}(?:\n[^\n]{0,128}){0,2}?fallen off the bus)"),
    _shape(Kind.GPU_LOST, rb"GPU (?:at PCI:)?" + _PCI + rb":? (?:GPU )?has fallen off the bus"),
    _shape(Kind.GPU_LOST_DETAIL, rb"fallen off the bus and is not responding"),
    _shape(
        Kind.RM_INIT_FAILED,
        rb"(?:GPU " + _PCI + rb": )?(?:RmInitAdapter failed! ?\(?(?P<detail>[0-9a-fx:]{0,40})"
        rb"|rm_init_adapter(?:\(\d{1,4}\))? failed)",
    ),
    _shape(Kind.PROBE_FAILED, rb"The NVIDIA probe routine failed for (?P<detail>\d{1,4}) device"),
    _shape(
        Kind.RESET_REQUIRED,
        rb"nv(?:Assert|Check)\w{0,40}: (?:Assertion|Check) failed: "
        rb"Reset required \[NV_ERR_RESET_REQUIRED\]",
    ),
    _shape(Kind.GSP_ERROR, rb"Rate limiting GSP RPC error prints\b"),
    _shape(
        Kind.GSP_ERROR,
        rb"(?:GPU\d{1,3} )?_?kgsp\w{0,48}: [^\n]{0,128}may need to be reset",
    ),
    _shape(
        Kind.VERSION_MISMATCH,
        rb"API mismatch: the client (?:[^\n]{0,64}\nNVRM: )?"
        rb"(?:'[^'\n]{0,32}' \(pid \d{1,10}\)\s+)?has the version (?P<detail>[\d.]{1,20}\d)",
    ),
    _shape(
        Kind.GPU_UUID,
        rb"GPU at (?:PCI:)?" + _PCI + rb": (?P<gpu_uuid>GPU-[0-9a-fA-F][0-9a-fA-F-]{3,63})\s*$",
    ),
    _shape(Kind.GPU_SERIAL, rb"GPU Board Serial Number:\s*(?P<detail>[\w-]{0,32})\s*$"),
    _shape(
        Kind.DRIVER_LOAD,
        rb"loading NVIDIA UNIX (?:Open )?(?:\w{1,10} )?Kernel Module"
        rb"(?: for \w{1,10})?(?:\s+(?P<detail>\d[\d.]{0,18}\d))?",
    ),
    _shape(
        Kind.NVLINK_DETECT,
        rb"knvlink\w{1,64}: (?:Getting peer\d{1,3}'s postRxDetLinkMask failed"
        rb"|Failed to update Rx Detect Link mask)",
    ),
)  # fmt: skip
"""Shapes of the NVIDIA driver, matched behind ``NVRM: ``."""

OTHER_SHAPES: Final = (
    _shape(Kind.PEERMEM, rb"nvidia-peermem \w{1,48}:\d{1,6} ERROR detected invalid context"),
    _shape(
        Kind.AER,
        rb"(?:" + _ANY_DRIVER + rb")?(?:AER: )?PCIe Bus Error: severity=(?P<detail>[A-Z][a-zA-Z ()-]{2,32}?), ",
    ),
    _shape(
        Kind.AER,
        _PORT + rb"AER: (?:Multiple )?(?P<detail>(?:Corr|Uncorr)[a-zA-Z ()-]{2,32}?) error "
        rb"(?:message )?received(?: from|:) ",
    ),
    _shape(Kind.DPC, _PORT + rb"DPC: (?:containment event|unmasked uncorrectable error)"),
    _shape(
        Kind.PCIE_BANDWIDTH,
        _ANY_DRIVER + rb"(?P<detail>[\d.]{1,10}) Gb/s available PCIe bandwidth, limited by "
        rb"[^\n]{0,80}\(capable of (?P<of>[\d.]{1,10}) Gb/s",
    ),
    _shape(
        Kind.D3COLD,
        rb"(?:" + _ANY_DRIVER + rb")?(?:[Uu]nable to|can't) change power state from D3cold to D0",
    ),
    _shape(
        Kind.NIC_POWER,
        _MLX5_CORE + _FUNCTION + rb"Detected insufficient power on the PCIe slot "
        rb"\((?P<detail>\d{1,4})W\)",
    ),
    _shape(
        Kind.NIC_TEMPERATURE,
        _MLX5 + rb"(?:port_module_event:\d{1,6}:)?" + _FUNCTION
        + rb"Port module event(?:\[\w{1,10}\])?: module \d{1,4}, [^\n]{0,40}High Temperature",
    ),
    _shape(
        Kind.NIC_MODULE,
        _MLX5 + rb"(?:port_module_event:\d{1,6}:)?" + _FUNCTION
        + rb"Port module event(?:\[\w{1,10}\])?: module \d{1,4}, Cable (?P<detail>unplugged|error)",
    ),
    _shape(
        Kind.NIC_HEALTH,
        _MLX5_CORE + rb"(?:(?:poll_health|print_health_info):\d{1,6}:)?" + _FUNCTION
        + rb"(?:device's health compromised|synd 0x[0-9a-f]{1,8}: unrecoverable hardware error)",
    ),
    _shape(
        Kind.NIC_COMMAND,
        _MLX5 + rb"(?:cmd_out_err:\d{1,6}:)?" + _FUNCTION
        + rb"(?:ACCESS_REG\(0x[0-9a-f]{1,6}\) op_mod\(0x[0-9a-f]{1,6}\) failed"
        rb"|(?:\w{1,40}\(0x[0-9a-f]{1,6}\) )?timeout\. Will cause a leak of a command resource"
        rb"|cmd_exec timeout)",
    ),
    _shape(
        Kind.NCCL_SEGFAULT,
        rb"(?:(?P<process>[^\n]{1,15})\[(?P<pid>\d{1,10})\]: )?segfault at [0-9a-fx]{1,18} "
        rb"[^\n]{0,128} in libnccl\.so",
    ),
    _shape(
        Kind.HUNG_TASK,
        rb"INFO: task (?P<process>" + _NV_NAMES + rb"[^\n]{0,15}):(?P<pid>\d{1,10}) "
        rb"blocked for more than (?P<detail>\d{1,6}) seconds",
    ),
)  # fmt: skip
"""Shapes of the kernel itself and of other drivers."""


def parse_shape(
    shapes: tuple[_Shape, ...], message: bytes, start: int, user: bool
) -> KernelLine | None:
    """Read ``message`` from ``start`` by the first shape that fits; None when none does."""
    for kind, pattern in shapes:
        if found := pattern.match(message, start):
            return _line(kind, found, message, user)
    return None


def _line(kind: Kind, found: re.Match[bytes], message: bytes, user: bool) -> KernelLine:
    group = found.groupdict()
    pci, uuid, pid, process = (group.get(name) for name in ("pci", "gpu_uuid", "pid", "process"))
    return KernelLine(
        kind,
        printable(message),
        user,
        pci=normal_pci(pci) if pci else None,
        gpu_uuid=uuid.decode("ascii") if uuid else None,
        pid=int(pid) if pid else None,
        process=printable(process) if process else None,
        detail=_detail(kind, group),
    )


def _detail(kind: Kind, group: dict[str, bytes | None]) -> str | None:
    raw = group.get("detail")
    if raw is None:
        return None
    detail = printable(raw)
    if kind is Kind.AER:
        word = detail.lower()
        if word.startswith("correct"):
            return "corrected"
        return "nonfatal" if "non-fatal" in word else "fatal"
    if kind is Kind.PCIE_BANDWIDTH:
        return f"{detail} of {printable(group.get('of') or b'')} Gb/s"
    return detail
