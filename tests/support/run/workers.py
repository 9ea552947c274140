"""How several processes share one run of the tests, where `-n` asks for them.

Half of the time the machine would wait for programs that end-to-end tests start, if they ran side
by side; and each process would compile the assertions of every file, if all began with the same.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

_WAITING = ("tests/e2e/", "tests/unit/agent/nvml/test_nvml_link", "tests/unit/agent/commands/")
"""Files whose tests wait for other processes most of their time."""


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Import the files in another order in each process: what one has compiled, others read."""
    worker = getattr(collector.config, "workerinput", None)
    if worker is None or not isinstance(collector, pytest.Session):
        return
    files = sorted(path for name in collector.config.args for path in _files(Path(name)))
    begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in (*files[begin:], *files[:begin]):
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        try:
            importlib.import_module(path.stem)
        except (Exception, pytest.skip.Exception):  # noqa: BLE001 - said when it is collected
            sys.modules.pop(path.stem, None)


def _files(named: Path) -> Iterable[Path]:
    return map(Path.resolve, named.rglob("test_*.py")) if named.is_dir() else ()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread the files that wait among those that compute, so that somebody always computes."""
    if not hasattr(config, "workerinput"):
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting = [file for file in files if file.startswith(_WAITING)]
    computing = [file for file in files if not file.startswith(_WAITING)]
    items[:] = [item for file in spread(waiting, computing) for item in files[file]]


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look through it again and
    again, which costs a sixth of the time.
    """
    gc.collect()
    gc.freeze()


def spread(some: list[str], among: list[str]) -> list[str]:
    """Both lists as one, each in its order, `some` evenly among the first nine tenths of the
    others: what takes long shall not begin last.
    """
    places = [(0.9 * k / len(some), 0, one) for k, one in enumerate(some)]
    places += [(k / len(among), 1, one) for k, one in enumerate(among)]
    return [one for _, _, one in sorted(places, key=lambda place: place[:2])]
