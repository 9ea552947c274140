"""`kubectl gpuward why`: short, bounded, and a reason for every silence."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from remediator.kubectl.why import why_lines as why
from remediator.kubectl.why_causes import goes_further
from rules.api import messages
from rules.api.health import IncidentStatus, plain
from rules.api.nodes import AgentPod, FreshNode
from rules.api.quarantine import DrainStatus, PodNote, pods_of
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session.causes import cause_of
from rules.session.external import external_of
from tests.support.cluster.provider_definitions import definition
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_looks import NAME, SESSION, look, summary
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    HEALTHY,
    NOW,
    QUARANTINES,
    Object,
    ago,
    condition,
    gpu_health,
    node,
    quarantined,
    session,
    sick,
)


def reported(severity: str, *, cordoned: bool = False) -> str:
    """`why` of a node in service with an incident that the policy only reports."""
    health = sick(NAME)
    one = health["status"]["incidents"][0]
    one |= {"reason": "ThermalSlowdown", "severity": severity, "level": "Report"}
    return "\n".join(why(look(health, on=node(NAME, spec={"unschedulable": cordoned}))))


def test_a_fault_that_is_only_reported_offers_quarantine() -> None:
    """Who finds that too little learns how to take it out; a program's fault is no ground."""
    taken = f'actions  kubectl gpuward quarantine {NAME} --reason "..."   take it out of service'
    assert taken in reported("Degraded")
    assert "actions" not in reported("Info")
    assert "the node stays in service" in reported("Info")
    assert "the node stays as it is" in reported("Info", cordoned=True)


def test_what_may_not_be_read_is_listed_and_the_rest_is_shown() -> None:
    lines = why(look(sick(NAME), session("s", NAME, "Draining", "m"), node=None, agents=None,
                     unknown=("the node (get nodes)",)))  # fmt: skip
    text = "\n".join(lines)
    assert lines[0] == "gpu-7: Draining for 14m"
    assert "unknown  the node (get nodes)" in text
    assert "agent running" not in text
    assert "NVRM: Xid" in text


def test_a_flood_of_incidents_gpus_and_steps_stays_readable() -> None:
    flood = sick(NAME)
    incident = flood["status"]["incidents"][0]
    many = [
        {**incident, "id": f"i-{n}", "gpus": [f"GPU-{m}" for m in range(16)]} for n in range(64)
    ]
    flood["status"]["incidents"] = many
    blocked = [
        {"pdb": f"a/{n}", "why": "w", "pods": {"named": [{"name": "a/b"}] * 50}} for n in range(50)
    ]
    one = session("s", NAME, "Draining", "m", steps=("Draining",) * 100,
                  drain={"evicted": 1, "blocked": blocked})  # fmt: skip
    lines = why(look(flood, one))
    assert "and 59 more active incidents: -o wide" in "\n".join(lines)
    assert len(lines) < 100
    assert len(why(look(flood, one), wide=True)) > 1000


def test_a_taint_that_cannot_be_removed_has_a_remedy() -> None:
    """The session has ended, so nothing else would tell why the node is still out of service."""
    clause = (
        "the API server does not let the remediator remove its taint and cordon from the node "
        "(403 no). Check the admission"
    )
    ended = session(
        "s", NAME, "Released", f"Released: healthy for 10m; refused: {clause}.",
        conditions=[condition("Blocked", "MarkRefused", f"Refused: {clause}.")],
    )  # fmt: skip
    text = " ".join(
        " ".join(why(look(gpu_health(NAME), ended, on=quarantined(NAME, "s")))).split()
    )
    assert "tainted and cordoned by gpuward without an open session" in text
    assert f"refused: {clause}." in text
    assert "blocker MarkRefused" in text
    assert "remedy: change the admission policy or webhook named above to allow" in text


def test_a_notice_before_eviction_is_shown_with_its_end() -> None:
    waiting = pods_of([PodNote(name="team-a/train-0")])
    message = messages.draining(DrainStatus(waiting=waiting), messages.notice(None))
    one = session("s", NAME, "Draining", message, until=ago(-4))
    lines = why(look(sick(NAME), one, on=quarantined(NAME, "s")))
    text = " ".join(" ".join(lines).split())
    assert "The pods were notified. Evictions start when drain.notice has passed." in text
    assert "waits for another 3m at most, then continues by itself" in text


SITE = {
    "match": "condition GpuBroken=True", "reason": "SiteGPUBroken",
    "severity": "Fatal", "level": "Drain", "for": "1s",
}  # fmt: skip


