"""Parse one line of a kernel log, in any transport, into a frozen record.

`rules.kernel_log.scan` reads entire files with the same results, faster. Every line is parsed by
itself. Any bytes are accepted; nothing here does I/O, keeps state or decides what a line means.
"""

import re
from typing import Final

from rules.kernel_log import shapes, text
from rules.kernel_log.record import KernelLine, LineKind
from rules.text import pci_address

ADDRESS: Final = rb"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)?"
"""A PCI address; drivers of 2007 print two parts only."""

_NAME: Final = rb"[^,]{0,100}+(?:,(?! )[^,]{0,100}+){0,3}+"
"""A process name, up to the driver's limit; it ends at a comma and a blank."""

_XID_LINE: Final = re.compile(
    rb"NVRM: Xid \((?:PCI:)?(" + ADDRESS + rb")"
    rb"(?: GPU-I:(\d{1,3})(?: GPU-CI:(\d{1,3}))?)?\): (\d{1,5})(?![^,\s])"
    rb"(?:, pid=([^,]{0,64}+))?(?:, {1,4}name=(" + _NAME + rb"))?,?\s?"
)
_SXID: Final = re.compile(
    rb"nvidia-nvswitch\d{0,3}: SXid \(PCI:(" + ADDRESS + rb")\): (\d{1,6})(?![^,\s]),?\s?"
)
_FABRIC_MANAGER: Final = re.compile(rb"detected NVSwitch (non-)?fatal error (\d{1,6})(?![^,\s])")
_SXID_FATALITY: Final = re.compile(rb"(Fatal|Non-fatal)\b(?:, Link (\d{1,3})(?![^,\s]))?")
_RECOVERY: Final = re.compile(
    rb"GPU recovery action changed from 0x([0-9a-fA-F]{1,8})\b[^\n"
    rb"]{0,64}? to 0x([0-9a-fA-F]{1,8})\b"
)
_CAUSED_BY: Final = re.compile(rb" caused by previous Xid (\d{1,5})$")
_NVLINK_OLD: Final = re.compile(
    rb"NVLink: [a-zA-Z ]{1,48}? (?:link (\d{1,3})|links(?: 0x[0-9a-fA-F]{1,16})?)\b"
)
_NVLINK_NEW: Final = re.compile(
    rb"([A-Z][A-Za-z0-9_/]{1,48}+(?: "
    rb"(?!Fatal|Nonfatal)[A-Za-z]\w{1,20})?+)\s+(Fatal|Nonfatal)\s+XC ?\d{1,2} i ?\d{1,2} "
    rb"Link (-?\d{1,3})"
    rb"(?: [(\[]0x([0-9a-fA-F]{1,8})(?: 0x([0-9a-fA-F]{1,8}))?)?"
)
_REGISTERS: Final = re.compile(rb"[(\[](0x[0-9a-fA-F]{1,8}(?:[, ]+0x[0-9a-fA-F]{1,8}){0,8})[)\]]")
_PLACE: Final = re.compile(rb"on \(GPC (\d{1,3}), TPC (\d{1,3})")
_POISON: Final = re.compile(
    rb"(?:Uncontained|Contained): [^\n]{1,240}?\bRST: (Yes|No), D-RST: (Yes|No)"
    rb"(?: caused by previous Xid \d{1,5})?$|GSP-RISCV instance \d{1,2} [^\n]{0,120}?fatal error\b"
)
"""The two flags of a memory error, contained or not, at the end of the line; or the error of the
GPU's system processor with the same number, which requires a reset without a flag. Source: open
GPU kernel modules 595.45.04.
"""

_SHAPES: Final = {
    b"13": _PLACE,
    b"74": _NVLINK_OLD,
    b"94": _POISON,
    b"95": _POISON,
    b"136": _NVLINK_OLD,
    b"154": _RECOVERY,
    **dict.fromkeys((b"%d" % xid for xid in (*range(144, 151), 155)), _NVLINK_NEW),
}
"""The patterns of Xids with more fields in the text, by the digits in the line."""

# NVML's recovery actions for the flags of a line. Source: NVML reference.
NO_ACTION: Final = 0
RESET_ACTION: Final = 1
DRAIN_AND_RESET_ACTION: Final = 4

_HEX: Final = 16
_MINUS: Final = ord("-")


