"""One line of the report of preflight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "FAIL"
ADMISSION_PATH: Final = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was found about one thing, and the remedy."""

    verdict: str
    name: str
    found: str
