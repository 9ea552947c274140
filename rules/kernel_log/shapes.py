"""The patterns of recognized kernel lines without an Xid or SXid number.

A row is a regular expression that must match from the start of the message without prefix. Named
groups fill the fields of the same name. To recognize another line, add a row, and an anchor in
`rules.kernel_log.scan` if none of its anchors is in the line.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from rules.kernel_log import text
from rules.kernel_log.record import KernelLine, LineKind
from rules.text import pci_address

_SLOT: Final = rb"[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
_PCI: Final = rb"(?P<pci>[0-9a-fA-F]{4,8}:" + _SLOT + rb"(?:\.[0-9a-fA-F])?)"
_NEAR_PCI: Final = rb"(?P<pci>(?:[0-9a-fA-F]{4,8}:)?" + _SLOT + rb"(?:\.[0-9a-fA-F])?)"
"""An address; the domain is optional if it is 0."""
_ANY_DRIVER: Final = rb"[\w.-]{1,32} " + _PCI + rb"(?: \w{1,32})?: "
_PORT: Final = rb"(?:pcieport|pcieport-driver) " + _PCI + rb": "
_MLX5: Final = rb"(?:mlx5_core " + _PCI + rb"(?: \w{1,32})?: (?:mlx5_)?|mlx5_)"
_MLX5_CORE: Final = rb"mlx5_core " + _PCI + rb"(?: \w{1,32})?: "
_FUNCTION: Final = rb"(?:\w{1,48}:\d{1,5}:)?(?:\(pid \d{1,10}\): )?\s?"
_ERRING: Final = _PCI.replace(b"<pci>", b"<erring>") + rb"?"
_GPU: Final = rb"(?:GPU\d{1,3} )?"
"""The driver's number of a GPU, before the name of a function (from R560)."""
_ASSERTION: Final = _GPU + rb"nv(?:Assert|Check)\w{0,40}: (?:Assertion|Check) failed: "
_FAILED: Final = rb" failed with error -\d{1,4}"
_PAGE_FAULT: Final = rb"Event logged \[IO_PAGE_FAULT "
_NV_TASK: Final = (
    rb"(?P<process>(?:nvidia|nvc:|nv-|nv_|irq/\d{1,5}-(?:s-)?nvidia|UVM |dcgm|cuda)[^\n]{0,15})"
    rb":(?P<pid>\d{1,10})"
)


class _Groups(NamedTuple):
    """The number of each named group; 0 if the pattern has no group of that name."""

    pci: int
    gpu_uuid: int
    pid: int
    process: int
    detail: int
    of: int
    erring: int


class _Shape:
    """One pattern, compiled on first use: most nodes never print most of these lines."""

    __slots__ = ("groups", "heads", "kind", "match", "source")

    def __init__(self, kind: LineKind, heads: tuple[bytes, ...], source: bytes) -> None:
        self.kind = kind
        self.heads = heads
        self.source = source
        self.match: Callable[..., re.Match[bytes] | None] = self._first_match

    def _first_match(self, message: bytes, start: int) -> re.Match[bytes] | None:
        compiled = re.compile(self.source)
        self.groups = _Groups(*(compiled.groupindex.get(name, 0) for name in _Groups._fields))
        self.match = compiled.match
        return compiled.match(message, start)


def _shape(kind: LineKind, heads: tuple[bytes, ...], pattern: bytes) -> _Shape:
    """Return a pattern; matching messages begin with one of `heads` (none: any)."""
    return _Shape(kind, heads, pattern)


