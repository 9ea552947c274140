"""The state of the node's health: apply facts in order and compose what to publish.

Owned by the main loop and used from its thread only. `rules` makes every decision. This module
keeps the order: the published status is restored before anything is published, and facts that
arrived before that are applied again on top of it.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from agent import settings
from agent.settings import SettingsError
from rules.api.health import HealthStatus
from rules.catalog import thresholds
from rules.catalog.thresholds import RulesError, Thresholds
from rules.judge import health_object, health_status
from rules.judge import observation as facts
from rules.judge.health_object import Identity, Publication
from rules.judge.judge import Change, judge
from rules.judge.restore import restore
from rules.judge.state import NodeState, initial
from rules.text import user_input


class LoadedRules(msgspec.Struct, frozen=True):
    """The rules in force and their version, which is published with each health status."""

    rules: Thresholds
    version: str


def load_rules(path: str) -> LoadedRules:
    """Return the built-in rules with the overrides of a file, if one is given.

    Different files result in different versions, so that the remediator counts their findings
    separately. Raises SettingsError for a file that cannot be read or is not valid.
    """
    if not path:
        return LoadedRules(thresholds.DEFAULT_RULES, settings.VERSION)
    try:
        text = Path(path).read_bytes()
        _refuse_duplicates(text)
        rules = thresholds.parse_rules(text)
    except OSError as error:
        raise SettingsError(
            f"--rules {path} cannot be read ({error.strerror}): name a readable file"
        ) from error
    except RulesError as error:
        raise SettingsError(str(error)) from error
    return LoadedRules(rules, f"{settings.VERSION}+{hashlib.sha256(text).hexdigest()[:12]}")


def _refuse_duplicates(text: bytes) -> None:
    # Imported here: the YAML parser is only loaded if there is a file.
    import yaml

    try:
        twice = user_input.duplicate_key(yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError:
        # `parse_rules` reports it with more detail.
        return
    except RecursionError:
        raise RulesError("rules file: the YAML is nested too deeply.") from None
    if twice:
        raise RulesError(f"rules file: {twice}.")


KEPT_LINES = 4096
KEPT_OTHERS = 512
"""Facts kept until the published status can be read; the API server may be down for an hour.
Kernel lines are reported once, everything else is reported again."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration defines about the node."""

    node_name: str
    expected_gpus: int | None
    boot_id: str


class Judgement:
    """The state of the node's health. `wall` returns the time at which facts are applied."""

    def __init__(self, who: NodeSettings, rules: Thresholds, wall: Callable[[], float]) -> None:
        self._who = who
        self._rules = rules
        self._wall = wall
        self._started_at = wall()
        self.state: NodeState = initial(
            self._started_at,
            boot_id=who.boot_id,
            configured=who.expected_gpus,
            node_name=who.node_name,
        )
        self.knows_past = False
        self._lines: deque[tuple[int, float, facts.Observation]] = deque(maxlen=KEPT_LINES)
        self._others: deque[tuple[int, float, facts.Observation]] = deque(maxlen=KEPT_OTHERS)
        self._taken = 0

    def observe(self, observation: facts.Observation) -> tuple[Change, ...]:
        """Apply one fact to the state and return what changed."""
        now = self._wall()
        if not self.knows_past:
            reported_once = isinstance(observation, facts.KernelLineSeen | facts.KernelGap)
            kept = self._lines if reported_once else self._others
            kept.append((self._taken, now, observation))
            self._taken += 1
        self.state, changes = judge(self.state, observation, now, self._rules)
        return changes

    def remember(self, published: HealthStatus | None) -> None:
        """Restore the state from the node's published status, if there is one. Called once."""
        self.knows_past = True
        if published is not None:
            before = self.state
            self.state = restore(
                published,
                self._started_at,
                boot_id=self._who.boot_id,
                node_uid=self.state.node.uid,
                configured=self._who.expected_gpus,
                node_name=self._who.node_name,
                thresholds=self._rules,
            )
            read = bool(before.node.uid)
            if read and not any(isinstance(kept, facts.NodeSeen) for _, _, kept in self._others):
                # That fact is no longer kept, and is only reported again when the node changes.
                self.state = structs.replace(
                    self.state, node=before.node, stand_down=before.stand_down
                )
            for _, at, observation in sorted(
                (*self._lines, *self._others), key=lambda kept: kept[0]
            ):
                if not _judged_before(published, observation):
                    self.state, _ = judge(self.state, observation, at, self._rules)
        self._lines.clear()
        self._others.clear()


def _judged_before(published: HealthStatus, observation: facts.Observation) -> bool:
    """Whether an earlier agent process has assessed this kernel line."""
    return (
        isinstance(observation, facts.KernelLineSeen)
        and observation.boot_id == published.cursor.boot_id
        and 0 <= observation.sequence <= published.cursor.kmsg_seq
    )


HEARTBEAT_EVERY_S = 300.0
"""Heartbeat interval of an agent outside a pod; the remediator allows 12 minutes."""


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that this process runs in; empty outside a pod."""

    name: str = ""
    uid: str = ""


def pod_of(environ: Mapping[str, str]) -> Pod:
    """Return the pod that the downward API names, if any."""
    name, namespace = environ.get("POD_NAME", ""), environ.get("POD_NAMESPACE", "")
    uid = environ.get("POD_UID", "")
    return Pod(name=f"{namespace}/{name}", uid=uid) if name and namespace and uid else Pod()


class Composer:
    """Composes the health status from the state and keeps the heartbeat time."""

    def __init__(self, pod: Pod, loaded: LoadedRules) -> None:
        self._pod = pod
        self._rules = loaded.rules
        self._rules_version = loaded.version
        self._beat_at: float | None = None

    def compose(self, state: NodeState, now: float) -> Publication:
        """Return what to publish at `now` (wall seconds)."""
        identity = Identity(
            agent_version=settings.VERSION,
            rules_version=self._rules_version,
            pod=self._pod.name,
            pod_uid=self._pod.uid,
            heartbeat_at=None if self._pod.uid else self._heartbeat(now),
        )
        return health_object.publish(
            state, health_status.assess(state, now, self._rules), now, identity
        )

    def _heartbeat(self, now: float) -> float:
        """Return the time of the last heartbeat; beat at once if the clock went back."""
        if self._beat_at is None or not 0 <= now - self._beat_at < HEARTBEAT_EVERY_S:
            self._beat_at = now
        return self._beat_at
