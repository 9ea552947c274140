"""Several processes share one run of the tests: `--forks N`.

The tests are imported once, then the process forks; each fork gets a file at a time and reports
what came of every test. (Processes that are started again import all tests, each of them again.)
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
import traceback
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NoReturn, cast

import pytest
from _pytest import runner

from tests.support.run.queues import Queues

CLEANING_UP: Final = 10.0
"""Seconds that a fork has to end in when the run is stopped."""

SPEAKERS: Final = ("terminalreporter", "terminalprogress")
"""Plugins that write to the terminal, which only the process does that has them all."""


class Fork:
    """One of the processes as the run sees it, and the tests that are still before it."""

    def __init__(self, session: pytest.Session, number: int) -> None:
        self.number = number
        self.file = ""
        self.left: list[pytest.Item] = []
        self.last_message = ""
        self.pipe, theirs = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            _live(session, number, theirs)
        theirs.close()

    def give(self, queues: Queues, others: Iterable[Fork]) -> None:
        """Send the next file, or None when nothing is left."""
        self.file, tests = queues.next_file([other.file for other in others if other is not self])
        self.left = [item for _, item in tests]
        self.pipe.send([index for index, _ in tests])

    def end(self) -> str:
        """Wait until it is over; what went wrong with it, if anything did."""
        self.pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        if code or self.left:
            return self.last_message or f"its process ended with exit status {code}"
        return ""

    def stop(self) -> None:
        """End it, whatever it does; what its tests made is cleaned up if that takes no longer
        than it should."""
        self.pipe.close()
        os.kill(self.pid, signal.SIGINT)
        until = time.monotonic() + CLEANING_UP
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.05)


def share(session: pytest.Session, processes: int) -> None:
    """Run all tests of the session in so many processes.

    Raises:
        pytest.Session.Failed, pytest.Session.Interrupted: As many failed as are wanted (`-x`).
    """
    cast("Any", session.config)._tmp_path_factory.getbasetemp()  # one for all of them
    queues = Queues(session.items, processes)
    forks = [Fork(session, number) for number in range(processes)]
    try:
        for fork in forks:
            fork.give(queues, forks)
        while forks:
            ready = wait([fork.pipe for fork in forks])
            for fork in [fork for fork in forks if fork.pipe in ready]:
                _hear(session, fork, queues, forks)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
    finally:
        for fork in forks:
            with contextlib.suppress(ChildProcessError, ProcessLookupError):
                fork.stop()


def _hear(session: pytest.Session, fork: Fork, queues: Queues, forks: list[Fork]) -> None:
    """Take in what a fork has to tell; one that is over takes its place in `forks` with it."""
    hook = session.config.hook
    try:
        received = fork.pipe.recv()
    except (EOFError, ConnectionResetError):
        forks.remove(fork)
    if fork not in forks:
        _over(session, fork, queues)
        if queues:
            forks.append(Fork(session, fork.number))
            forks[-1].give(queues, forks)
    elif received is None:
        item = fork.left.pop(0)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if not fork.left:
            fork.give(queues, forks)
    elif isinstance(received, str):
        fork.last_message = received
    else:
        report = hook.pytest_report_from_serializable(config=session.config, data=received)
        if report.when == "setup":
            hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        hook.pytest_runtest_logreport(report=report)


def _over(session: pytest.Session, fork: Fork, queues: Queues) -> None:
    """A fork has ended. The test in which it broke down, if it did, is not run again: it would
    break the next one."""
    wrong = fork.end()
    if wrong:
        session.config.hook.pytest_runtest_logreport(report=_broken(fork, wrong))
    queues.put_back(fork.left[1:])


def _broken(fork: Fork, wrong: str) -> pytest.TestReport:
    """The failure of the test that a fork was at, or of what all its tests had in common."""
    nodeid = fork.left[0].nodeid if fork.left else f"end of process {fork.number}"
    location = fork.left[0].location if fork.left else ("", None, nodeid)
    text = f"{nodeid}: {wrong}"
    return pytest.TestReport(nodeid, location, {}, "failed", text, cast("Any", "???"))


class _Teller:
    """In a fork: sends the results of its tests to the run."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(data)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        self._pipe.send(None)


def _live(session: pytest.Session, number: int, pipe: Connection) -> NoReturn:
    """What a fork does: test what it is given until nothing is left."""
    config, code = session.config, 1
    try:
        _alone(config, number)
        config.pluginmanager.register(_Teller(config, pipe))
        while given := pipe.recv():
            for index, following in zip(given, [*given[1:], None], strict=True):
                # After the last test of a file all ends but what the entire session shares.
                then = session if following is None else session.items[following]
                item = session.items[index]
                config.hook.pytest_runtest_protocol(item=item, nextitem=then)
        runner.pytest_sessionfinish(session)
        code = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        runner.pytest_sessionfinish(session)
    except BaseException:  # noqa: BLE001 - it must not unwind into the run; it is sent instead
        pipe.send(traceback.format_exc())
    finally:
        os._exit(code)


def _alone(config: pytest.Config, number: int) -> None:
    """Share nothing that two cannot write to: the terminal, what is captured, the folder of the
    tests' files, the sequence of random numbers."""
    for name in SPEAKERS:
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)
    capture = cast("Any", config.pluginmanager.get_plugin("capturemanager"))
    capture.stop_global_capturing()
    capture.start_global_capturing()
    factory = cast("Any", config)._tmp_path_factory
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir(exist_ok=True)
    random.seed()
