"""From what the NVML child says to the facts that judgement reads.

Called by the main loop for each message of `agent.nvml.link`. Translation only: a number is never
weighed here, and what could not be read stays Absent.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from agent.nvml import messages
from rules.judge import observation as facts
from rules.judge.observation import Observation, SourceName

_Likeness: TypeAlias = facts.Inventory | facts.TopologySeen | facts.GpuEvent | facts.CallFailed

_FACTS: Final[dict[type[messages.Message], type[_Likeness]]] = {
    messages.Hello: facts.Inventory,
    messages.NvmlTopology: facts.TopologySeen,
    messages.Event: facts.GpuEvent,
    messages.Fault: facts.CallFailed,
}
"""Facts that have the fields of their message."""


def observation_of(message: messages.Message, at: float) -> Observation | None:
    """The fact in a message; None for what only a log wants to know."""
    match message:
        case messages.NvmlStatus(state=state, reason=reason):
            return facts.SourceChanged(
                at=at, source=SourceName.NVML, state=state, reason=str(reason)
            )
        case messages.NvmlReadings():
            values = {signal: _value(value) for signal, value in message.values.items()}
            return facts.Readings(at=at, gpu=message.gpu, pci=message.pci, values=values)
        case messages.Hello() | messages.NvmlTopology() | messages.Event() | messages.Fault():
            said = {**msgspec.structs.asdict(message), "at": at}
            return msgspec.convert(said, _FACTS[type(message)], from_attributes=True)
        case _:
            return None


def _value(value: messages.Value) -> facts.Value:
    if isinstance(value, messages.Absent):
        return None
    return tuple(value) if isinstance(value, list) else value
