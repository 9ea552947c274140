"""Templates of what is written: a closed set of names put into parsed values, never into text.

Every value is brought to letters, digits, dot and dash first, so that it cannot end a string
inside a string either (an annotation that holds JSON). What is put in is not read again.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.api.object_name import is_object_name
from rules.catalog.reason import is_reason_code

NAMES: Final = ("node", "nodeUID", "session", "bootID", "gpuUUIDs", "reason", "step")
"""The closed set."""
OWN_NAMESPACE: Final = "namespace"
"""Only in a target's namespace: the one that the remediator lives in."""
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 500
_NAME: Final = re.compile(r"\{([A-Za-z]*)\}")
_SAFE: Final = re.compile(r"[A-Za-z0-9.-]{1,128}")
_GPUS: Final = "{gpuUUIDs}"
_TEXTS: Final = frozenset({"annotations", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a request may say; nothing else of the node or its faults gets into a template."""

    node: str
    node_uid: str
    session: str
    boot_id: str
    gpu_uuids: tuple[str, ...]
    reason: str
    step: str

    @property
    def values(self) -> dict[str, str]:
        """By the names that templates use."""
        return {
            "node": self.node if is_object_name(self.node) else _safe(self.node),
            "nodeUID": _safe(self.node_uid),
            "session": self.session if is_object_name(self.session) else _safe(self.session),
            "bootID": _safe(self.boot_id),
            "gpuUUIDs": ",".join(self.gpus),
            "reason": self.reason if is_reason_code(self.reason) else "Unknown",
            "step": _safe(self.step),
        }

    @property
    def gpus(self) -> list[str]:
        """The UUIDs that can be some."""
        return [uuid for uuid in self.gpu_uuids if _SAFE.fullmatch(uuid)]


def filled(template: Any, facts: RequestFacts) -> Any:
    """`template` with its names put in; a text that is `{gpuUUIDs}` alone becomes a list, but in
    annotations and labels, which hold nothing but text.
    """
    return _filled(template, facts.values, facts.gpus)


def mentions(template: Any, name: str) -> bool:
    """Whether a name is to be put in anywhere."""
    if isinstance(template, str):
        return name in _NAME.findall(template)
    if isinstance(template, dict):
        return any(mentions(value, name) for value in template.values())
    return isinstance(template, list | tuple) and any(mentions(each, name) for each in template)


def filled_text(template: str, values: Mapping[str, str]) -> str:
    """One text with names put in; names that `values` lacks stay as they are."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), template)


def _filled(template: Any, values: Mapping[str, str], gpus: list[str] | None) -> Any:
    """`gpus` None: a text stays one."""
    if isinstance(template, str):
        whole = template == _GPUS and gpus is not None
        return list(gpus or ()) if whole else filled_text(template, values)
    if isinstance(template, dict):
        return {
            key: _filled(value, values, None if key in _TEXTS else gpus)
            for key, value in template.items()
        }
    if isinstance(template, list | tuple):
        return [_filled(value, values, gpus) for value in template]
    return template


def template_problems(
    template: Any, path: str, known: tuple[str, ...] = NAMES
) -> Iterator[tuple[str, str]]:
    """Path and what is wrong there: unknown names, values that JSON has not, too much of it."""
    count = 0
    todo = [(template, path, 0)]
    while todo:
        value, where, depth = todo.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            most = f"{MAX_DEPTH} levels and {MAX_VALUES} values"
            yield where[:200], f"is too large: a template has at most {most}"
            return
        if isinstance(value, str):
            yield from ((where, why) for why in _unknown(value, known))
        elif isinstance(value, dict):
            for key, inner in value.items():
                if not isinstance(key, str):
                    yield where, f"has the key {key!r:.40}; write it in quotes"
                    continue
                todo.append((inner, f"{where}.{key}", depth + 1))
        elif isinstance(value, list | tuple):
            todo += [(inner, f"{where}[{i}]", depth + 1) for i, inner in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            yield where, "is no number that JSON knows"
        elif value is not None and not isinstance(value, bool | int | float):
            yield where, f"is a {type(value).__name__} for YAML; write it in quotes"


def _unknown(text: str, known: tuple[str, ...]) -> Iterator[str]:
    for name in _NAME.findall(text):
        if name not in known:
            names = ", ".join(f"{{{each}}}" for each in known)
            yield f"names {{{name[:40]}}}, which nothing fills in; known are {names}"


def _safe(text: str) -> str:
    if _SAFE.fullmatch(text) or not text:
        return text
    return f"sha256-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"
