"""A world's records as `kubectl gpuward export` writes them, and a replay of them beside it."""

from __future__ import annotations

import msgspec

from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.timestamps import format_time
from rules.backtest.archive import (
    Archive,
    ExportMeta,
    exported_node,
    exported_object,
    exported_policy,
    from_files,
    session_view,
    to_files,
)
from rules.backtest.engine import replay
from rules.backtest.past import past_of
from rules.backtest.report import report_of
from rules.backtest.results import BacktestReport
from rules.policy.policy import Policy
from tests.support.scenario.session_world import World


def exported(world: World) -> Archive:
    """The export, through its files."""
    convert = msgspec.convert
    archive = Archive(
        meta=ExportMeta(at=format_time(world.now)),
        nodes=tuple(
            exported_node(convert(n, NodeView), world.policy) for n in world.nodes.values()
        ),
        healths=tuple(exported_object(convert(h, HealthView)) for h in world.healths.values()),
        sessions=tuple(
            exported_object(convert(q, QuarantineView)) for q in world.quarantines.values()
        ),
        policy=exported_policy(world.policy),
    )
    return from_files(to_files(archive))


def back_tested(archive: Archive, **policies: Policy) -> BacktestReport:
    """What really was beside each policy."""
    past = past_of(archive)
    real = [session_view(one) for one in archive.sessions]
    replayed = [(name, replay(past, policy)) for name, policy in policies.items()]
    return report_of(past, replayed, real)


def parted(report: BacktestReport, policy: str) -> dict[str, str]:
    """Where a policy and what really was part, by node; {} where they never do."""
    (pair,) = (
        one for one in report.differences
        if one.first == "what really was" and one.second == policy
    )  # fmt: skip
    return {one.node: one.parts for one in pair.nodes}