def parse_xid(message: bytes, user: bool) -> KernelLine | None:
    """Return the record of an Xid line; None if the message is not one."""
    found = _XID_LINE.match(message)
    if found is None:
        return None
    address, gi, ci, number, pid, name = found.groups()
    body = found.end()
    link = unit = fatal = gpc = tpc = recovery_from = recovery_to = caused_by = asks = None
    registers: tuple[int, ...] = ()
    shape = _SHAPES.get(number)
    if shape is None:
        pass
    elif shape is _NVLINK_NEW:
        if new := _NVLINK_NEW.match(message, body):
            raw_unit, fatality, raw_link, info, status = new.groups()
            unit = raw_unit.decode("ascii")
            fatal = fatality == b"Fatal"
            link = None if raw_link[0] == _MINUS else int(raw_link)
            if info is not None:
                registers = (int(info, _HEX), int(status, _HEX)) if status else (int(info, _HEX),)
    elif shape is _NVLINK_OLD:
        if old := _NVLINK_OLD.match(message, body):
            unit = "NVLink"
            link = int(old[1]) if old[1] else None
            registers = _registers(message, body)
    elif shape is _RECOVERY:
        if recovery := _RECOVERY.match(message, body):
            recovery_from, recovery_to = int(recovery[1], _HEX), int(recovery[2], _HEX)
    elif shape is _POISON:
        asks = _asked_for(message, body)
    elif place := shape.search(message, body):
        gpc, tpc = int(place[1]), int(place[2])
    if message.find(b"caused by", body) > 0 and (cause := _CAUSED_BY.search(message, body)):
        caused_by = int(cause[1])
    return KernelLine(
        LineKind.XID,
        int(number),
        None,
        None,
        pci_address.normal_pci(address.decode("ascii")),
        None,
        int(gi) if gi else None,
        int(ci) if ci else None,
        int(pid) if pid and pid.isdigit() and len(pid) < 11 else None,
        _process(name) if name else None,
        link,
        unit,
        caused_by,
        recovery_from,
        recovery_to,
        user,
        text.printable(message),
        fatal,
        registers,
        gpc,
        tpc,
        asks=asks,
    )


def parse_sxid(message: bytes, user: bool) -> KernelLine | None:
    """Return the record of an NVSwitch line or a line that follows it; None if it is neither."""
    found = _SXID.match(message)
    if found is None:
        return None
    body = found.end()
    detail = message.startswith((b"Severity ", b"Data {"), body)
    fatality = None if detail else _SXID_FATALITY.match(message, body)
    return KernelLine(
        LineKind.SXID_DETAIL if detail else LineKind.SXID,
        user=user,
        text=text.printable(message),
        sxid=int(found[2]),
        sxid_fatal=fatality[1] == b"Fatal" if fatality else None,
        pci=pci_address.normal_pci(found[1].decode("ascii")),
        link=int(fatality[2]) if fatality and fatality[2] else None,
    )


def parse_fabric_manager(message: bytes, user: bool) -> KernelLine | None:
    """Return the record of a fabric manager log line; the kernel's SXid line names the switch."""
    found = _FABRIC_MANAGER.match(message)
    if found is None:
        return None
    return KernelLine(
        LineKind.FABRIC_MANAGER,
        user=user,
        text=text.printable(message),
        sxid=int(found[2]),
        sxid_fatal=found[1] is None,
    )


def _asked_for(message: bytes, body: int) -> int | None:
    """Return the recovery action of the flags at the end of a line; None without flags."""
    flags = _POISON.match(message, body) or _POISON.search(message, body)
    if flags is None:
        return None
    if flags[1] is None or flags[1] == b"Yes":
        return RESET_ACTION
    return DRAIN_AND_RESET_ACTION if flags[2] == b"Yes" else NO_ACTION


def _registers(message: bytes, body: int) -> tuple[int, ...]:
    found = _REGISTERS.search(message, body)
    if found is None:
        return ()
    return tuple(int(register, _HEX) for register in found[1].replace(b",", b" ").split())


def _process(name: bytes) -> str | None:
    plain = name.strip(b"' \r")
    return text.printable(plain) if plain and plain not in (b"<unknown>", b"<n/a>") else None


def parse(line: bytes) -> KernelLine | None:
    """Return the record of one line; None if it is not about GPUs.

    The line is bare, or in the format of `/dev/kmsg` (header, semicolon, text), dmesg, journal or
    syslog. Text after a newline (the dictionary of a `/dev/kmsg` record) is ignored.
    """
    if len(line) > text.MAX_LINE:
        line = line[: text.MAX_LINE]
    if b"\n" in line:
        line = line[: line.index(b"\n")]
    if line.startswith(text.BARE):
        return parse_message(line)
    message, user = text.split_prefix(line)
    return parse_message(message, user=user)


def parse_message(message: bytes, *, user: bool = False) -> KernelLine | None:
    """Return the record of a message without prefix; `user`: user space wrote it."""
    if len(message) > text.MAX_LINE or message.endswith(b"\r"):
        message = message[: text.MAX_LINE].rstrip(b"\r")
    if message.startswith(b"NVRM: "):
        if message.startswith(b"Xid (", 6):
            return parse_xid(message, user)
        return shapes.NVRM.parse(message, 6, user)
    if message.startswith(b"nvidia-nvswitch"):
        return parse_sxid(message, user)
    if message.startswith(b"detected NVSwitch "):
        return parse_fabric_manager(message, user)
    return shapes.OTHER.parse(message, 0, user)
