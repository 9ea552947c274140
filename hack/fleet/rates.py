"""What breaks and how often: the numbers of the generator, each fitted or with its source.

Rates, hours, batches and recurrence are fitted on one half (by server) of a public production
trace of 400 eight-GPU servers over 349 days (Apache-2.0); the other half is left to judge them.
Rates are per 1,000 node-days. Data only: `hack.fleet.generator` throws the dice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One way a repair goes: `share` of all, lognormal hours. Two of them where the trace is
    bimodal: a third of GPU faults are over within an hour (a reset), the others take parts.
    """

    share: float
    mu: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultClass:
    """One class of the trace."""

    name: str
    single: float
    """Faults that come alone, without those that follow another."""
    repairs: tuple[Repair, ...]
    batches: float = 0.0
    """Common causes (a rack's power, a bad image, a test campaign) per 1,000 node-days."""
    batch_size: float = 0.0
    """Nodes of one common cause on average, beyond the two that make it one."""
    longest_h: float = 3200.0
    """The longest outage seen: a lognormal has no end, a repair shop has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRates:
    """The whole model: classes, how unequal nodes are, and how faults follow faults."""

    classes: tuple[FaultClass, ...]
    frailty: float
    """Shape of the Gamma over nodes. The trace's counts per node are a negative binomial of k
    0.93, with what follows a fault counted in; the generator makes those apart (`follows`)."""
    follows: tuple[tuple[float, float], ...]
    """(hours out below which, chance that another fault follows): a short repair did not hold."""
    soon: float
    """Share of those that follow within hours (the same cause again at once)."""
    soon_days: float
    later_days: float
    """Means of the two exponentials, in days after the return."""
    same_class: float
    """How often what follows is of the same class; else of any."""
    batch_days: float
    """Mean time over which the nodes of one batch fall out."""
    shortages: float
    """How often parts run out, per day: in the trace nine nodes of five classes came back on one
    day after up to 58 days."""
    shortage_days: float
    takes_parts_h: float
    """Hours from which a repair counts as one that needs parts."""
    together: float
    """Share of a batch's nodes that come back when the cause is repaired, after equal hours; the
    others are repaired one by one."""


RATES: Final = FleetRates(
    classes=(
        FaultClass(
            name="GPU",
            single=1.02,
            repairs=(
                Repair(share=0.32, mu=-1.51, sigma=0.40),
                Repair(share=0.68, mu=3.70, sigma=1.96),
            ),
            longest_h=1000.0,
        ),
        FaultClass(
            name="Unknown Error",
            single=0.64,
            batches=0.026,
            batch_size=14.0,
            repairs=(
                Repair(share=0.50, mu=0.27, sigma=1.23),
                Repair(share=0.50, mu=4.33, sigma=1.58),
            ),
        ),
        FaultClass(
            name="Stress Test Failure",
            single=0.25,
            batches=0.034,
            batch_size=7.0,
            repairs=(
                Repair(share=0.42, mu=-0.41, sigma=2.04),
                Repair(share=0.58, mu=3.32, sigma=0.81),
            ),
            longest_h=61.0,
        ),
        FaultClass(
            name="Parameter Plane Cable",
            single=0.12,
            batches=0.016,
            batch_size=2.0,
            repairs=(Repair(share=1.0, mu=3.30, sigma=1.50),),
            longest_h=1050.0,
        ),
        FaultClass(
            name="Fan",
            single=0.13,
            batches=0.012,
            batch_size=3.0,
            repairs=(Repair(share=1.0, mu=4.30, sigma=1.80),),
            longest_h=1750.0,
        ),
        FaultClass(
            name="Power Supply",
            single=0.09,
            batches=0.014,
            batch_size=5.0,
            repairs=(Repair(share=1.0, mu=5.13, sigma=1.60),),
            longest_h=1400.0,
        ),
        FaultClass(
            name="NIC", single=0.08, repairs=(Repair(share=1.0, mu=3.95, sigma=2.6),),
            longest_h=1400.0,
        ),
        FaultClass(
            name="Other", single=0.255, repairs=(Repair(share=1.0, mu=2.3, sigma=1.9),),
            longest_h=200.0,
        ),
    ),
    frailty=0.93,
    follows=((1.0, 0.36), (24.0, 0.33), (168.0, 0.19), (float("inf"), 0.13)),
    soon=0.60,
    soon_days=0.10,
    later_days=3.0,
    same_class=0.45,
    batch_days=0.5,
    together=0.75,
    shortages=2.1 / 349,
    shortage_days=50.0,
    takes_parts_h=50.0,
)  # fmt: skip
