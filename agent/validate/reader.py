"""The process that reads NVML once: `python -m agent.validate.reader MODE`.

Started by `reading`. It asks what the agent asks, and which processes compute on a GPU; it changes
nothing.
"""

from __future__ import annotations

import os
import sys

import msgspec
import pynvml as nvml

from agent.nvml.caller import Caller, DriverGoneError
from agent.nvml.inventory import Gpu, enumerate_gpus
from agent.nvml.messages import Tier
from agent.nvml.poller import Poller
from agent.nvml.topology import topology
from agent.simulator import SIMULATED, simulated_driver
from agent.validate.messages import EXIT_UNUSABLE
from agent.validate.reading import Reading, ReadingError
from rules.catalog.driver_branch import driver_branch
from rules.catalog.signals import Signal
from rules.validate.findings import Counters, Subject


def main(mode: str) -> int:
    """Print a reading with this driver (`real` or `sim:FILE`) as one JSON object."""
    out = os.fdopen(os.dup(1), "wb")
    # A library that prints must not garble the answer.
    os.dup2(2, 1)
    try:
        if mode.startswith(SIMULATED):
            simulated_driver().install(mode.removeprefix(SIMULATED))
        reading, status = read(), 0
    except (ImportError, OSError, ValueError, ReadingError) as error:
        reading, status = Reading(error=" ".join(str(error).split())[:300]), EXIT_UNUSABLE
    with out:
        out.write(msgspec.json.encode(reading))
    return status


def read() -> Reading:
    """Everything once. Raises ReadingError where NVML does not answer."""
    try:
        nvml.nvmlInitWithFlags(nvml.NVML_INIT_FLAG_NO_GPUS)
    except nvml.NVMLError as error:
        raise ReadingError(f"NVML does not start ({error}): is the driver loaded?") from error
    call = Caller(lambda _: None)
    try:
        counted = enumerate_gpus(call, [])
        gpus = [gpu for gpu in counted if gpu.handle is not None and gpu.device.uuid]
        version = call.text("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion)
        branch = driver_branch(version) or 0
        return Reading(
            subjects=[_subject(call, gpu) for gpu in gpus],
            counters=[_counters(call, gpu, branch) for gpu in gpus],
            links=topology(call, gpus, branch).links if len(gpus) == len(counted) else [],
            counted=len(counted),
        )
    except DriverGoneError as error:
        raise ReadingError(f"the driver cannot be read ({error}).") from error
    finally:
        nvml.nvmlShutdown()


def _subject(call: Caller, gpu: Gpu) -> Subject:
    device = gpu.device
    running = call(
        "nvmlDeviceGetComputeRunningProcesses_v3",
        nvml.nvmlDeviceGetComputeRunningProcesses,
        gpu.handle,
        gpu=device.uuid,
    )
    found = running if isinstance(running, list) else []
    return Subject(
        uuid=device.uuid,
        index=device.index,
        pci=device.pci,
        product=device.product,
        mig=bool(device.mig_mode),
        processes=tuple(int(process.pid) for process in found),
    )


def _counters(call: Caller, gpu: Gpu, branch: int) -> Counters:
    poller = Poller(call, branch)
    values: dict[Signal, float] = {}
    for tier in Tier:
        for signal, value in poller.poll(gpu, tier, 0.0).values.items():
            if isinstance(value, int | float):
                values[signal] = float(value)
    return Counters(gpu=gpu.device.uuid, values=values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
