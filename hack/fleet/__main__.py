"""Command line of `python -m hack.fleet`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from hack.fleet.run import Fleet, Run
from hack.fleet.year import Plants
from remediator.upkeep.policy_source import given_policy
from rules.api.quarantine import Mode
from rules.policy.policy import Policy


def main() -> int:
    """Play one fleet and print its score."""
    parser = argparse.ArgumentParser(prog="python -m hack.fleet")
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--days", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="default", help="a policy file; played in Enforce")
    parser.add_argument("--false-alarms", type=float, default=0.0, help="per 1,000 node-days")
    parser.add_argument("--bad-driver-day", type=float)
    asked = parser.parse_args()
    policy = given_policy(asked.policy)
    if not isinstance(policy, Policy):
        parser.error("; ".join(policy))
    run = Run(
        nodes=asked.nodes,
        days=asked.days,
        seed=asked.seed,
        policy=msgspec.structs.replace(policy, mode=Mode.ENFORCE),
        plants=Plants(false_alarms=asked.false_alarms, bad_driver_day=asked.bad_driver_day),
    )
    sys.stdout.write("\n".join(Fleet(run).play().lines()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