def without_step(*sources: str, closes_on: str = "Reset", site: Object = SITE) -> str:
    """Return `why` of a session without a repair step left, with causes of these sources."""
    policy = load_policy({"mode": "Enforce", "external": [site]})
    assert isinstance(policy, Policy)
    uid = "uid-7"
    on = quarantined(NAME, "gpu-7-1")
    on["metadata"]["uid"] = uid
    on["status"]["conditions"].append(
        {"type": "GpuBroken", "status": "True", "lastTransitionTime": ago(20)}
    )
    message = external_of(msgspec.convert(on, FreshNode), policy, NOW, {}, {}).incidents
    others = cause_of(message[0]) if message else None
    of = {
        "Detector": {"source": "Detector", "incident": f"i-{NAME}", "reason": "Xid95"},
        "External": plain(others) if others else {},
    }
    health = sick(NAME)
    health["status"]["incidents"][0]["closesOn"] = closes_on
    if "Detector" not in sources:
        health["status"]["incidents"] = []
    of_this = session(
        "gpu-7-1", NAME, "Quarantined", "Quarantined; no repair step is left, an operator "
        "decides.",
        spec={"causes": [of[source] for source in sources], "nodeUID": uid},
        conditions=[condition("NeedsHuman", "NoStepLeft", "no repair step is left")],
    )  # fmt: skip
    return "\n".join(why(look(health, of_this, on=on, policy=policy)))


def test_without_a_step_left_repaired_is_offered_only_where_it_closes_the_cause() -> None:
    """`mark-replaced` closes no fault of an external detector, and none that a reset closes."""
    others = without_step("External")
    assert "mark-replaced" not in others
    by_reset = without_step("Detector")
    assert "gpuward mark-replaced" not in by_reset
    by_operator = without_step("Detector", closes_on="Human")
    assert "kubectl gpuward mark-replaced gpu-7 " in by_operator
    both = without_step("Detector", "External", closes_on="Human")
    assert "kubectl gpuward mark-replaced gpu-7 " in both


POD = AgentPod(uid="a", node=NAME, ready=True, ready_changed_at=NOW - 60)
IN_A_POD = {"pod": "gpuward/agent", "podUID": "a"}


def reported_clock(dated: str, noted: str, *, manager: str = "kubelet") -> Object:
    """A node whose kubelet dated its report so; the API server noted its arrival."""
    found = node(NAME)
    found["status"]["conditions"][0]["lastHeartbeatTime"] = dated
    other = {"manager": "gpuward-agent", "subresource": "status", "time": ago(0)}
    entry = {"manager": manager, "operation": "Update", "subresource": "status", "time": noted}
    found["metadata"]["managedFields"] = [other, entry]
    return found


@pytest.mark.parametrize(
    ("on", "message"),
    [
        pytest.param(reported_clock(ago(4), ago(4)), "", id="right"),
        pytest.param(reported_clock(ago(5), ago(4)), "", id="as-clocks-are"),
        pytest.param(reported_clock(ago(14), ago(4)), "10m behind the", id="behind"),
        pytest.param(reported_clock(ago(-26), ago(4)), "30m ahead of the", id="ahead"),
        pytest.param(
            reported_clock(ago(14), ago(4), manager="k3s"), "", id="theirs-and-others-time"
        ),
        pytest.param(node(NAME), "", id="no-report"),
    ],
)
def test_a_wrong_clock_is_reported_with_direction_and_offset(on: Object, message: str) -> None:
    lines = summary(look(gpu_health(NAME, publisher=IN_A_POD), on=on, agents=(POD,)))
    assert message in lines
    assert ("clock is" in lines) == bool(message)


def test_a_released_node_shows_by_whom_why_and_how_to_quarantine_it() -> None:
    asked = {"release": {"by": "ann", "reason": "need it"}}
    message = summary(look(sick(NAME), session(SESSION, NAME, "Released", "Over.", spec=asked)))
    assert "the last Released 14m ago by ann (need it)" in message
    assert f'kubectl gpuward quarantine {NAME} --reason "..."' in message


def acting(reason: str, action: str) -> IncidentStatus:
    return IncidentStatus(id=reason, reason=reason, severity="Fatal", recommended_action=action)


def test_walk_nobody_resets_a_gpu_of_a_node_that_is_to_be_replaced() -> None:
    active = [acting("A", "ReplaceNode"), acting("B", "ResetGPU"), acting("C", "Investigate")]
    assert [goes_further(one, active) for one in active] == ["", "A", ""]
    assert goes_further(active[1], active[1:]) == ""


