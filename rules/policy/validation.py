"""Which nodes are tested under load before they come back: part `validate` of the policy.

`rules.session.validation` asks it who tests a node; what a test says is judged in
`rules.validate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from rules.api.object_name import is_object_name
from rules.catalog.reason import Severity
from rules.policy.durations import Seconds
from rules.policy.section import Section
from rules.repair.ladder import Step

Provider = Literal["Auto", "None", "Builtin", "Job"]
"""Who tests a node under load before it comes back. Auto: Builtin where component `validate` says
so, else None."""
BUILTIN_TEMPLATE: Final = "gpuward-validate"
"""The PodTemplate of provider Builtin, which component `validate` installs."""


class ValidationRule(Section, frozen=True, kw_only=True):
    """What is different for one severity or after one step; unset means as in general."""

    provider: Provider | None = None
    timeout_s: Seconds | None = msgspec.field(name="timeout", default=None)
    template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationChoice:
    """Who tests a node, from which PodTemplate, and how long that may take."""

    provider: Provider
    template: str
    timeout_s: float


class Validation(Section, frozen=True, kw_only=True):
    """Whether a drained node is tested under load before it comes back, and by whom."""

    provider: Provider = "Auto"
    timeout_s: Seconds = msgspec.field(name="timeout", default=Seconds(1800))
    template: str = ""
    """A PodTemplate in the remediator's namespace, for provider Job."""
    severity: dict[Severity, ValidationRule] = msgspec.field(default_factory=dict)
    """For sessions of that severity."""
    step: dict[Step, ValidationRule] = msgspec.field(default_factory=dict)
    """After that repair step; this wins over the severity."""
    new_nodes: bool = msgspec.field(name="newNodes", default=False)
    """Whether nodes that were never tested are tested too, while no pod uses a GPU there."""

    def with_auto(self, provider: Provider) -> Validation:
        """The same where every Auto, in general and of each severity and step, is `provider`."""

        def rule(given: ValidationRule) -> ValidationRule:
            auto = given.provider == "Auto"
            return msgspec.structs.replace(given, provider=provider) if auto else given

        return msgspec.structs.replace(
            self,
            provider=provider if self.provider == "Auto" else self.provider,
            severity={key: rule(each) for key, each in self.severity.items()},
            step={key: rule(each) for key, each in self.step.items()},
        )

    def chosen(self, severity: str, step: str) -> ValidationChoice | None:
        """Who tests the node of a session of `severity` after `step` ("": after none); None:
        nobody.
        """
        rules = [self.step.get(s) for s in Step if s == step]
        rules += [self.severity.get(s) for s in Severity if s == severity]
        found = [rule for rule in rules if rule is not None]
        provider = next((r.provider for r in found if r.provider is not None), self.provider)
        template = next((r.template for r in found if r.template is not None), self.template)
        timeout_s = next((r.timeout_s for r in found if r.timeout_s is not None), self.timeout_s)
        return _choice(provider, template, timeout_s)

    def of_lemons(self) -> ValidationChoice | None:
        """Who tests a node whose part fails again and again, where nobody tests the others: the
        first who tests any; None where nobody ever does.
        """
        general = ValidationRule(provider=self.provider, template=self.template)
        for rule in (general, *self.severity.values(), *self.step.values()):
            template = rule.template if rule.template is not None else self.template
            timeout_s = rule.timeout_s if rule.timeout_s is not None else self.timeout_s
            choice = _choice(rule.provider or self.provider, template, timeout_s)
            if choice is not None:
                return choice
        return None

    def of_new_nodes(self) -> ValidationChoice | None:
        """Who tests nodes that were never tested; None: nobody."""
        if not self.new_nodes:
            return None
        return _choice(self.provider, self.template, self.timeout_s)


def _choice(provider: Provider, template: str, timeout_s: float) -> ValidationChoice | None:
    if provider in {"Auto", "None"}:
        return None
    named = template if provider == "Job" else BUILTIN_TEMPLATE
    return ValidationChoice(provider=provider, template=named, timeout_s=timeout_s)


def validation_problems(validation: Validation) -> Iterator[tuple[str, str]]:
    """Path and message of tests that nobody could make, or that could never end."""
    whole = ValidationRule(timeout_s=validation.timeout_s)
    rules = {"": whole}
    rules |= {f".severity.{key}": rule for key, rule in sorted(validation.severity.items())}
    rules |= {f".step.{key}": rule for key, rule in sorted(validation.step.items())}
    for where, rule in rules.items():
        path = f"validate{where}"
        provider = rule.provider if rule.provider is not None else validation.provider
        template = rule.template if rule.template is not None else validation.template
        if provider == "Job" and not is_object_name(template):
            message = (
                f"{template!r:.80} is no name of a PodTemplate; provider Job needs one that is in "
                "gpuward's namespace"
            )
            yield f"{path}.template", message
        if rule.timeout_s is not None and rule.timeout_s < 1:
            yield f"{path}.timeout", "must be at least 1s"