_NVRM_SHAPES: Final = (
    _shape(LineKind.GPU_LOST, (b"The",), rb"The NVIDIA GPU " + _PCI + rb"(?:\s*$|[^\n]{0,128}(?:\n"
                                                                      rb"[^\n"
                                                                      rb"]{0,128}){0,2}?fallen "
                                                                      rb"off the bus)"),
    _shape(LineKind.GPU_LOST, (b"GPU",), rb"GPU (?:at (?:PCI:)?)?" + _NEAR_PCI + rb":? (?:GPU "
                                                                                 rb")?has fallen "
                                                                                 rb"off the bus"),
    _shape(
        LineKind.GPU_LOST_DETAIL,
        (b"fal", b"_th", b"GPU", b"nvA", b"nvC"),
        rb"fallen off the bus and is not responding"
        rb"|" + _GPU + rb"_threadNodeCheckTimeout: API_GPU_ATTACHED_SANITY_CHECK failed"
        rb"|" + _ASSERTION + rb"GPU lost from the bus \[NV_ERR_GPU_IS_LOST\]",
    ),
    _shape(
        LineKind.RM_INIT_FAILED,
        (b"GPU", b"RmI", b"rm_"),
        rb"(?:GPU " + _PCI + rb": )?(?:RmInitAdapter failed! ?\(?(?P<detail>[0-9a-fx:]{0,40})"
        rb"|rm_init_adapter(?:\(\d{1,4}\))? failed)"
        rb"|" + _GPU + rb"RmInitAdapter: [^\n]{0,64}"
        rb"(?:Cannot initialize GSP firmware RM|bailing out of RmInitAdapter)",
    ),
    _shape(LineKind.PROBE_FAILED, (b"The",), rb"The NVIDIA probe routine failed for "
                                             rb"(?P<detail>\d{1,4}) device"),
    _shape(
        LineKind.RESET_REQUIRED,
        (b"nvA", b"nvC", b"GPU"),
        _ASSERTION + rb"Reset required \[NV_ERR_RESET_REQUIRED\]",
    ),
    _shape(
        LineKind.GSP_ERROR,
        (b"Rat",),
        rb"Rate limiting GSP RPC error prints\b(?: for GPU at (?:PCI:)?" + _PCI + rb")?",
    ),
    _shape(
        LineKind.GSP_ERROR,
        (b"GPU", b"_kg", b"kgs"),
        _GPU + rb"_?kgsp\w{0,48}: (?:[^\n]{0,128}may need to be reset"
        rb"|(?:GSP RM|LibOS) heartbeat timed out"
        rb"|(?P<detail>Heartbeat timed out|[^\n]{0,128}GSP Timeout))",
    ),
    _shape(
        LineKind.VERSION_MISMATCH,
        (b"API",),
        rb"API mismatch: the client (?:'(?P<process>[^\n"
        rb"]{0,32})' \(pid (?P<pid>\d{1,10})\)(?:\s|#012){0,4})?"
        rb"(?:$|(?:NVRM: )?has the version (?P<detail>[\d.]{1,20}\d))",
    ),
    _shape(
        LineKind.GPU_UUID,
        (b"GPU",),
        rb"GPU at (?:PCI:)?" + _PCI + rb": (?P<gpu_uuid>GPU-[0-9a-fA-F][0-9a-fA-F-]{3,63})\s*$",
    ),
    _shape(
        LineKind.GPU_SERIAL,
        (b"GPU",),
        rb"GPU (?:Board Serial Number:|" + _PCI + rb": GPU (?:serial number is|is on Board))"
        rb"\s*(?P<detail>[\w-]{0,32})\.?\s*$",
    ),
    _shape(
        LineKind.DRIVER_LOAD,
        (b"loa",),
        rb"loading NVIDIA UNIX (?:Open )?(?:\w{1,10} )?Kernel Module"
        rb"(?: for \w{1,10})?(?:\s+(?P<detail>\d[\d.]{0,18}\d))?",
    ),
    _shape(
        LineKind.NVLINK_DETECT,
        (b"knv", b"GPU"),
        _GPU + rb"knvlink\w{1,64}: (?:Getting peer\d{1,3}'s postRxDetLinkMask failed"
        rb"|Failed to update Rx Detect Link mask)",
    ),
)  # fmt: skip
"""Patterns of the NVIDIA driver, matched after `NVRM: `."""

