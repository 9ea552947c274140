"""Keeps out of memory what nothing uses, and gives back what nothing uses any more.

`stay_small` is called by each of the agent's processes before it imports, `give_back` once it has
started: reading modules leaves half a megabyte of freed pieces in each, which the C library would
keep for ever.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import types
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

LATER: Final = (
    # Of dataclasses and traceback, for texts that nobody asks for in a day.
    *("inspect", "tokenize"),
    # Of the mail library, through which HTTP headers are read, and of the HTTP server.
    *("calendar", "html", "locale", "mimetypes", "shutil"),
    # Of urllib.parse, msgspec and the library of Prometheus.
    *("ipaddress", "msgspec.inspect", "msgspec.toml", "msgspec.yaml", "platform"),
)
"""Modules that others import at their top and use in rare calls, or in none of ours."""

NEVER: Final = {
    # A server and a client of its own, and decorators: we serve what `generate_latest` returns.
    "prometheus_client": (
        *("urllib.error", "urllib.request", "wsgiref.simple_server"),
        *("prometheus_client.asgi", "prometheus_client.decorator"),
        "prometheus_client.gc_collector",
        *("prometheus_client.platform_collector", "prometheus_client.process_collector"),
    ),
    # Kinds of values that no message of ours has.
    "msgspec": ("decimal", "uuid", "msgspec._json_schema"),
    # Exact sums: medians and means of floats need none.
    "statistics": ("decimal", "fractions", "numbers"),
    # The version of a library for HTTP/2, which no API server needs.
    "urllib3": ("importlib.metadata",),
    # Looking for a library by starting programs: the driver's is loaded by its name.
    "pynvml": ("ctypes.util",),
}
"""Per library, what it takes names from and does nothing with here."""

OF_DAEMON: Final = ("msgspec", "statistics", "prometheus_client", "urllib3")
OF_NVML_CHILD: Final = ("msgspec", "pynvml")

_loading = threading.Lock()


class LaterModule(types.ModuleType):
    """In the place of a module until something of it is used."""

    def __getattr__(self, attribute: str) -> Any:
        name = self.__name__
        with _loading:
            if sys.modules.get(name) is self:
                del sys.modules[name]
        return getattr(import_module(name), attribute)


class _Unused(type):
    """A class of any name with attributes of any name, in the place of what is never used."""

    def __getattr__(cls, attribute: str) -> _Unused:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _Unused(attribute, (), {})


class _UnusedModule(types.ModuleType):
    """In the place of a module while a library takes names from it that it never uses here."""

    def __getattr__(self, attribute: str) -> _Unused:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _Unused(attribute, (), {})


def stay_small(*libraries: str) -> None:
    """Keep out modules that libraries import and that are not used here: megabytes.

    `libraries` are imported without what `NEVER` says of them; other modules come by themselves
    when they are used. Two never come.
    `typing_extensions`: None makes the import fail, and msgspec takes the same names from typing.
    `html.entities`: the HTTP server's library escapes and never looks an entity up.
    """
    vars(sys)["modules"].setdefault("typing_extensions", None)
    entities = types.ModuleType("html.entities")
    vars(entities)["html5"] = {}
    sys.modules.setdefault("html.entities", entities)
    for name in LATER:
        sys.modules.setdefault(name, LaterModule(name))
    for library in libraries:
        if library not in sys.modules:
            _import_without(NEVER[library], library)


def _import_without(names: Iterable[str], library: str) -> None:
    """Whoever else wants one of these modules gets it whole."""
    stand_ins: dict[str, types.ModuleType] = {
        name: _UnusedModule(name)
        for name in names
        if isinstance(sys.modules.get(name), LaterModule | None)
    }
    before = {name: sys.modules[name] for name in stand_ins if name in sys.modules}
    sys.modules.update(stand_ins)
    try:
        import_module(library)
    finally:
        for name in stand_ins:
            del sys.modules[name]
        sys.modules.update(before)


def give_back() -> None:
    """Collect what making modules left in circles, then ask the C library; only glibc can be."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
