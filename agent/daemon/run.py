"""`gpuward-agent run`: the daemon. Connects collectors, judgement, publishing and HTTP server.

Called by `agent.cli`. A configuration error ends the process with one sentence and status 64. A
data source that the machine lacks becomes Absent, is logged once, and the others keep working.
"""

import argparse
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from agent.daemon import judgement, log
from agent.daemon.event_queue import EventQueue, Item, Log, Stop
from agent.daemon.http import Server
from agent.daemon.judgement import Composer, Judgement, NodeSettings
from agent.daemon.loop import JudgingLoop
from agent.daemon.metrics import AgentCollector, Latencies, Snapshot, XidCounts
from agent.daemon.sources import Collectors
from agent.publish import node_watch
from agent.publish.client import Kube
from agent.publish.evidence import EvidenceKeeper
from agent.publish.node_watch import NodeWatch
from agent.publish.objects import NodeObject
from agent.publish.publish import Publisher
from agent.settings import (
    USAGE_ERROR,
    USER_AGENT,
    AgentSettings,
    SettingsError,
    add_options,
    settings_of,
)
from agent.sources import kernel_log
from agent.sources.kernel_log import NoRereadError
from rules.api.evidence import session_of
from rules.api.kube_config import KubeConfigError
from rules.api.kube_config import load as load_kube_config
from rules.judge import health_status
from rules.judge import observation as facts
from rules.judge.evidence import KernelExcerpt, evidence

LAST_PUBLISH_S = 5.0
NVML_GRACE_S = 60.0
"""Time for the NVML child to shut down: killing an NVML client in a call has frozen GPUs."""
PAST_WITHIN_S = 2.0
"""The kernel log is opened when the published status has been read, or after this time."""


def add_parser(subparsers: Any) -> None:
    """Add `run` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="Watch this machine's GPUs and publish their health",
        description="Watch this machine's GPUs and publish their health as Node conditions,"
        "\nlabels, a GPUNodeHealth object, Events and metrics. Runs until SIGTERM.\n\nExamples:\n"
        "  gpuward-agent run                              # in a DaemonSet\n"
        "  gpuward-agent run --node-name gpu-1 --kubeconfig ~/.kube/config",
        epilog="Each option can also be set with the environment variable in brackets.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, os.environ, collectors_only=False)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal and return the exit status. Raises SettingsError."""
    try:
        return Agent(settings_of(arguments)).run()
    except KubeConfigError as error:
        raise SettingsError(str(error)) from error


