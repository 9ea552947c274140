"""Names and label values that API objects can have, and a name as a part of a path.

The one gate for names that somebody else chose: owner references, annotations, selectors, sessions
that people write. Rules and limits are those of the API machinery (RFC 1123 subdomains, qualified
names). One odd label value (a vendor string, a UUID with a colon) costs that label only and never
the entire patch: `checked_labels` returns what it refuses, for the caller to log and count. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

MAX_NAME: Final = 253
"""Kubernetes' limit for the name of an object."""
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_UNQUOTED: Final = re.compile(r"[-A-Za-z0-9_.~]+", re.ASCII)
"""What a path holds as it is (RFC 3986, unreserved)."""
_VERSION: Final = re.compile(r"[a-z0-9]{1,63}", re.ASCII)


class BadSegmentError(ValueError):
    """What is to be a part of a path cannot be one; the text says which."""


def is_object_name(text: str) -> bool:
    """Whether an object of gpuward, a node or a namespace can be called so."""
    return len(text) <= MAX_NAME and _SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether the API server takes `text` as the key of a label: `name` or `prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_object_name(prefix)) and _QUALIFIED.fullmatch(name) is not None


def is_api_version(text: str) -> bool:
    """Whether `text` can be an `apiVersion`: `v1` or `group/version`."""
    group, slash, version = text.rpartition("/")
    return (not slash or is_object_name(group)) and _VERSION.fullmatch(version) is not None


def name_from(long: str, suffix: str, most: int = 200) -> str:
    """`long`, cut to `most`, with `suffix`: a name, wherever the cut falls.

    A name may be cut at a dot or dash, and no part of a name may end there.
    """
    return f"{long[:most].rstrip('.-')}{suffix}"


def segment(name: str) -> str:
    """A name as exactly one segment of a path. BadSegmentError for "", `.` and `..`.

    Those three cannot be quoted: whoever normalises the path would drop or climb them.
    """
    if name in {"", ".", ".."}:
        raise BadSegmentError(f"{name!r} cannot be a part of a path")
    return name if _UNQUOTED.fullmatch(name) else quote(name, safe="")


def api_path(root: str, *names: str) -> str:
    """`root` (ours, taken as it is) and one segment for each name. BadSegmentError as above."""
    return "/".join([root, *(segment(name) for name in names)])


def field_selector(field: str, value: str) -> str:
    """`field=value` with nothing in `value` that would end it (as `fields.EscapeValue`)."""
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    return f"{field}={escaped}"


MAX_LABEL_CHARS: Final = 63
"""Kubernetes' limit for a label value."""

_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_EDGES: Final = "-_."
_REFUSED_CHARS: Final = 80


class RefusedLabel(NamedTuple):
    """A label that was left out, with its value escaped and cut for a log line."""

    name: str
    value: str


def is_label_value(text: str) -> bool:
    """Whether the API server takes `text` as a label value."""
    return len(text) <= MAX_LABEL_CHARS and _VALUE.fullmatch(text) is not None


def checked_labels(wanted: Mapping[str, str]) -> tuple[dict[str, str], tuple[RefusedLabel, ...]]:
    """Split into the labels that may be written and those that may not."""
    kept = {name: value for name, value in wanted.items() if is_label_value(value)}
    refused = tuple(
        RefusedLabel(name, ascii(value)[:_REFUSED_CHARS])
        for name, value in wanted.items()
        if name not in kept
    )
    return kept, refused


def product_label(product: str) -> str:
    """Spell a GPU's product name as GPU feature discovery does: `NVIDIA-H100-80GB-HBM3`.

    Whitespace becomes a dash; what a label cannot carry is dropped, so that the name of a known
    product never changes.
    """
    dashed = "-".join(product.split())
    return _NOT_ALLOWED.sub("", dashed)[:MAX_LABEL_CHARS].strip(_EDGES)
