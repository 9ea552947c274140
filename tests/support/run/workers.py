"""How several processes share one run of the tests, where `-n` asks for them.

Each would compile the assertions of every file, if all began with the same; and they would wait
for other programs all at the same time.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

LOOK_AFTER: Final = 50_000
"""How many objects are made before the collector of garbage looks through the new ones; a test
makes some hundred thousand, few of them in circles, and at Python's 700 each twentieth second goes
into looking."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """For `--dist loadfile`, which is how hack/test runs."""
    from tests.support.run.lanes import Lanes  # needs xdist, which may be switched off

    return Lanes(config, log) if config.getoption("dist") == "loadfile" else None


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


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look through it again and
    again, which costs a sixth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(LOOK_AFTER)
