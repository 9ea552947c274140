"""From what the NVML child says to the facts that judgement reads.

Called by the main loop for each message of `agent.nvml.link`. Translation only: a number is never
weighed here, and what could not be read stays Absent.
"""

from __future__ import annotations

from agent.nvml.messages import (
    Absent,
    Device,
    Event,
    Fault,
    Hello,
    Message,
    Note,
    NvmlReadings,
    NvmlStatus,
    NvmlTopology,
    Value,
)
from rules.judge import observation as facts
from rules.judge.observation import Observation, SourceName, SourceState


def observation_of(message: Message, at: float) -> Observation | None:
    """The fact in a message; None for what only a log wants to know."""
    match message:
        case Note():
            return None
        case NvmlStatus():
            return facts.SourceChanged(
                at=at,
                source=SourceName.NVML,
                state=SourceState(message.state),
                reason=str(message.reason),
            )
        case Hello():
            return facts.Inventory(
                at=at,
                driver=message.driver,
                virtualization=message.virtualization,
                gpus=tuple(_gpu(device) for device in message.devices),
                excluded=tuple(message.excluded),
            )
        case NvmlTopology():
            return facts.TopologySeen(
                at=at,
                gpus=tuple(message.gpus),
                links=tuple(tuple(row) for row in message.links),
                remotes=tuple(tuple(row) for row in message.remote),
                clusters=tuple(message.clusters),
                cliques=tuple(message.cliques),
                numa=tuple(message.numa),
            )
        case NvmlReadings():
            values = {signal: _value(value) for signal, value in message.values.items()}
            return facts.Readings(at=at, gpu=message.gpu, pci=message.pci, values=values)
        case Event():
            return facts.GpuEvent(
                at=at,
                kind=facts.EventKind(message.kind),
                data=message.data,
                gpu=message.gpu,
                pci=message.pci,
                gi=message.gi,
                ci=message.ci,
            )
        case Fault():
            return facts.CallFailed(
                at=at, call=message.call, code=message.code, gpu=message.gpu, pci=message.pci
            )


def _gpu(device: Device) -> facts.GpuSeen:
    return facts.GpuSeen(
        uuid=device.uuid,
        index=device.index,
        pci=device.pci,
        serial=device.serial,
        product=device.product,
        board=device.board,
        vbios=device.vbios,
        module_id=device.module_id,
        minor=device.minor,
        architecture=device.architecture,
        mig_mode=device.mig_mode,
        mig_instances=device.mig_instances,
    )


def _value(value: Value) -> facts.Value:
    if isinstance(value, Absent):
        return None
    return tuple(value) if isinstance(value, list) else value
