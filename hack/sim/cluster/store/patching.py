"""The patch languages of the API: JSON merge patch (RFC 7396), JSON patch (RFC 6902).

Called by the API logic; the strategic language is in `strategic`.  All are pure: they return a
new object that shares every untouched part with the old one.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import bad_request


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch; a failing `test` or path is a 422 without details, as on a server."""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    for operation in operations:
        target = _operate(target, operation)
    return target


def _operate(target: Any, operation: dict[str, Any]) -> Any:
    name = operation.get("op")
    path = _pointer(operation.get("path"))
    if name == "test":
        if _read(target, path) != operation.get("value"):
            raise _refused()
        return target
    if name == "remove":
        return _edit(target, path, "remove", None)
    if name in {"add", "replace"}:
        if "value" not in operation:
            raise _refused()
        return _edit(target, path, name, operation["value"])
    if name in {"move", "copy"}:
        source = _pointer(operation.get("from"))
        value = _read(target, source)
        if name == "move":
            target = _edit(target, source, "remove", None)
        return _edit(target, path, "add", value)
    raise bad_request(f"error decoding patch: unknown operation {name!r}")


def _refused() -> ApiError:
    return ApiError(
        422, "Invalid", "the server rejected our request due to an error in our request"
    )


def _pointer(path: Any) -> list[str]:
    if path == "":
        return []
    if not isinstance(path, str) or not path.startswith("/"):
        raise bad_request(f"error decoding patch: {path!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _index(container: list[Any], token: str, *, appending: bool) -> int:
    if token == "-" and appending:
        return len(container)
    if not token.isdigit() or int(token) > len(container) - (0 if appending else 1):
        raise _refused()
    return int(token)


def _read(value: Any, path: list[str]) -> Any:
    for token in path:
        if isinstance(value, dict):
            if token not in value:
                raise _refused()
            value = value[token]
        elif isinstance(value, list):
            value = value[_index(value, token, appending=False)]
        else:
            raise _refused()
    return value


def _edit(container: Any, path: list[str], how: str, value: Any) -> Any:
    if not path:
        return value
    token, rest = path[0], path[1:]
    if isinstance(container, dict):
        copy = dict(container)
        if rest:
            if token not in copy:
                raise _refused()
            copy[token] = _edit(copy[token], rest, how, value)
        elif how == "remove":
            if token not in copy:
                raise _refused()
            del copy[token]
        else:
            copy[token] = value  # also a replace: the server's library asks only for the parent
        return copy
    if isinstance(container, list):
        items = list(container)
        index = _index(items, token, appending=how == "add" and not rest)
        if rest:
            items[index] = _edit(items[index], rest, how, value)
        elif how == "add":
            items.insert(index, value)
        elif how == "remove":
            del items[index]
        else:
            items[index] = value
        return items
    raise _refused()
