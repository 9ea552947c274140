"""Read and change the YAML file of a simulated node.

The file is read again after each change. An invalid edit is reported once on standard error and
the last valid description stays in use, so that the node does not vanish while a user edits the
file. The PCI bus of the node is read from the same file.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from hack.sim.driver.node import Gpu, Node, Port, parse
from rules.judge.observation import HostSeen, NetworkPort, PciFunction, Service
from rules.text.pci_address import full_address
from rules.text.user_input import duplicate_key

# Use libyaml if available: it is several times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class NodeFile:
    """The current description. `current` costs one stat if nothing changed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._name = str(path)
        self._stamp: tuple[int, int, int] | None = None
        self._node = self._read()

    def current(self) -> Node:
        """Return the last valid description.

        Never raises, also if the file is missing or invalid.
        """
        try:
            stamp = self._stat()
            if stamp != self._stamp:
                self._stamp = stamp
                self._node = self._read()
        except (OSError, ValueError) as error:
            print(
                f"{self.path}: the edit cannot be used ({_one_line(error)}); "
                "the last good description stays in force until the file is mended.",
                file=sys.stderr,
                flush=True,
            )
        return self._node

    def _read(self) -> Node:
        if self._stamp is None:
            self._stamp = self._stat()
        return parse(load(self.path))

    def _stat(self) -> tuple[int, int, int]:
        stat = os.stat(self._name)  # noqa: PTH116 - in a loop that must cost next to nothing
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino)


def load(path: str | Path) -> Any:
    """Return the YAML document as plain data. Raises ValueError for invalid or duplicate keys."""
    text = Path(path).read_bytes()
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        if twice := duplicate_key(root):
            raise ValueError(twice)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    except RecursionError:
        raise ValueError("the YAML is nested too deeply") from None


def edit(path: str | Path, change: Callable[[Any], None]) -> None:
    """Replace the file atomically: readers see the old or the new description."""
    path = Path(path)
    document = load(path)
    change(document)
    parse(document)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        yaml.dump(document, file, Dumper=_Dumper, sort_keys=False)
    Path(temporary).replace(path)


def set_gpu(path: str | Path, gpu: int, **fields: Any) -> None:
    """Set fields of one GPU, keys of nested parts joined by two underscores.

    `set_gpu(path, 3, lost=True, remap__failure=True)`
    """

    def change(document: Any) -> None:
        for name, value in fields.items():
            part = document["gpus"][gpu]
            *way, last = name.split("__")
            for step in way:
                part = part.setdefault(step, {})
            part[last] = value

    edit(path, change)


def set_node(path: str | Path, **fields: Any) -> None:
    """Set fields of the node itself."""
    edit(path, lambda document: document.update(fields))


def push_event(path: str | Path, kind: str, gpu: int, data: int = 0, **more: Any) -> None:
    """Append an event with the next id; `gpu` is its position, `more` has other fields."""

    def change(document: Any) -> None:
        events = document.setdefault("events", [])
        number = max((event["id"] for event in events), default=0) + 1
        events.append({"id": number, "type": kind, "gpu": gpu, "data": data, **more})

    edit(path, change)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def pci_functions(path: str | Path) -> list[PciFunction]:
    """Return the current NVIDIA display functions of the node in the file."""
    return functions_of(NodeFile(path).current())


def functions_of(node: Node) -> list[PciFunction]:
    """Return the NVIDIA display functions of a description."""
    return [_function(gpu) for gpu in node.gpus if _view(gpu) != "absent"]


def device_files(path: str | Path) -> list[str]:
    """Return the existing `/dev/nvidiaN`: one for each GPU that is bound to the driver."""
    return [
        f"/dev/nvidia{gpu.minor}"
        for gpu in sorted(NodeFile(path).current().gpus, key=lambda gpu: gpu.minor)
        if _view(gpu) != "absent" and gpu.pci_view.driver == "nvidia"
    ]


def host_of(node: Node, identity: HostSeen) -> HostSeen:
    """Return the node's host; `identity` is that of the real machine."""
    host = node.host
    names = (f"mlx5_{number}/1" for number in range(host.infiniband_ports))
    ports = tuple(
        NetworkPort(
            name=name,
            active=port.state == "active",
            missing_files=tuple(port.missing_files),
            counters=port.counters,
        )
        for name in names
        if (port := host.ports.get(name, Port())).state != "missing"
    )
    seen = replace(identity, ports=ports)
    if host.running is None:
        return seen
    return replace(
        seen,
        services={service: service.value in host.running for service in Service},
    )


def _view(gpu: Gpu) -> str:
    if gpu.pci_view.view is not None:
        return gpu.pci_view.view
    if gpu.unplugged:
        return "absent"
    return "all_ones" if gpu.lost else "present"


def _function(gpu: Gpu) -> PciFunction:
    return PciFunction(
        address=full_address(gpu.pci),
        vendor=int(gpu.pci_view.vendor, 16),
        device_class=int(gpu.pci_view.device_class, 16) >> 8,
        driver=gpu.pci_view.driver or "",
        config_space_ok=_view(gpu) == "present",
        upstream=tuple(gpu.pci_view.upstream),
    )
