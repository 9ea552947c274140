"""Which of the processes that share a run of the tests gets which file next.

Two of five processes compute and the others wait, for programs that tests start and for time that
has to pass. Were it left to chance, all would compute at first, taking twice as long over
everything, and all would wait in the end, on an idle machine.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import pytest

WAITING: Final = (
    "tests/unit/agent/nvml/test_nvml_link",
    "tests/unit/agent/commands/",
    "tests/e2e/repair/",
    "tests/e2e/agent/",
    "tests/e2e/remediator/",
    "tests/e2e/",
    "tests/unit/agent/publish/test_publisher",
    "tests/unit/agent/commands/test_gpu_reset",
    "tests/unit/remediator/controller/test_remediator_drain",
    "tests/unit/remediator/kube/test_remediator_watch",
)
"""Files whose tests wait most of their time, for seconds; those that take longest begin first."""

TOGETHER: Final = ("tests/unit/daemonset/",)
"""Folders whose files share what takes long to build: they go to one process in one piece."""

Test = tuple[int, pytest.Item]
"""A test with its place among all of them."""


class Queues:
    """The tests that no process has yet, file by file."""

    def __init__(self, tests: Sequence[pytest.Item], processes: int) -> None:
        self._processes = processes
        self._files: dict[str, list[Test]] = {}
        self._place = {test: place for place, test in enumerate(tests)}
        self.put_back(tests)

    def __bool__(self) -> bool:
        """Some are left."""
        return bool(self._files)

    def put_back(self, tests: Iterable[pytest.Item]) -> None:
        """These are nobody's."""
        for test in tests:
            self._files.setdefault(_piece(test.nodeid), []).append((self._place[test], test))

    def next_file(self, others: Iterable[str]) -> tuple[str, list[Test]]:
        """The next file and its tests, for a process while others run their own files.

        At most two of five compute while files that wait are left; a process with nothing left in
        its queue takes from the other. An empty name and no tests: nothing is left at all.
        """
        if not self._files:
            return "", []
        computing = sum(bool(file) and not file.startswith(WAITING) for file in others)
        waits = 5 * computing >= 2 * self._processes
        candidates = [file for file in self._files if file.startswith(WAITING) is waits]
        file = min(candidates, key=_turn, default=next(iter(self._files)))
        return file, self._files.pop(file)


def _piece(nodeid: str) -> str:
    """What goes to one process in one piece: a file, or an entire folder."""
    file = nodeid.split("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def _turn(file: str) -> int:
    """Where the file stands among those that wait; of equals the first is taken."""
    return next((k for k, some in enumerate(WAITING) if file.startswith(some)), len(WAITING))
