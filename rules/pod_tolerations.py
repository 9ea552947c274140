"""Which GPU DaemonSets could not come back under our taint: named before it hurts.

Used for the session's sentence and for ``plan``: a driver or device plugin rollout on a
quarantined node would otherwise wait silently.
"""

from collections.abc import Iterable

from rules.mark import EFFECT
from rules.names import TAINT_QUARANTINE
from rules.pod_view import DaemonSetView, Toleration
from rules.snapshot import NodeView

_NVIDIA = "nvidia.com/"


def tolerates(tolerations: Iterable[Toleration], key: str, effect: str) -> bool:
    """Whether any toleration covers a taint of that key and effect, whatever its value."""
    return any(
        toleration.effect in {"", effect}
        and (
            (toleration.operator == "Exists" and toleration.key in {"", key})
            or (toleration.operator in {"", "Equal"} and toleration.key == key)
        )
        for toleration in tolerations
    )


def untolerating(node: NodeView, daemon_sets: Iterable[DaemonSetView]) -> tuple[str, ...]:
    """GPU DaemonSets that select the node and do not tolerate the quarantine taint, sorted.

    A DaemonSet is about GPUs when it selects by, or tolerates, something of ``nvidia.com``.
    """
    found = []
    for daemon_set in daemon_sets:
        template = daemon_set.spec.template.spec
        about_gpus = any(key.startswith(_NVIDIA) for key in template.node_selector) or any(
            toleration.key.startswith(_NVIDIA) for toleration in template.tolerations
        )
        selected = all(node.labels.get(k) == v for k, v in template.node_selector.items())
        tolerated = tolerates(template.tolerations, TAINT_QUARANTINE, EFFECT)
        if about_gpus and selected and not tolerated:
            found.append(f"{daemon_set.metadata.namespace}/{daemon_set.metadata.name}")
    return tuple(sorted(found))