_OTHER_SHAPES: Final = (
    _shape(LineKind.PEERMEM, (b"nvi",), rb"nvidia-peermem \w{1,48}:\d{1,6} ERROR detected "
                                        rb"invalid context"),
    _shape(
        LineKind.AER,
        (),
        rb"(?:" + _ANY_DRIVER + rb")?(?:AER: )?PCIe Bus Error: severity=(?P<detail>[A-Z][a-zA-Z "
                                rb"()-]{2,32}?), ",
    ),
    _shape(
        LineKind.AER,
        (b"pci",),
        _PORT + rb"AER: (?:Multiple )?(?P<detail>(?:Corr|Uncorr)[a-zA-Z ()-]{2,32}?) error "
        rb"(?:message )?received(?: from|:) " + _ERRING,
    ),
    _shape(
        LineKind.DPC,
        (b"pci",),
        _PORT + rb"DPC: (?:containment event|unmasked uncorrectable error"
        rb"|(?:ERR_(?:NON)?FATAL|RP PIO error|software trigger) detected)",
    ),
    _shape(
        LineKind.PCIE_SLOT,
        (b"pci",),
        _PORT + rb"pciehp: Slot\([\w-]{1,16}\): (?P<detail>Link Down|Card not present)",
    ),
    _shape(LineKind.PROBE_FAILED, (b"nvi",), rb"nvidia: probe of " + _PCI + _FAILED),
    _shape(
        LineKind.PROBE_FAILED,
        (b"nvi",),
        rb"nvidia " + _PCI + rb": probe with driver nvidia" + _FAILED,
    ),
    _shape(LineKind.IOMMU_FAULT, (b"nvi",), rb"nvidia " + _PCI + rb": AMD-Vi: " + _PAGE_FAULT),
    _shape(
        LineKind.IOMMU_FAULT,
        (b"AMD",),
        rb"AMD-Vi: " + _PAGE_FAULT + rb"device=" + _NEAR_PCI + rb" ",
    ),
    _shape(
        LineKind.IOMMU_FAULT,
        (b"DMA",),
        rb"DMAR: ?\[[\w ]{1,40}\] Request device \[" + _NEAR_PCI + rb"\] ",
    ),
    _shape(
        LineKind.PCIE_BANDWIDTH,
        (),
        _ANY_DRIVER + rb"(?P<detail>[\d.]{1,10}) Gb/s available PCIe bandwidth, limited by "
        rb"[^\n]{0,80}\(capable of (?P<of>[\d.]{1,10}) Gb/s",
    ),
    _shape(
        LineKind.D3COLD,
        (),
        rb"(?:" + _ANY_DRIVER + rb")?"
        rb"(?:(?:[Uu]nable to|can't|Refused to) change power state from "
        rb"(?:D3\w{0,4}|unknown) to D0"
        rb"|Refused to change power state, currently in D3)",
    ),
    _shape(
        LineKind.NIC_POWER,
        (b"mlx",),
        _MLX5_CORE + _FUNCTION + rb"Detected insufficient power on the PCIe slot "
        rb"\((?P<detail>\d{1,4})W\)",
    ),
    _shape(
        LineKind.NIC_TEMPERATURE,
        (b"mlx",),
        _MLX5 + rb"(?:port_module_event:\d{1,6}:)?" + _FUNCTION
        + rb"Port module event(?:\[\w{1,10}\])?: module \d{1,4}, [^\n]{0,40}High Temperature",
    ),
    _shape(
        LineKind.NIC_TEMPERATURE,
        (b"mlx",),
        _MLX5_CORE + _FUNCTION + rb"High temperature on sensors with bit set ",
    ),
    _shape(
        LineKind.NIC_MODULE,
        (b"mlx",),
        _MLX5 + rb"(?:port_module_event:\d{1,6}:)?" + _FUNCTION
        + rb"Port module event(?:\[\w{1,10}\])?: module \d{1,4}, Cable "
          rb"(?P<detail>unplugged|error)",
    ),
    _shape(
        LineKind.NIC_HEALTH,
        (b"mlx",),
        _MLX5_CORE + rb"(?:(?:poll_health|print_health_info):\d{1,6}:)?" + _FUNCTION
        + rb"(?:device's health compromised|synd 0x[0-9a-f]{1,8}: unrecoverable hardware error)",
    ),
    _shape(
        LineKind.NIC_COMMAND,
        (b"mlx",),
        _MLX5 + rb"(?:cmd_out_err:\d{1,6}:)?" + _FUNCTION
        + rb"(?:ACCESS_REG\(0x[0-9a-f]{1,6}\) op_mod\(0x[0-9a-f]{1,6}\) failed"
        rb"|(?:\w{1,40}\(0x[0-9a-f]{1,6}\) )?timeout\. Will cause a leak of a command resource"
        rb"|cmd_exec timeout)",
    ),
    _shape(
        LineKind.NCCL_SEGFAULT,
        (),
        rb"(?:(?P<process>[^\n]{1,15})\[(?P<pid>\d{1,10})\]: )?"
        rb"(?:segfault at [0-9a-fx]{1,18} |unhandled )[^\n]{0,128} in libnccl\.so",
    ),
    _shape(
        LineKind.NCCL_SEGFAULT,
        (b"tra",),
        rb"traps: (?P<process>[^\n]{1,15})\[(?P<pid>\d{1,10})\] (?:general protection|trap )"
        rb"[^\n]{0,128} in libnccl\.so",
    ),
    _shape(
        LineKind.HUNG_TASK,
        (b"INF", b"tas"),
        rb"(?:INFO: )?task " + _NV_TASK + rb" blocked for more than (?P<detail>\d{1,6}) seconds",
    ),
    _shape(
        LineKind.HUNG_TASK,
        (b"wat", b"NMI", b"BUG"),
        rb"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#\d{1,5} stuck for "
        rb"(?P<detail>\d{1,6})s! \[" + _NV_TASK + rb"\]",
    ),
)  # fmt: skip
"""Patterns of the kernel and of other drivers."""


