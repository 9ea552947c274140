"""The labels the agent writes on its own node: health and topology.

Called by `publication`. Every value passes the one label gate; a label whose fact is not known
is removed (None), never guessed.
"""

from __future__ import annotations

from rules.api import names
from rules.api.health import Topology
from rules.judge.state import NodeState
from rules.publish.verdict import Verdict
from rules.text.label_value import RefusedLabel, checked_labels, product_label

MIXED = "mixed"


def labels(
    state: NodeState, judged: Verdict, topology: Topology
) -> tuple[dict[str, str | None], tuple[RefusedLabel, ...]]:
    """Every label of ours with its value, None to remove it; and what was refused."""
    wanted = {names.LABEL_HEALTH: judged.health.value.lower()}
    if judged.gpus_expected:
        wanted[names.LABEL_GPUS] = str(judged.gpus_expected)
        if judged.gpus_healthy is not None:
            wanted[names.LABEL_GPUS_HEALTHY] = str(judged.gpus_healthy)
    facts = {
        names.LABEL_INTERCONNECT: topology.interconnect,
        names.LABEL_NVLINK_DOMAIN: topology.nvlink_domain,
        names.LABEL_NUMA: topology.numa,
        names.LABEL_MIG: mig_label(state),
        names.LABEL_PRODUCT: _product(state),
        names.LABEL_DRIVER: state.driver,
    }
    wanted |= {name: value for name, value in facts.items() if value}
    kept, refused = checked_labels(wanted)
    return {name: kept.get(name) for name in names.AGENT_LABELS}, refused


def mig_label(state: NodeState) -> str:
    """`none`, `mixed` or `all`; empty while no GPU says whether MIG is on."""
    modes = {view.seen.mig_mode for view in state.gpus.values()} - {None}
    if not modes:
        return ""
    if modes == {True}:
        return "all"
    return MIXED if True in modes else "none"


def _product(state: NodeState) -> str:
    products = {view.seen.product for view in state.gpus.values() if view.seen.product}
    if len(products) > 1:
        return MIXED
    return product_label(products.pop()) if products else ""
