"""How several processes share one run of the tests, where `--forks` asks for them."""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.support.run import warm_start
from tests.support.run.forks import share

LOOK_AFTER: Final = 50_000
"""How many objects are made before the collector of garbage looks through the new ones; a test
makes some hundred thousand, few of them in circles, and at Python's 700 each twentieth second goes
into looking."""

_compiler = 0
"""The process that compiles tests while this one collects them, if there is one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuward")
    group.addoption(
        "--forks",
        type=int,
        default=1,
        metavar="N",
        help="share the tests, file by file, between N forks of the process that imported them",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let programs be imported meanwhile; on the first run, let another process compile the
    assertions from the other end.
    """
    global _compiler
    if session.config.option.forks < 2 or session.config.option.collectonly:
        return
    warm_start.begin()
    files = sorted(path for name in session.config.args for path in _files(Path(name)))
    if not files or _compiled(files[-1]):
        return
    _compiler = os.fork()
    if _compiler == 0:
        for path in reversed(files):
            sys.path.insert(0, str(path.parent))
            try:
                importlib.import_module(path.stem)
            except BaseException:  # noqa: BLE001 - reported at collection
                sys.modules.pop(path.stem, None)
        os._exit(0)


def _files(named: Path) -> Iterable[Path]:
    return map(Path.resolve, named.rglob("test_*.py")) if named.is_dir() else ()


def _compiled(path: Path) -> bool:
    return any(path.parent.glob(f"__pycache__/{path.stem}.*"))


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look through it again and
    again, which costs a sixth of the time.
    """
    if _compiler:
        os.kill(_compiler, signal.SIGKILL)
        os.waitpid(_compiler, 0)
    gc.collect()
    gc.freeze()
    gc.set_threshold(LOOK_AFTER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Share the tests out, where that is asked for and nothing speaks against it."""
    option = session.config.option
    broken = session.testsfailed and not option.continue_on_collection_errors
    if option.forks < 2 or option.collectonly or broken or not session.items:
        return None
    share(session, option.forks)
    return True
