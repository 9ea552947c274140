"""Watches the agent's own Node: what people and operators ask through it, and who edits our words.

One thread, which lists by name and then follows changes for as long as the process lives. It must
never give up: a node that is not there yet is waited for, and said once.
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

    `on_node` gets each version of the node, `on_gone` its deletion, `on_missing` a sentence each
    time the API server says that there is none, `on_trouble` a new sentence when watching fails
    and an empty one when it works again; all from the thread.
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
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Ask the thread to end; it is not waited for, since a watch sleeps in the server."""
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
                    at_least_s = self._complain(error)
            except Exception as error:  # noqa: BLE001 - without this thread nobody hears people
                self._say(
                    f"watching node {self._name} failed in a way nobody foresaw "
                    f"({printable.place_of(error)}): trying again"
                )
            # Also after a watch that the server ended: one that ends at once is a failure too.
            failures = timestamps.failed_again(failures, time.monotonic() - began, LONGEST_RETRY_S)
            wait_s = timestamps.backoff_s(failures, FIRST_RETRY_S, LONGEST_RETRY_S)
            self._stop.wait(max(at_least_s, wait_s) * random.uniform(0.5, 1.0))

    def _follow(self) -> None:
        """One read and the changes after it, until the server ends the watch."""
        node = self._api.node(self._name)
        self._say("")
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

    def _complain(self, error: KubeError) -> float:
        """Say what is wrong, once; the least time to wait before the next attempt, in seconds."""
        if error.status == HTTPStatus.NOT_FOUND:
            self._on_gone()
            missing = f"the cluster has no node {self._name}"
            self._on_missing(f"{missing}: name an existing one with --node-name")
            self._say(f"{missing} any more: waiting until it is back, watching this machine")
            return NOT_THERE_RETRY_S
        self._say(f"node {self._name} cannot be watched ({error}): trying again")
        return error.retry_after_s

    def _say(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._trouble = sentence
            self._on_trouble(sentence)


def as_observation(node: NodeObject, at: float) -> NodeSeen:
    """The node as judgement reads it."""
    return NodeSeen(
        at=at,
        name=node.metadata.name,
        uid=node.metadata.uid,
        boot_id=node.status.node_info.boot_id,
        annotations=node.metadata.annotations,
        labels=node.metadata.labels,
    )
