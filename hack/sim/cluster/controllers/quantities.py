"""Kubernetes resource quantities as integers that can be added and compared.

The scheduler and the placement rules use them: cpu in thousandths of a core, all else in units.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_FACTOR = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{s}i": Decimal(1024) ** power for power, s in enumerate("KMGTPE", start=1)},
}


@lru_cache(maxsize=4096)
def _decimal(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"not a Kubernetes quantity: {text!r}")
    return Decimal(match[1]) * _FACTOR[match[2] or ""]


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """The quantity of one resource: cpu in millicores, anything else in whole units (rounded
    up).
    """
    value = _decimal(text) * 1000 if resource == "cpu" else _decimal(text)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
