"""Watch the agent's own Node for operator requests and for edits of what the agent published.

One thread reads the node and then follows its changes until the process ends. It never gives up: a
missing node is logged once and waited for.
"""

import random
import threading
import time
from collections.abc import Callable
from http import HTTPStatus

from agent.publish.client import Kube, KubeError
from agent.publish.objects import NodeObject
from rules.api import timestamps
from rules.judge.observation import NodeSeen
from rules.text import printable

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 30.0
NOT_THERE_RETRY_S = 10.0


class NodeWatch:
    """The watching thread.

    The thread calls `on_node` with each version of the node, `on_gone` after its deletion,
    `on_missing` with a sentence each time the node does not exist, and `on_trouble` with a
    sentence when watching fails and an empty one when it works again.
    """

    def __init__(
        self,
        api: Kube,
        name: str,
        *,
        on_node: Callable[[NodeObject], None],
        on_gone: Callable[[], None],
        on_missing: Callable[[str], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._api = api
        self._name = name
        self._on_node = on_node
        self._on_gone = on_gone
        self._on_missing = on_missing
        self._on_trouble = on_trouble
        self._trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ask the thread to end, without waiting: a watch may block in the server."""
        self._stop.set()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = time.monotonic()
            at_least_s = 0.0
            try:
                self._follow()
            except KubeError as error:
                if error.status != HTTPStatus.GONE:
                    at_least_s = self._report_error(error)
            except Exception as error:  # noqa: BLE001 - without this thread requests are lost
                self._report(
                    f"Watching node {self._name} failed with an unexpected error "
                    f"({printable.place_of(error)}). Retrying."
                )
            # A watch that the server ends at once also counts as a failure.
            failures = timestamps.failed_again(failures, time.monotonic() - began, LONGEST_RETRY_S)
            wait_s = timestamps.backoff_s(failures, FIRST_RETRY_S, LONGEST_RETRY_S)
            self._stop.wait(max(at_least_s, wait_s) * random.uniform(0.5, 1.0))

    def _follow(self) -> None:
        """Read the node and follow its changes until the server ends the watch."""
        node = self._api.node(self._name)
        self._report("")
        self._on_node(node)
        version = node.metadata.resource_version
        for kind, seen in self._api.watch_node(self._name, version):
            if self._stop.is_set():
                return
            if kind == "DELETED":
                self._on_gone()
                return
            if kind != "BOOKMARK":
                self._on_node(seen)

    def _report_error(self, error: KubeError) -> float:
        """Report the error once; return the least seconds to wait before the next attempt."""
        if error.status == HTTPStatus.NOT_FOUND:
            self._on_gone()
            self._on_missing(
                f"Node {self._name} does not exist. Set --node-name to an existing node."
            )
            self._report(f"Node {self._name} does not exist. Waiting until it is created.")
            return NOT_THERE_RETRY_S
        self._report(f"Cannot watch node {self._name} ({error}). Retrying.")
        return error.retry_after_s

    def _report(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._trouble = sentence
            self._on_trouble(sentence)


def as_observation(node: NodeObject, at: float) -> NodeSeen:
    """Return the node as an observation."""
    return NodeSeen(
        at=at,
        name=node.metadata.name,
        uid=node.metadata.uid,
        boot_id=node.status.node_info.boot_id,
        annotations=node.metadata.annotations,
        labels=node.metadata.labels,
    )
