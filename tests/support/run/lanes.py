"""Which of the processes that share a run of the tests gets which file next.

Two of five processes compute and the others wait, for programs that tests start and for time that
has to pass. Were it left to chance, all would compute at first, taking twice as long over
everything, and all would wait in the end, on an idle machine.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

WAITING: Final = (
    "tests/unit/agent/nvml/test_nvml_link",
    "tests/unit/agent/commands/",
    "tests/e2e/repair/",
    "tests/e2e/agent/",
    "tests/e2e/remediator/",
    "tests/e2e/",
    "tests/unit/agent/publish/test_publisher",
    "tests/unit/agent/repair/test_gpu_reset",
    "tests/unit/remediator/drain/test_remediator_drain",
    "tests/unit/remediator/kube/test_remediator_watch",
)
"""Files whose tests wait most of their time, for seconds; those that take longest begin first."""

TOGETHER: Final = ("tests/unit/daemonset/",)
"""Folders whose files share what takes long to build."""


class Lanes(LoadFileScheduling):
    """File by file, at most two of five processes in files that compute while some that wait are
    left; whoever finds nothing left in its lane takes from the other.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [self._computes(other) for other in self.nodes if other is not node]
        waits = 5 * sum(others) >= 2 * len(self.nodes)
        lane = [file for file in self.workqueue if file.startswith(WAITING) is waits]
        file = min(lane, key=_turn, default=next(iter(self.workqueue)))
        unit = self.workqueue.pop(file)
        self.assigned_work[node][file] = unit
        collected = self.registered_collections[node]
        node.send_runtest_some([k for k, test in enumerate(collected) if unit.get(test) is False])

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process out; the test in which it broke down, if it did.

        That one is not run again, which would break the next process, and files that were through
        are nobody's work any more: whoever got one would wait for ever.
        """
        units = self.assigned_work[node]
        left = ((unit, test) for unit in units.values() for test, ran in unit.items() if not ran)
        unit, broke = next(left, (None, None))
        if unit is not None:
            unit[broke] = True
        self.assigned_work[node] = {
            file: unit for file, unit in units.items() if not all(unit.values())
        }
        super().remove_node(node)
        return broke

    def _split_scope(self, nodeid: str) -> str:
        """What goes to one process in one piece: a file, or a whole folder."""
        file = super()._split_scope(nodeid)
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    def _computes(self, node: WorkerController) -> bool:
        """Whether the file that it was given last is one that computes."""
        given = next(reversed(self.assigned_work[node]), None)
        return given is not None and not given.startswith(WAITING)


def _turn(file: str) -> int:
    """Where the file stands among those that wait; of equals the first is taken."""
    return next((k for k, some in enumerate(WAITING) if file.startswith(some)), len(WAITING))
