"""From judgement's state to what is published, signed with who publishes it.

Called by the main loop after facts were judged. The decisions are `rules`'; only the agent's own
life (its pod, or its heartbeat) is added here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent.daemon.rules_file import LoadedRules
from agent.version import VERSION
from rules.judge.state import NodeState
from rules.publish.publication import Identity, Publication, publish
from rules.publish.verdict import verdict

HEARTBEAT_EVERY_S = 300.0
"""An agent without a pod says this often that it is alive; the remediator allows 12 minutes."""


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """The pod this process runs in; empty outside one."""

    name: str = ""
    uid: str = ""


def pod_of(environ: Mapping[str, str]) -> Pod:
    """The pod that the downward API names, if any."""
    name, namespace = environ.get("POD_NAME", ""), environ.get("POD_NAMESPACE", "")
    uid = environ.get("POD_UID", "")
    return Pod(name=f"{namespace}/{name}", uid=uid) if name and namespace and uid else Pod()


class Composer:
    """Keeps the heartbeat; all else is a function of the state."""

    def __init__(self, pod: Pod, loaded: LoadedRules) -> None:
        self._pod = pod
        self._rules = loaded.rules
        self._rules_version = loaded.version
        self._beat_at: float | None = None

    def compose(self, state: NodeState, now: float) -> Publication:
        """What is to be published at `now` (wall seconds)."""
        identity = Identity(
            agent_version=VERSION,
            rules_version=self._rules_version,
            pod=self._pod.name,
            pod_uid=self._pod.uid,
            heartbeat_at=None if self._pod.uid else self._heartbeat(now),
        )
        return publish(state, verdict(state, now, self._rules), now, identity)

    def _heartbeat(self, now: float) -> float:
        """The last beat; a clock that went back beats at once, since readers would wait for it."""
        if self._beat_at is None or not 0 <= now - self._beat_at < HEARTBEAT_EVERY_S:
            self._beat_at = now
        return self._beat_at
