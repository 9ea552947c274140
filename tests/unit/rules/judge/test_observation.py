"""The facts of the senses: complete, frozen."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from rules.catalog.signals import Signal
from rules.judge import observation
from rules.judge.observation import Observation
from rules.judge.workload import Workload
from rules.kernel_log.record import KernelLine

KINDS = typing.get_args(Observation)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_observation_is_frozen_and_says_when(kind: type) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    assert "at" in names
    parameters = kind.__dataclass_params__  # type: ignore[attr-defined]
    assert parameters.frozen
    assert "__slots__" in vars(kind)


def test_every_fact_of_the_module_can_be_observed() -> None:
    parts = {"AerCounters", "GpuSeen", "NetworkPort", "PciFunction", "HostProcess"}
    facts = {
        name
        for name, value in vars(observation).items()
        if dataclasses.is_dataclass(value) and name not in parts
    }
    assert facts == {kind.__name__ for kind in KINDS}


def test_annotations_resolve() -> None:
    names = {"KernelLine": KernelLine, "Signal": Signal, "Workload": Workload}
    for kind in KINDS:
        typing.get_type_hints(kind, localns=names)
