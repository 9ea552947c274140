"""Whatever `kubectl drain` gets off the nodes, the queue of PDBs gets off them as well.

A small cluster in virtual time: one workload with replicas on nodes under drain and elsewhere, in
every state that a budget treats differently; who leaves comes back elsewhere and is Ready later.
`kubectl drain` follows its source: every pod is evicted every 5 s. The other caller is
`rules.drain.queue` with the turns of `rules.drain.eviction`.
"""

from dataclasses import dataclass, replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.api.pods import PodView
from rules.api.workloads import PdbView
from rules.api.writes import EvictPod
from rules.drain.eviction import EvictionKind, EvictionOutcome, needs_turn
from rules.drain.queue import PdbQueue, answered, due, pdb_changed
from tests.support.scenario.examples import examples

LIMIT_S = 900
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Replica:
    """One pod: where it is, its phase, and when it becomes Ready (never: None)."""

    name: str
    node: str
    phase: str = "Running"
    ready_at: float | None = 0.0


@dataclass
class Cluster:
    """The workload and its budget; `evict` is the Eviction API."""

    pods: list[Replica]
    desired: int
    always_allow: bool
    comes_back_s: float
    now: float = 0.0
    replicas: int = 0
    born: int = 0

    def __post_init__(self) -> None:
        self.replicas = len(self.pods)

    def ready(self, pod: Replica) -> bool:
        return pod.phase == "Running" and pod.ready_at is not None and self.now >= pod.ready_at

    @property
    def healthy(self) -> int:
        return sum(map(self.ready, self.pods))

    @property
    def allowed(self) -> int:
        return max(0, self.healthy - self.desired)

    def evict(self, pod: Replica) -> bool:
        free = pod.phase == "Pending" or (
            not self.ready(pod) and (self.always_allow or self.healthy >= self.desired > 0)
        )
        if not free and self.allowed < 1:
            return False
        self.pods.remove(pod)
        self.born += 1
        back = Replica(f"new-{self.born}", ELSEWHERE, ready_at=self.now + self.comes_back_s)
        self.pods.append(back)
        return True

    @property
    def left(self) -> list[Replica]:
        return [pod for pod in self.pods if pod.node != ELSEWHERE]

    def view(self, pod: Replica) -> PodView:
        condition = {"type": "Ready", "status": "True" if self.ready(pod) else "False"}
        return msgspec.convert(
            {
                "metadata": {"name": pod.name, "namespace": "a", "uid": pod.name},
                "spec": {"nodeName": pod.node},
                "status": {"phase": pod.phase, "conditions": [condition]},
            },
            PodView,
        )

    def budget(self) -> PdbView:
        policy = {"unhealthyPodEvictionPolicy": "AlwaysAllow"} if self.always_allow else {}
        return msgspec.convert(
            {
                "metadata": {"name": "keep", "namespace": "a"},
                "spec": {"minAvailable": self.desired, "selector": {}, **policy},
                "status": {
                    "disruptionsAllowed": self.allowed,
                    "currentHealthy": self.healthy,
                    "desiredHealthy": self.desired,
                    "expectedPods": self.replicas,
                },
            },
            PdbView,
        )


def by_kubectl(cluster: Cluster) -> None:
    """Every pod, every 5 s."""
    while cluster.left and cluster.now < LIMIT_S:
        for pod in cluster.left:
            cluster.evict(pod)
        cluster.now += 5


def by_queue(cluster: Cluster, watched: bool) -> None:
    """One check and one pump a second; `watched`: the PDB's watch works."""
    queue = PdbQueue()
    allowed = cluster.allowed
    while cluster.left and cluster.now < 4 * LIMIT_S:
        budget = (cluster.budget(),)
        pods = {pod.name: pod for pod in cluster.left}
        wanted = [
            EvictPod(
                node=pod.node,
                namespace="a",
                name=pod.name,
                uid=pod.name,
                pdb="a/keep" if needs_turn(cluster.view(pod), budget) else "",
            )
            for pod in pods.values()
        ]
        queue, sent = due(queue, wanted, cluster.now)
        assert sum(1 for eviction in sent if eviction.pdb) <= 1
        for eviction in sent:
            gone = cluster.evict(pods[eviction.name])
            kind = EvictionKind.ACCEPTED if gone else EvictionKind.BUDGET_FULL
            outcome = EvictionOutcome(kind=kind)
            queue = answered(queue, eviction, outcome, cluster.now, 0.5)
        cluster.now += 1
        if watched and cluster.allowed != allowed:
            queue = pdb_changed(queue, "a/keep")
        allowed = cluster.allowed


STATES = [
    Replica("", ""),
    Replica("", "", ready_at=40),
    Replica("", "", ready_at=None),
    Replica("", "", phase="Pending", ready_at=None),
]
replicas = st.builds(
    lambda node, state: replace(STATES[state], node=node),
    st.sampled_from(["n0", "n1", ELSEWHERE]),
    st.integers(0, 3),
)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    pods=st.lists(replicas, min_size=1, max_size=7),
    desired=st.integers(0, 7),
    always_allow=st.booleans(),
    comes_back_s=st.sampled_from([1.0, 20.0, 90.0]),
    watched=st.booleans(),
)
def test_it_finishes_what_kubectl_drain_finishes(
    pods: list[Replica], desired: int, always_allow: bool, comes_back_s: float, watched: bool
) -> None:
    named = [replace(pod, name=f"p{index}") for index, pod in enumerate(pods)]

    def world() -> Cluster:
        return Cluster(list(named), min(desired, len(named)), always_allow, comes_back_s)

    theirs, ours = world(), world()
    by_kubectl(theirs)
    by_queue(ours, watched)
    assert len(ours.left) <= len(theirs.left)