POD_PODS = {
    "metadata": {"name": "llama-0", "namespace": "training"},
    "spec": {"nodeName": HEALTHY, "containers": [{"name": "main", "image": "w:1"}]},
    "status": {"phase": "Running"},
}


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    load(hosted, r.NAMESPACES, {"metadata": {"name": "training"}})
    load(hosted, r.PODS, POD_PODS)
    drain = {"evicted": 1, "recent": ["training/went-0"]}
    load(hosted, QUARANTINES, session("s-1", "gpu-cordoned", "Released", "m", drain=drain))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("pods"), fill) as kubectl:
        yield kubectl


def test_of_a_pod_that_runs_its_node_is_shown(fleet: Kubectl) -> None:
    code, out, _ = fleet("why", "training/llama-0")
    first, _, rest = out.partition("\n\n")
    assert (code, first) == (0, f"pod training/llama-0 is on node {HEALTHY}")
    assert rest == fleet("why", HEALTHY)[1]


def test_of_a_pod_that_is_gone_the_node_that_names_it_is_shown(fleet: Kubectl) -> None:
    code, out, _ = fleet("why", "training/went-0")
    first, _, rest = out.partition("\n\n")
    assert code == 0
    assert first.startswith("pod training/went-0 was moved by the drain of gpu-cordoned (Xid95")
    assert rest == fleet("why", "gpu-cordoned")[1]


def test_of_a_pod_that_nothing_names_its_events_are_pointed_to(fleet: Kubectl) -> None:
    code, out, err = fleet("why", "training/gone-0")
    assert (code, out) == (1, "")
    assert "pod training/gone-0 is on no node, and no session names it" in err
    assert "kubectl -n training get events --field-selector involvedObject.name=gone-0" in err


def test_other_commands_take_no_pod_for_a_node(fleet: Kubectl) -> None:
    assert fleet("hold", "training/llama-0", "--reason", "x")[0] == 64


def test_a_driver_released_on_request_is_not_reported_as_a_silent_agent() -> None:
    released = {"name": "nvml", "state": "Released", "reason": "Released", "since": ago(3)}
    upgraded = node(NAME, labels={"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"})
    message = summary(look(gpu_health(NAME, sources=[released]), on=upgraded))
    assert "the agent closed the driver 3m ago on request: the GPU Operator is" in message
    assert "kubectl get pods -A" not in message


def test_the_jobs_of_the_nvlink_domain_are_named(tmp_path: Path) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group, kind = "resource.nvidia.com", "ComputeDomain"
    made = definition(group, "v1beta1", kind, scope="Namespaced", spec=anything, status=anything)
    domains = r.Resource(group, "v1beta1", "computedomains", True, kind)

    def fill_domain(hosted: HostedServer) -> None:
        load(hosted, r.NODES, node("gpu-1", labels={"gpuward.io/nvlink-domain": "d1"}))
        hosted.run(hosted.server.client.create(r.CUSTOM_RESOURCE_DEFINITIONS, made))
        nodes = [{"name": "gpu-1", "status": "NotReady"}, {"name": "gpu-2", "status": "Ready"}]
        for name, members in (("llm", nodes), ("other", nodes[1:])):
            body = {
                "apiVersion": domains.api_version,
                "kind": kind,
                "metadata": {"name": name, "namespace": "default"},
                "spec": {},
                "status": {"status": "NotReady", "nodes": members},
            }
            load(hosted, domains, body)

        incident: Object = {"id": "i-1", "reason": "RecoveryActionIMEXDomain"}
        incident |= {"severity": "Degraded"} | {
            "recommendedAction": "RecoverIMEXDomain",
            "active": True,
        }
        for name in ("gpu-1", "gpu-3"):
            load(hosted, HEALTHS, gpu_health(name, incidents=[incident]))
        load(hosted, r.NODES, node("gpu-3"))

    with cluster(tmp_path, fill_domain) as kubectl:
        _, out, _ = kubectl("why", "gpu-1")
        _, domain, _ = kubectl("why", "--nvlink-domain", "d1")
        _, alone, _ = kubectl("why", "gpu-3")
    restarts = r"  kubectl delete pods -A -l resource.nvidia.com/computeDomain=[0-9a-f-]{36}\n"
    assert "restart of all IMEX daemons of ComputeDomain default/llm" in out
    assert len(re.findall(restarts, out)) == 1
    assert "jobs     ComputeDomain default/llm (NotReady, 2 nodes)" in domain
    assert "systemctl restart nvidia-imex" in alone
    assert "domain   NVLink domain d1" in out
    assert "ComputeDomain default/llm (NotReady, 2 nodes, this one NotReady)" in out
    assert "default/other" not in out