class Agent:
    """One agent process. The constructor validates the configuration."""

    def __init__(self, settings: AgentSettings) -> None:
        self._log = log.logger(settings.log)
        self._settings = settings
        loaded = judgement.load_rules(settings.rules)
        self._rules = loaded.rules
        kube_config = load_kube_config(settings.kubeconfig)
        self._event_queue: EventQueue[Item] = EventQueue()
        self._kube = Kube(
            kube_config,
            user_agent=USER_AGENT,
            reread=lambda: load_kube_config(settings.kubeconfig),
        )
        self._collectors = Collectors(settings, self._event_queue)
        self._judgement = Judgement(
            NodeSettings(
                node_name=settings.node_name,
                expected_gpus=settings.expected_gpus,
                boot_id=self._collectors.boot_id,
            ),
            loaded.rules,
            time.time,
        )
        self._composer = Composer(judgement.pod_of(os.environ), loaded)
        self._publisher = Publisher(self._kube, settings.node_name, notify=self._event_queue.put)
        self._watch = NodeWatch(
            self._kube,
            settings.node_name,
            on_node=self._node_seen,
            on_gone=self._publisher.node_gone,
            on_missing=self._node_missing,
            on_trouble=lambda message: self._event_queue.put(
                Log(message or "Watching the node works again.", info=not message)
            ),
        )
        self._evidence = EvidenceKeeper(
            self._kube,
            compose=self._evidence_of,
            refresh=self._refresh_for_evidence,
            notify=lambda message, info: self._event_queue.put(Log(message, info=info)),
        )
        self._node_was_seen = False
        self._node_view: facts.NodeSeen | None = None
        self._registry = CollectorRegistry()
        full = settings.metrics == "full"
        self._registry.register(AgentCollector(self._snapshot, full=full))
        self._xids = XidCounts()
        self._loop = JudgingLoop(
            self._event_queue,
            self._judgement,
            composer=self._composer,
            publisher=self._publisher,
            collectors=self._collectors,
            log=self._log,
            latencies=Latencies(self._registry, full=full),
            xids=self._xids,
        )
        self._server: Server | None = None
        if settings.listen != "off":
            self._server = Server(
                settings.listen,
                metrics=lambda: generate_latest(self._registry),
                healthz=self._healthz,
                readyz=self._readyz,
            )

    def run(self) -> int:
        """Collect, assess and publish until a stop is requested; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        threading.excepthook = self._on_broken_thread
        settings = self._settings
        served = {} if self._server is None else {"port": self._server.port}
        self._log.info(
            "Watching this machine.",
            node=settings.node_name,
            agent=USER_AGENT,
            kmsg=settings.kmsg,
            **served,
        )
        if self._server is not None:
            self._server.start()
        self._publisher.start()
        self._watch.start()
        self._collectors.start(past_within_s=PAST_WITHIN_S)
        stop = self._loop.run()
        (self._log.error if stop.status else self._log.info)(stop.message)
        return self._shut_down(stop)

    def _shut_down(self, stop: Stop) -> int:
        self._collectors.close_log()
        self._watch.close()
        self._evidence.close()
        if not self._publisher.close(LAST_PUBLISH_S):
            self._log.warning(
                "The API server did not accept the last health status before the agent stopped."
            )
        if not self._collectors.close(NVML_GRACE_S):
            self._log.warning(
                "A driver call still hangs. The NVML child exits when the call returns."
            )
        if self._server is not None:
            self._server.close()
        self._kube.close()
        return stop.status

    # Called from other threads.

    def _on_signal(self, number: int, _frame: object) -> None:
        self._loop.stop(Stop(0, f"Stopping on {signal.Signals(number).name}."))

    def _on_broken_thread(self, args: threading.ExceptHookArgs) -> None:
        """Stop the agent after a bug ended a thread: it would report incomplete data."""
        name = args.thread.name if args.thread is not None else "a thread"
        trace = "".join(traceback.format_exception(args.exc_value)) if args.exc_value else ""
        self._log.error(f"Thread {name} ended by a bug in gpuward. Please report it.", trace=trace)
        self._loop.stop(Stop(1, f"Stopping because thread {name} ended. The container restarts."))

    def _node_seen(self, node: NodeObject) -> None:
        self._node_was_seen = True
        self._publisher.node_seen(node)
        self._evidence.taint_seen(session_of(node.metadata.annotations))
        seen = node_watch.as_observation(node, time.time())
        before = self._node_view
        if before is None or _without_time(before) != _without_time(seen):
            self._node_view = seen
            self._event_queue.put(seen)

    def _refresh_for_evidence(self) -> Callable[[], bool]:
        """Request new NVML readings; return a check whether every GPU has answered since."""
        asked_at = time.time()
        self._collectors.nvml.request_refresh()

        def answered() -> bool:
            state = self._judgement.state
            if not self._judgement.knows_past:
                return False
            if state.source(facts.SourceName.NVML) in (
                facts.SourceState.ABSENT,
                facts.SourceState.RELEASED,
            ):
                return True
            gpus = state.gpus.values()
            return bool(gpus) and all(v.read_at >= asked_at for v in gpus if v.enumerated)

        return answered

    def _evidence_of(self, session: str) -> Mapping[str, Any]:
        """Return the GPUEvidence of a session; called from the evidence thread."""
        kernel, missing = KernelExcerpt(), []
        try:
            for message in kernel_log.messages(
                self._settings.kmsg, accept_user=self._settings.accept_user_kmsg
            ):
                kernel.add(message)
        except NoRereadError as error:
            missing.append(str(error))
        state, now = self._judgement.state, time.time()
        status = self._composer.compose(state, now).status
        return evidence(session, state, status, kernel, now, missing=missing)

    def _node_missing(self, sentence: str) -> None:
        """Stop if the node has never existed: its name is wrong."""
        if not self._node_was_seen:
            self._event_queue.put(Stop(USAGE_ERROR, sentence))

    # Health of the process itself.

    def _snapshot(self) -> Snapshot:
        state = self._judgement.state
        return Snapshot(
            state=state,
            assessment=health_status.assess(state, time.time(), self._rules),
            records=self._collectors.counts,
            heard_at=dict(self._loop.heard_at),
            xids=self._xids,
            publishing=self._publisher.report(),
            dcgm_bad_lines=self._collectors.dcgm.bad_lines
            if self._collectors.dcgm is not None
            else 0,
        )

    def _healthz(self) -> str | None:
        return None if self._loop.alive else "the main loop is stuck: restart the agent"

    def _readyz(self) -> str | None:
        if (problem := self._healthz()) is not None:
            return problem
        report = self._publisher.report()
        if report.accepted_at is None:
            return "the API server has not accepted a health status yet"
        if report.failures:
            return "publishing the health status fails: see the agent's log"
        return None


def _without_time(seen: facts.NodeSeen) -> tuple[object, ...]:
    return seen.uid, seen.boot_id, seen.annotations, seen.labels
