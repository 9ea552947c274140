"""Whether the cluster's definitions of our kinds know every field of this release.

Whoever upgrades the programs and not the definitions loses what they do not know: the API server
drops it and says so to nobody who asks. Read from `/openapi/v3`, which every user may. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from rules.api.evidence.wire import EvidenceSpec
from rules.api.health import HealthStatus
from rules.api.names import GROUP, VERSION
from rules.api.quarantine import PauseSpec, QuarantineSpec, QuarantineStatus

OPENAPI_PATH: Final = f"/openapi/v3/apis/{GROUP}/{VERSION}"
_WRITTEN: Final[tuple[tuple[str, str, type], ...]] = (
    ("GPUQuarantine", "spec", QuarantineSpec),
    ("GPUQuarantine", "status", QuarantineStatus),
    ("GPUNodeHealth", "status", HealthStatus),
    ("GPUWardPause", "spec", PauseSpec),
    ("GPUEvidence", "spec", EvidenceSpec),
)


def unknown_fields(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that this release writes and the served definitions do not have, as
    `GPUQuarantine.spec.release`; kinds that are not served are none.
    """
    served = {
        kind.get("kind"): schema
        for schema in (document.get("components") or {}).get("schemas", {}).values()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
    }
    found: list[str] = []
    for kind, part, wire in _WRITTEN:
        if kind in served:
            schema = (served[kind].get("properties") or {}).get(part) or {}
            found += _missing(f"{kind}.{part}", schema, msgspec.inspect.type_info(wire))
    return tuple(found)


def _missing(path: str, schema: Mapping[str, Any], wire: msgspec.inspect.Type) -> Iterator[str]:
    """Where the schema lists fields it knows no others; a free map knows all."""
    match wire:
        case msgspec.inspect.StructType() if (known := schema.get("properties")) is not None:
            for field in wire.fields:
                place = f"{path}.{field.encode_name}"
                if field.encode_name in known:
                    yield from _missing(place, known[field.encode_name], field.type)
                else:
                    yield place
        case msgspec.inspect.StructType() if not schema:
            yield path
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            yield from _missing(path, schema.get("items") or {}, wire.item_type)
        case msgspec.inspect.UnionType():
            for one in wire.types:
                yield from _missing(path, schema, one)
