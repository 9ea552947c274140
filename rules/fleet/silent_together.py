"""Why many nodes are Unknown at once, in one sentence. Pure.

After the API server was away for longer than the node controller waits, every pod counts as not
Ready until its kubelet says otherwise: the fleet looks blind for minutes, and no GPU is the cause.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from rules.api.nodes import AgentPod

FEWEST: Final = 3
"""Fewer agents that fall silent are each a node of its own."""
LEAST_SHARE: Final = 0.5
"""Of all agents' pods: what takes half of them has not begun on a node."""
TOGETHER_S: Final = 300.0
"""Within so long the node controller marks the pods of nodes whose kubelets fell silent at once:
it does so at a limited rate, and a rollout replaces pods one by one.
"""


def silent_together(agents: Iterable[AgentPod]) -> str:
    """What to say of agents that stopped being Ready at about one time; "" where they did not."""
    pods = list(agents)
    silent = sorted(pod.ready_changed_at for pod in pods if not pod.ready)
    # An agent that was silent before is no sign against it.
    together = max(
        (bisect_right(silent, at + TOGETHER_S) - i for i, at in enumerate(silent)), default=0
    )
    if together < max(FEWEST, LEAST_SHARE * len(pods)):
        return ""
    return (
        f"{together} of {len(pods)} agents' pods stopped being Ready at about the same time: "
        "that is the API server, the network or a rollout, not the GPUs; each node is known again "
        "once its kubelet says that its agent is Ready, mostly within minutes (kubectl get nodes)"
    )
