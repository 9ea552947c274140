"""A fault as a person saw it when they gave their word, and what of it came later.

A person who ends a session, or takes its level down, speaks of what the verdict said at that
moment: this fault, on these GPUs, this grave. Later evidence may go into the very same incident (a
common cause found on other GPUs, a burst whose next line is worse, the driver's answer), so its id
alone says too little. What went on as it was stays covered; what is beyond may be acted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from rules.api.health import IncidentStatus, Wire
from rules.api.nodes import HealthView
from rules.api.quarantine import Cause
from rules.api.sentences import some
from rules.api.timestamps import parse_time
from rules.catalog.reason import severity_rank
from rules.session.external import is_external

MAX_FAULTS: Final = 64
_MAX_GPUS: Final = 32
"""A fault of more parts than this is remembered without them: it is covered wherever it is."""


class SeenFault(Wire, frozen=True, omit_defaults=True):
    """A fault as a person saw it; without a reason only its id is known, and all of it covered."""

    id: str
    reason: str = ""
    severity: str = ""
    gpus: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    until: str = ""
    """When what was said of it counts no more; "" where nobody limited it."""


def seen_now(health: HealthView | None, ids: Set[str]) -> list[dict[str, Any]]:
    """The active incidents of those ids as they are now, to be kept in a session's evidence. What
    others say on the Node has no parts and changes with the policy: its id is enough.
    """
    found = health.status.incidents if health is not None else ()
    agents = (each for each in found if each.active and not is_external(each.id))
    seen = [_seen(each) for each in agents if each.id in ids]
    return [msgspec.to_builtins(each) for each in seen[:MAX_FAULTS]]


def _seen(incident: IncidentStatus) -> SeenFault:
    many = max(len(incident.gpus), len(incident.pci)) > _MAX_GPUS
    return SeenFault(
        id=incident.id,
        reason=incident.reason,
        severity=incident.severity,
        gpus=() if many else incident.gpus,
        pci=() if many else incident.pci,
    )


def read_seen(kept: object) -> tuple[SeenFault, ...]:
    """What `seen_now` kept; a bare id, or what nobody can read, is known by its id alone."""
    found: list[SeenFault] = []
    for each in kept if isinstance(kept, list) else ():
        if isinstance(each, str):
            found.append(SeenFault(id=each))
            continue
        try:
            found.append(msgspec.convert(each, SeenFault))
        except msgspec.ValidationError:
            known = each.get("id") if isinstance(each, Mapping) else None
            if isinstance(known, str):
                found.append(SeenFault(id=known))
    return tuple(found)


def as_it_came(seen: SeenFault, cause: Cause) -> SeenFault:
    """The fault with the reason and the severity that it became a cause with."""
    return msgspec.structs.replace(seen, reason=cause.reason, severity=cause.severity)


def in_force(seen: Iterable[SeenFault], now: float) -> tuple[SeenFault, ...]:
    """Those of which what was said counts still."""
    return tuple(each for each in seen if now < (parse_time(each.until) or float("inf")))


def alike_in(seen: Iterable[SeenFault], incident: IncidentStatus) -> tuple[SeenFault, ...]:
    """Those that say something about the incident: it itself, and what became a part of it."""
    gpus, pci = frozenset(incident.gpus), frozenset(incident.pci)
    return tuple(
        each
        for each in dict.fromkeys(seen)
        if each.id == incident.id
        or (
            each.reason == incident.reason
            and not (gpus.isdisjoint(each.gpus) and pci.isdisjoint(each.pci))
        )
    )


def beyond(seen: Iterable[SeenFault], incident: IncidentStatus) -> str:
    """What of the incident was not seen, a clause; "" where all of it was.

    Two incidents of one reason may have become one since: what was seen of either counts, where
    its parts are among those of the one.
    """
    alike = alike_in(seen, incident)
    same = [each for each in alike if each.id == incident.id]
    if not same:
        return f"{incident.reason} is a new fault"
    if not all(each.reason for each in same):
        return ""
    severity, worst = severity_rank(incident.severity), max(_rank(each) for each in alike)
    if severity > worst:
        return f"{incident.reason} became {incident.severity}"
    if incident.reason not in {each.reason for each in alike} and severity == worst:
        return f"{same[0].reason} became {incident.reason}"
    if joined := _other_parts(alike, incident):
        return f"{incident.reason} came to {some(joined)}"
    return ""


def _rank(seen: SeenFault) -> int:
    return severity_rank(seen.severity)


def _other_parts(alike: Sequence[SeenFault], incident: IncidentStatus) -> tuple[str, ...]:
    """Parts that the incident names and nobody saw in it; none where it named none then.

    A part may be known by its address first and by its UUID later, or move to another address at
    a boot: it is another one only where no name of it is known, or where there are more than
    were known by either.
    """
    if any(not each.gpus and not each.pci for each in alike):
        return ()
    gpus = {gpu for each in alike for gpu in each.gpus}
    pci = {address for each in alike for address in each.pci}
    new_gpus = tuple(gpu for gpu in incident.gpus if gpu not in gpus)
    new_pci = tuple(address for address in incident.pci if address not in pci)
    more = max(len(incident.gpus), len(incident.pci)) > max(len(gpus), len(pci))
    by_gpu_alone = not incident.pci or not pci
    by_pci_alone = not incident.gpus or not gpus
    if by_gpu_alone and by_pci_alone:
        # Nothing to compare it with: known by one kind of name then, by the other now.
        return (new_gpus or new_pci) if more else ()
    if by_gpu_alone:
        return new_gpus
    if by_pci_alone:
        return new_pci
    return (new_gpus or new_pci) if more or (new_gpus and new_pci) else ()