_HEAD: Final = 3


class ShapeTable:
    """Patterns in order, selected by the first bytes of a message."""

    __slots__ = ("_any", "_by_head")

    def __init__(self, shapes: tuple[_Shape, ...]) -> None:
        heads = {head for shape in shapes for head in shape.heads}
        self._any = tuple(shape for shape in shapes if not shape.heads)
        self._by_head = {
            head: tuple(shape for shape in shapes if not shape.heads or head in shape.heads)
            for head in heads
        }

    def parse(self, message: bytes, start: int, user: bool) -> KernelLine | None:
        """Return the record of `message` from `start` by the first matching pattern, or None."""
        for shape in self._by_head.get(message[start : start + _HEAD], self._any):
            if found := shape.match(message, start):
                return _line(shape, found, message, user)
        return None


NVRM: Final = ShapeTable(_NVRM_SHAPES)
OTHER: Final = ShapeTable(_OTHER_SHAPES)


def _line(shape: _Shape, found: re.Match[bytes], message: bytes, user: bool) -> KernelLine:
    groups = shape.groups
    # Group 0 is the entire match: a pattern without a group of that name has the index 0.
    pci = found[groups.pci] if groups.pci else None
    if pci and pci.count(b":") == 1:
        pci = b"0000:" + pci
    uuid = found[groups.gpu_uuid] if groups.gpu_uuid else None
    pid = found[groups.pid] if groups.pid else None
    process = found[groups.process] if groups.process else None
    erring = found[groups.erring] if groups.erring else None
    return KernelLine(
        shape.kind,
        pci=pci_address.normal_pci(pci.decode("ascii")) if pci else None,
        gpu_uuid=uuid.decode("ascii") if uuid else None,
        pid=int(pid) if pid else None,
        process=text.printable(process) if process else None,
        erring=pci_address.normal_pci(erring.decode("ascii")) if erring else None,
        user=user,
        text=text.printable(message),
        detail=_detail(shape, found) if groups.detail else None,
    )


def _detail(shape: _Shape, found: re.Match[bytes]) -> str | None:
    raw = found[shape.groups.detail]
    if raw is None:
        return None
    detail = text.printable(raw)
    if shape.kind is LineKind.AER:
        severity = detail.lower()
        if severity.startswith("correct"):
            return "corrected"
        return "nonfatal" if "non-fatal" in severity else "fatal"
    if shape.groups.of:
        return f"{detail} of {text.printable(found[shape.groups.of])} Gb/s"
    return detail
