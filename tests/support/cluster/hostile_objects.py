"""Objects mutated on their way to a client: types, bounds, missing, huge.

The server behind stays sane; only what one client reads of the chosen objects is not what anybody
stored. `Mutator.served` goes into a proxy, before the simulator or a real server.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Chosen = Callable[[str, dict[str, Any]], bool]
"""Whether an object of that collection (by plural) is to be served mutated."""

_KEPT = {("metadata", "resourceVersion"), ("metadata", "name"), ("metadata", "namespace")}
"""What the transport itself needs: the place in the watch, and which object it is."""
_LONGEST = 100_000


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: tuple[Any, ...] = (
    *(None, {}, [], "", 0, -1, 5, 2**31, 2**63, 2**70, 1e308, 0.5, True, False, deep(200)),
    *("x" * _LONGEST, "\x00\x1b[31m", "\u202eabc", "²", "None", "true", " ", "\n", "{}", "-"),
    *("../../../../api/v1/pods", "..", ".", "%2e%2e", "a/b/c", "a?limit=0#x", "UPPER", "ü" * 300),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z", "now"),
    *({"matchLabels": "x"}, {"matchExpressions": [{"key": "r", "operator": "In", "values": 5}]}),
    *([None], [5, "x", {}], {"": ""}, {"name": 5}, [{}] * 500, {"k": deep(50)}),
)


class Mutator:
    """Changes one to four places of the chosen objects, by a seed.

    `chosen` may be changed while it runs.
    """

    def __init__(self, seed: int) -> None:
        self.chosen: Chosen = lambda plural, obj: False
        self.random = random.Random(seed)
        self.count: Counter[str] = Counter()

    def served(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """What the client sees of a stored object."""
        return self.mutate(plural, obj) if self.chosen(plural, obj) else obj

    def mutate(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """A changed copy."""
        changed: dict[str, Any] = json.loads(json.dumps(obj))
        for _ in range(self.random.randint(1, 4)):
            places = [place for place in _places(changed, ()) if place not in _KEPT]
            if places:
                self._change(changed, self.random.choice(places))
        self.count[plural] += 1
        return changed

    def _change(self, obj: Any, place: tuple[str | int, ...]) -> None:
        for key in place[:-1]:
            obj = obj[key]
        key = place[-1]
        what = self.random.random()
        if what < 0.15 and isinstance(obj, dict):
            del obj[key]
        elif what < 0.25 and isinstance(obj[key], list):
            obj[key] = obj[key] * 200
        elif what < 0.35 and isinstance(obj[key], str):
            obj[key] = obj[key] * 300
        else:
            obj[key] = copy.deepcopy(self.random.choice(HOSTILE))


def _places(value: Any, at: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value but the root and the metadata as a unit."""
    found = [at] if at and at != ("metadata",) else []
    inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, item in list(inner)[:50]:
        if len(at) < 12:
            found += _places(item, (*at, key))
    return found
