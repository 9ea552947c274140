"""`gpuward-agent run`: the daemon. Wires collectors, judgement, publishing and the HTTP server
together.

Called by `agent.cli`. Everything an operator got wrong ends here with one sentence and status 64;
everything the machine lacks becomes a source that is Absent, said once, while the rest works on.
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
from agent.daemon.judgement import Composer, Judgement, Who
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
"""Killing an NVML client in a call has frozen GPUs: it is given this long to shut down."""
PAST_WITHIN_S = 2.0
"""The kernel log is not opened before the past is known, or this long after the start."""


def add_parser(subparsers: Any) -> None:
    """Add `run` to the program's commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="watch this machine and publish its health on its Node",
        description="Watch this machine's GPUs and publish their health on its Node, as "
        "conditions, labels and a GPUNodeHealth object, and as metrics. Ends with SIGTERM.",
        epilog="Every option is also a variable of the environment, named in brackets.",
    )
    add_options(parser, os.environ, collectors_only=False)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal; the exit status. Raises SettingsError."""
    try:
        return Agent(settings_of(arguments)).run()
    except KubeConfigError as error:
        raise SettingsError(str(error)) from error


class Agent:
    """One agent process. Construction checks everything that an operator may have got wrong."""

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
            Who(
                node_name=settings.node_name,
                expected_gpus=settings.expected_gpus,
                boot_id=self._collectors.boot_id,
            ),
            loaded.rules,
            time.time,
        )
        self._composer = Composer(judgement.pod_of(os.environ), loaded)
        self._publisher = Publisher(self._kube, settings.node_name, tell=self._event_queue.put)
        self._watch = NodeWatch(
            self._kube,
            settings.node_name,
            on_node=self._node_seen,
            on_gone=self._publisher.node_gone,
            on_missing=self._node_missing,
            on_trouble=lambda said: self._event_queue.put(
                Log(said or "the node is watched again", well=not said)
            ),
        )
        self._evidence = EvidenceKeeper(
            self._kube,
            compose=self._evidence_of,
            look=self._look_for_evidence,
            tell=lambda said, well: self._event_queue.put(Log(said, well=well)),
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
        """Collector, judge and publish until told to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        threading.excepthook = self._on_broken_thread
        settings = self._settings
        served = {} if self._server is None else {"port": self._server.port}
        self._log.info(
            "watching this machine",
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
        (self._log.error if stop.status else self._log.info)(stop.sentence)
        return self._shut_down(stop)

    def _shut_down(self, stop: Stop) -> int:
        self._collectors.close_log()
        self._watch.close()
        self._evidence.close()
        if not self._publisher.close(LAST_PUBLISH_S):
            self._log.warning("the last health status was not accepted before the end")
        if not self._collectors.close(NVML_GRACE_S):
            self._log.warning(
                "a call into the driver still hangs: its process ends when it returns"
            )
        if self._server is not None:
            self._server.close()
        self._kube.close()
        return stop.status

    # What other threads report.

    def _on_signal(self, number: int, _frame: object) -> None:
        self._loop.stop(Stop(0, f"ending because of {signal.Signals(number).name}"))

    def _on_broken_thread(self, args: threading.ExceptHookArgs) -> None:
        """A thread ended by a defect of gpuward: end too, since half an agent reports half."""
        name = args.thread.name if args.thread is not None else "a thread"
        trace = "".join(traceback.format_exception(args.exc_value)) if args.exc_value else ""
        self._log.error(f"{name} ended by a defect of gpuward: please report it", trace=trace)
        self._loop.stop(Stop(1, f"ending because {name} ended: the container restarts"))

    def _node_seen(self, node: NodeObject) -> None:
        self._node_was_seen = True
        self._publisher.node_seen(node)
        self._evidence.taint_seen(session_of(node.metadata.annotations))
        seen = node_watch.as_observation(node, time.time())
        before = self._node_view
        if before is None or _without_time(before) != _without_time(seen):
            self._node_view = seen
            self._event_queue.put(seen)

    def _look_for_evidence(self) -> Callable[[], bool]:
        """Ask NVML for everything; whether every GPU has answered since."""
        asked_at = time.time()
        self._collectors.nvml.request_refresh()

        def came() -> bool:
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

        return came

    def _evidence_of(self, session: str) -> Mapping[str, Any]:
        """What is known now; from the thread that keeps evidence."""
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
        """The API server answered that there is no such node."""
        if not self._node_was_seen:
            self._event_queue.put(Stop(USAGE_ERROR, sentence))

    # Health of the process itself.

    def _snapshot(self) -> Snapshot:
        state = self._judgement.state
        return Snapshot(
            state=state,
            verdict=health_status.assess(state, time.time(), self._rules),
            records=self._collectors.counts,
            heard_at=dict(self._loop.heard_at),
            xids=self._xids,
            publishing=self._publisher.report(),
            dcgm_bad_lines=self._collectors.dcgm.bad_lines
            if self._collectors.dcgm is not None
            else 0,
        )

    def _healthz(self) -> str | None:
        return None if self._loop.alive else "the main loop does not turn: restart the agent"

    def _readyz(self) -> str | None:
        if (complaint := self._healthz()) is not None:
            return complaint
        report = self._publisher.report()
        if report.accepted_at is None:
            return "no health status was accepted by the API server yet"
        if report.failures:
            return "the API server does not accept the health status: see the agent's log"
        return None


def _without_time(seen: facts.NodeSeen) -> tuple[object, ...]:
    return seen.uid, seen.boot_id, seen.annotations, seen.labels
