"""Takes the identity out of a recorded description: UUIDs and serial numbers, and nothing else.

Pure: called by the recorder when asked. The same identity becomes the same invented one
everywhere.
"""

from __future__ import annotations

from typing import Any

from hack.sim.record.description import NO_CLUSTER


def anonymised(document: dict[str, Any]) -> dict[str, Any]:
    """The same node with invented identities."""
    gpus = []
    for number, gpu in enumerate(document["gpus"]):
        changed = {**gpu, "uuid": f"GPU-{number:08x}-0000-4000-8000-{number:012x}"}
        if gpu["serial"]:
            changed["serial"] = f"{number:013d}"
        fabric, mig = gpu.get("fabric"), gpu.get("mig")
        if fabric and fabric["cluster"] != NO_CLUSTER:
            changed["fabric"] = {**fabric, "cluster": f"{1:08x}-0000-4000-8000-{1:012x}"}
        if mig:
            instances = [
                {**instance, "uuid": f"MIG-{number:08x}-{place:04x}-4000-8000-{0:012x}"}
                for place, instance in enumerate(mig["instances"])
            ]
            changed["mig"] = {**mig, "instances": instances}
        gpus.append(changed)
    return {**document, "gpus": gpus}
