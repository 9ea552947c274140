"""Validate object names and label values, and quote names for URL paths.

All names from other sources are checked here: owner references, annotations, selectors, sessions
of operators. The rules are those of the API machinery (RFC 1123 subdomains, qualified names). An
invalid label value costs only that label, not the entire patch: `checked_labels` returns refused
labels for the caller to log.
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
"""Characters that a path has unquoted (RFC 3986, unreserved)."""
_VERSION: Final = re.compile(r"[a-z0-9]{1,63}", re.ASCII)


class BadSegmentError(ValueError):
    """A name that cannot be a path segment; the message has the name."""


def is_object_name(text: str) -> bool:
    """Return whether `text` can name a node, a namespace or an object of gpuward."""
    return len(text) <= MAX_NAME and _SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Return whether `text` can be a label key: `name` or `prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_object_name(prefix)) and _QUALIFIED.fullmatch(name) is not None


def is_api_version(text: str) -> bool:
    """Return whether `text` can be an `apiVersion`: `v1` or `group/version`."""
    group, slash, version = text.rpartition("/")
    return (not slash or is_object_name(group)) and _VERSION.fullmatch(version) is not None


def name_from(long: str, suffix: str, most: int = 200) -> str:
    """Return `long`, cut to `most` characters, with `suffix`: always a valid name.

    Dots and dashes at the cut are removed, since no part of a name may end with them.
    """
    return f"{long[:most].rstrip('.-')}{suffix}"


def segment(name: str) -> str:
    """Return the name as one path segment. BadSegmentError for "", `.` and `..`.

    Those cannot be quoted, because path normalization removes them.
    """
    if name in {"", ".", ".."}:
        raise BadSegmentError(f"{name!r} cannot be a part of a path")
    return name if _UNQUOTED.fullmatch(name) else quote(name, safe="")


def api_path(root: str, *names: str) -> str:
    """Return `root`, unquoted, and one segment for each name. BadSegmentError as above."""
    return "/".join([root, *(segment(name) for name in names)])


def field_selector(field: str, value: str) -> str:
    """Return `field=value` with `value` escaped as by `fields.EscapeValue`."""
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    return f"{field}={escaped}"


MAX_LABEL_CHARS: Final = 63
"""Kubernetes' limit for a label value."""

_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_EDGES: Final = "-_."
_REFUSED_CHARS: Final = 80


class RefusedLabel(NamedTuple):
    """A label that was left out, with its value escaped and cut for the log."""

    name: str
    value: str


def is_label_value(text: str) -> bool:
    """Return whether `text` can be a label value."""
    return len(text) <= MAX_LABEL_CHARS and _VALUE.fullmatch(text) is not None


def checked_labels(wanted: Mapping[str, str]) -> tuple[dict[str, str], tuple[RefusedLabel, ...]]:
    """Return the valid labels, and the invalid ones."""
    kept = {name: value for name, value in wanted.items() if is_label_value(value)}
    refused = tuple(
        RefusedLabel(name, ascii(value)[:_REFUSED_CHARS])
        for name, value in wanted.items()
        if name not in kept
    )
    return kept, refused


def product_label(product: str) -> str:
    """Return a GPU's product name as GPU feature discovery writes it: `NVIDIA-H100-80GB-HBM3`.

    Whitespace becomes a dash, and characters that a label cannot have are dropped.
    """
    dashed = "-".join(product.split())
    return _NOT_ALLOWED.sub("", dashed)[:MAX_LABEL_CHARS].strip(_EDGES)
