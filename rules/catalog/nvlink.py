"""Decode the registers of NVLink errors: 95 rules for Xid 144 to 150, bits for Xid 74.

The rules are in `rules/data/nvlink5.json`, with both layouts of the first register (before and
from R575). No register value matches two rules with different actions, so the driver version is
not needed. The text of the line is not read.
"""

from functools import cache
from typing import Final, NamedTuple

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.reason import Action, Severity

_STRENGTH: Final = {"RESET_GPU": 2, "XID_154_EVAL": 1, "IGNORE": 0}
_BIT_FIELDS: Final = range(144, 149)
"""Xids with a set of bits as error status; for 149 and 150 it is one code."""


class Nvlink5Rule(msgspec.Struct, frozen=True):
    """One rule: it matches if a layout's masked value is equal and the status is listed.

    No status means any.
    """

    xid: int
    layouts: tuple[tuple[int, int], ...]
    statuses: tuple[int, ...]
    immediate: str
    investigatory: str

    def fits_info(self, info: int) -> bool:
        """Return whether the first register matches in either layout."""
        return any(info & mask == value for mask, value in self.layouts)


class _NvlinkFile(msgspec.Struct, frozen=True):
    version: str
    rules: tuple[Nvlink5Rule, ...]


@cache
def nvlink5_rules() -> tuple[Nvlink5Rule, ...]:
    """Return the rules in the catalog's order."""
    text = data_file("nvlink5.json")
    return msgspec.json.decode(text, type=_NvlinkFile).rules


def nvlink5_rule(xid: int, registers: tuple[int, ...]) -> Nvlink5Rule | None:
    """Return the rule for the registers of an Xid 144 to 150, or None.

    The first register is intrInfo, the second the error status. A status with several bits uses
    the strongest of their rules.
    """
    if not 144 <= xid <= 150 or len(registers) < 2:
        return None
    return _rule(xid, registers[0], registers[1])


def _rule(xid: int, info: int, status: int) -> Nvlink5Rule | None:
    candidates = [rule for rule in nvlink5_rules() if rule.xid == xid and rule.fits_info(info)]
    exact = [rule for rule in candidates if not rule.statuses or status in rule.statuses]
    if not exact and xid in _BIT_FIELDS:
        exact = [rule for rule in candidates if any(status & bit for bit in rule.statuses)]
    return max(exact, key=lambda rule: _STRENGTH[rule.immediate], default=None)


class Nvlink4Assessment(NamedTuple):
    """The severity and action of the seven registers of an Xid 74."""

    severity: Severity
    action: Action


_MECHANICAL: Final = Nvlink4Assessment(Severity.DEGRADED, Action.CHECK_MECHANICALS)
_ECC: Final = Nvlink4Assessment(Severity.DEGRADED, Action.RUN_DIAGNOSTICS)
_MARGINAL: Final = _ECC
"""A marginal signal of the link: diagnostics, as for ECC and parity errors."""
_FABRIC: Final = Nvlink4Assessment(Severity.DEGRADED, Action.RESET_GPU)
"""A consequence of another error; the fabric needs a reset."""
_REPEAT: Final = Nvlink4Assessment(Severity.DEGRADED, Action.INVESTIGATE)
"""Investigate if it repeats, like a bit that should not occur in production."""
_SECONDARY: Final = Nvlink4Assessment(Severity.INFO, Action.INVESTIGATE)
"""A consequence of another error; investigate that one."""
_IGNORED: Final = Nvlink4Assessment(Severity.INFO, Action.NONE)

_MOST_SEVERE_FIRST: Final = (_MECHANICAL, _ECC, _FABRIC, _REPEAT, _SECONDARY, _IGNORED)

_NVLINK4_BITS: Final[tuple[tuple[int, tuple[int, ...], Nvlink4Assessment], ...]] = (
    (0, (0, 23, 30), _IGNORED),
    (0, (1, 20), _SECONDARY),
    (0, (4, 5), _ECC),
    (0, (8, 9, 12, 16, 17, 24, 28), _MECHANICAL),
    (0, (21, 22), _MARGINAL),
    (0, (27, 29), _REPEAT),
    (2, (0, 1, 2, 6), _ECC),
    (2, (13, 16, 17, 18, 19), _REPEAT),
    (3, (16, 17), _SECONDARY),
    (3, (18,), _FABRIC),
    (4, (18, 19, 21, 22, 24, 25, 27, 28), _ECC),
    (4, (20, 23, 26, 29), _IGNORED),
)
"""Register (from 0), bits, assessment. Source: NVIDIA Xid catalog, workflow of Xid 74."""


def nvlink4_assessment(registers: tuple[int, ...]) -> Nvlink4Assessment:
    """Return the most severe assessment of the registers of an Xid 74.

    Registers two, six and seven carry data on current parts and are not read. If all are zero, the
    error must be investigated.
    """
    found: set[Nvlink4Assessment] = set()
    known: dict[int, int] = {}
    for register, bits, assessment in _NVLINK4_BITS:
        mask = sum(1 << bit for bit in bits)
        known[register] = known.get(register, 0) | mask
        if register < len(registers) and registers[register] & mask:
            found.add(assessment)
    for register, mask in known.items():
        if register < len(registers) and registers[register] & ~mask:
            found.add(_REPEAT)
    return next((assessment for assessment in _MOST_SEVERE_FIRST if assessment in found), _REPEAT)
