"""The commands of whoever installs gpuward: plan, preflight, uninstall."""

from __future__ import annotations

import argparse

import msgspec

from remediator.kubectl import preflight as checks
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.options import USAGE_ERROR
from remediator.kubectl.planning import plan as plans
from remediator.kubectl.ready.check import FAIL, Check
from remediator.kubectl.ready.policy_said import unusable
from remediator.kubectl.removal import uninstall as removal
from remediator.kubectl.terminal import Terminal
from remediator.upkeep.policy_source import given_policy
from remediator.view.text import document
from rules.policy.policy import Policy


async def plan(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """What would happen now."""
    policy, source = await _policy(cluster, options)
    return await plans.plan(
        cluster, policy or Policy(), source, in_force=policy is not None,
        nodes=options.nodes, selector=options.selector or "", form=options.output,
    )  # fmt: skip


async def preflight(cluster: Cluster, options: argparse.Namespace, _: Terminal) -> str:
    """Ready or not; CommandError with the report when not."""
    wrong: list[Check] = []
    policy: Policy | None = None
    try:
        policy, _source = await _policy(cluster, options)
    except CommandError as error:
        if error.exit_code == USAGE_ERROR or not error.unusable:
            raise
        wrong = [Check(verdict=FAIL, name="policy", found=str(error))]
    found = [
        *await checks.preflight(cluster, policy or Policy(), namespace=options.namespace),
        *wrong,
    ]
    if options.output:
        report = document([msgspec.to_builtins(check) for check in found], options.output)
    else:
        report = checks.report(found)
    failed = sum(check.verdict == FAIL for check in found)
    if failed:
        raise CommandError(f"not ready: {failed} of {len(found)} checks failed", report=report)
    return report


async def uninstall(cluster: Cluster, options: argparse.Namespace, terminal: Terminal) -> str:
    """Stop everything, then clean every node."""
    terminal.ask(
        f"This ends gpuward in namespace {options.namespace} and gives every node it holds back."
    )
    if cluster.dry_run:
        terminal.say("dry run: each line says what would be done, and nothing is changed")
    return await removal.uninstall(cluster, namespace=options.namespace, say=terminal.say)


async def _policy(cluster: Cluster, options: argparse.Namespace) -> tuple[Policy | None, str]:
    """The policy and where it is from; None where the cluster has none: the defaults hold."""
    if options.policy:
        found = given_policy(options.policy)
        if isinstance(found, Policy):
            return found, f"policy {options.policy}"
        raise CommandError("; ".join(found), exit_code=USAGE_ERROR)
    try:
        in_cluster = await cluster.policy(options.namespace)
    except CommandError as error:
        if not error.unusable:
            raise
        said = await unusable(error, cluster, options.namespace)
        text = f"{said}; --policy FILE judges by another"
        raise CommandError(text, unusable=True) from error
    if in_cluster is not None:
        return in_cluster, f"policy of ConfigMap {options.namespace}/gpuward-policy"
    return None, f"default policy (there is no ConfigMap {options.namespace}/gpuward-policy)"
