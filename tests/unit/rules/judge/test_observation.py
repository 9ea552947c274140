"""The facts of the senses: complete, frozen."""

from __future__ import annotations

import typing

import msgspec
import pytest

from rules.judge import observation
from rules.judge.observation import Observation
from rules.kernel_log.record import KernelLine

KINDS = typing.get_args(Observation)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_observation_is_frozen_and_says_when(kind: type[msgspec.Struct]) -> None:
    assert "at" in kind.__struct_fields__
    assert kind.__struct_config__.frozen


def test_every_fact_of_the_module_can_be_observed() -> None:
    parts = {"AerCounters", "GpuSeen", "NetworkPort", "PciFunction"}
    facts = {
        name
        for name, value in vars(observation).items()
        if isinstance(value, type) and value.__module__ == observation.__name__
        if issubclass(value, msgspec.Struct) and name not in parts
    }
    assert facts == {kind.__name__ for kind in KINDS}


def test_annotations_resolve() -> None:
    names = {"KernelLine": KernelLine}
    for kind in KINDS:
        typing.get_type_hints(kind, localns=names)
