"""The facts of the senses: complete, frozen, and spelled as the NVML child spells them."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from agent.nvml import messages
from rules.catalog.signals import Signal
from rules.judge import observation
from rules.judge.observation import EventKind, Observation, SourceState
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


def test_events_and_states_are_spelled_as_the_child_spells_them() -> None:
    assert {kind.value for kind in EventKind} == {kind.value for kind in messages.NvmlEventKind}
    assert {s.value for s in SourceState} == {s.value for s in messages.NvmlState}
