"""Which problems of a policy only follow from another one: told with it, they would mislead.

A step whose adapter was refused a line above is not wrong for that. Called by
`rules.policy.reader` with what is left of a policy once all that has a wrong type is out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rules.policy.places import Place, steps_of, touches
from rules.policy.policy import Policy
from rules.policy.validation import ValidationRule
from rules.repair.ladder import Step

Problem = tuple[str, str]


def root_causes(
    found: Iterable[Problem], policy: Policy, wrong: Iterable[Place]
) -> Iterator[Problem]:
    """Those that do not follow from what is `wrong` already, or from one another."""
    wrong = tuple(wrong)
    told: list[Place] = []
    for path, message in found:
        place = steps_of(path)
        elsewhere = _rests_on(place, policy)
        if any(touches(_scope(place), one) for one in wrong):
            continue
        if any(touches(one, other) for one in elsewhere for other in (*wrong, *told)):
            continue
        told.append(place)
        yield path, message


def _scope(place: Place) -> Place:
    """The part within which all has to have its type before any of it makes sense."""
    if place[:2] == ("repair", "adapters"):
        return place[:5]  # one step of one adapter: its keys speak of each other
    if place == ("repair", "fence"):
        return (*place, "")  # it lacks what stands elsewhere, whatever its own keys say
    return (*place, "") if place[:1] == ("reasons",) else place


def _rests_on(place: Place, policy: Policy) -> tuple[Place, ...]:
    """What else must be right before something there can be wrong."""
    match place:
        case ("repair", "steps", step, "adapter" | "template"):
            own: Place = () if place[-1] == "adapter" else (*place[:-1], "adapter")
            return (*((own,) if own else ()), *_adapter(step, policy))
        case ("repair", "fence"):
            step = str(Step.POWER_CYCLE)
            return (("repair", "steps", step), *_adapter(step, policy))
        case ("drain", "backoff", "min"):
            return (("drain", "backoff", "max"),)
        case ("validate", *section, "template"):
            return tuple(_test(tuple(section), policy))
        case _:
            return ()


def _adapter(step: str, policy: Policy) -> tuple[Place, ...]:
    """The policy's own adapter of a step, or as much of it as could be read."""
    wanted = {str(each): rule for each, rule in policy.repair.steps.items()}.get(step)
    if wanted is None:
        return ()
    place = ("repair", "adapters", wanted.adapter)
    return ((*place, "steps", step) if wanted.adapter in policy.repair.adapters else place,)


def _test(section: Place, policy: Policy) -> Iterator[Place]:
    """Provider and template of a test, and what it takes over from the general one."""
    yield ("validate", *section, "provider")
    tests = policy.validate
    rules: dict[Place, ValidationRule] = {
        ("severity", str(key)): rule for key, rule in tests.severity.items()
    }
    rules |= {("step", str(key)): rule for key, rule in tests.step.items()}
    if (rule := rules.get(section)) is not None:
        taken = {"provider": rule.provider, "template": rule.template}
        yield from (("validate", key) for key, own in taken.items() if own is None)
