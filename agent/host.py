"""The host around the driver: its processes in a bad state, its services, its identity.

Called by the host sensing thread. Processes are looked at by name and state alone, through psutil;
nothing is sent to any of them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from rules.observation import HostProcess, HostSeen

MAX_PROCESSES = 64
MAX_NAME_CHARS = 64

BAD_STATES = {psutil.STATUS_DISK_SLEEP: "D", psutil.STATUS_ZOMBIE: "Z"}

SERVICES = {
    "nv-fabricmanager": "nvidia-fabricmanager",
    "nvidia-persistenced": "nvidia-persistenced",
    "nvidia-imex": "nvidia-imex",
}
"""Process name (15 characters of it) of each service that judgement may ask for."""

_OURS = re.compile(r"nv[-_]|nvidia|nvc:|nvsm|dcgm|nccl|cuda", re.IGNORECASE)


def host_seen(at: float, *, dmi: Path = Path("/sys/class/dmi/id")) -> HostSeen:
    """One look at the host."""
    names: set[str] = set()
    bad = tuple(_bad_processes(names, _processes()))[:MAX_PROCESSES]
    services = {
        service: "running" if process[:15] in names else "stopped"
        for process, service in SERVICES.items()
    }
    return HostSeen(at=at, product_uuid=_product_uuid(dmi), processes=bad, services=services)


def _processes() -> Iterator[tuple[int, str, str]]:
    for process in psutil.process_iter(["name", "status"]):
        yield process.pid, process.info["name"] or "", process.info["status"] or ""


def _bad_processes(
    names: set[str], processes: Iterable[tuple[int, str, str]]
) -> Iterator[HostProcess]:
    for pid, name, status in processes:
        names.add(name[:15])
        state = BAD_STATES.get(status)
        if state is not None and _OURS.search(name):
            yield HostProcess(pid=pid, name=name[:MAX_NAME_CHARS], state=state)


def _product_uuid(dmi: Path) -> str:
    try:
        return (dmi / "product_uuid").read_text(encoding="ascii").strip()[:64]
    except (OSError, UnicodeDecodeError):
        # Readable by root only, and absent on many virtual machines.
        return ""
