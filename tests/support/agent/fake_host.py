"""A host in a folder: its processes, nvidia-smi and init, as shell scripts."""

import threading
from pathlib import Path

from agent.commands.repair import Host
from agent.commands.reset_gpu import GpuReset

UUIDS = [f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(4)]
BOOT = "0b5f6f6e-0000-4000-8000-000000000001"
_TOOL = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
  --query-gpu=*) cat {gpus} ;;
  --gpu-reset) cat {output}; exit $(cat {status}) ;;
  -pm) case "$2" in 0) rm -f {held} ;; esac ;;
esac
"""
_INIT = """#!/bin/sh
shift 4
echo "$@" >> {log}
[ "$2" = is-system-running ] && cat {state}
[ "$(cat {status})" = killed ] && kill -KILL $$
exit $(cat {status})
"""


class FakeHost:
    """The folder and its state."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.root, self.log = folder / "proc", folder / "root", folder / "log"
        self.status, self.output = folder / "status", folder / "output"
        self.gpus, self.state = folder / "gpus", folder / "state"
        (self.proc / "1").mkdir(parents=True)
        (self.root / "dev").mkdir(parents=True)
        (self.proc / "1/root").symlink_to(self.root)
        self._file(self.proc / "2/stat", "2 (kthreadd) S 0 0")
        self._file(self.proc / "sys/kernel/random/boot_id", f"{BOOT}\n")
        self.status.write_text("0")
        self.state.write_text("running\n")
        self.output.write_text("GPU was successfully reset.\n")
        self.log.write_text("")
        self.list_gpus()
        self.give_driver("usr/bin/nvidia-smi")
        # chroot DIR PROGRAM ARGUMENTS: the program below the folder.
        self._script(
            folder / "chroot",
            '#!/bin/sh\nroot=$1; shift\ntool=$1; shift\nexec "$root$tool" "$@"\n',
        )
        self._script(
            folder / "nsenter",
            _INIT.format(log=self.log, state=self.state, status=self.status),
        )
        self.host = Host(
            proc=self.proc, chroot=[str(folder / "chroot")], nsenter=[str(folder / "nsenter")]
        )

    def list_gpus(
        self, *, persistence: str = "Disabled", mig: str = "Disabled", capability: str = "9.0"
    ) -> None:
        lines = []
        for index, uuid in enumerate(UUIDS):
            pci = f"0000:0{index}:00.0"
            lines.append(f"{uuid}, 0000{pci}, {persistence}, {mig}, {capability}\n")
            text = f"Model: \t NVIDIA\nDevice Minor: \t {index}\n"
            self._file(self.proc / "driver/nvidia/gpus" / pci / "information", text)
        self.gpus.write_text("".join(lines))

    def give_driver(self, place: str) -> None:
        held = self.proc / "700/fd/9"
        text = _TOOL.format(
            log=self.log, gpus=self.gpus, status=self.status, output=self.output, held=held
        )
        (self.root / place).parent.mkdir(parents=True, exist_ok=True)
        self._script(self.root / place, text)

    def process(self, pid: int, name: str, *devices: str) -> None:
        """A process of the host with these files open."""
        self._file(self.proc / f"{pid}/comm", f"{name}\n")
        (self.proc / f"{pid}/fd").mkdir()
        for number, device in enumerate(devices, start=9):
            (self.proc / f"{pid}/fd/{number}").symlink_to(device)

    def ran(self) -> list[str]:
        """Return the programs that ran on the host, except queries."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if not line.startswith("--query-gpu")]

    def reset(self, uuids: list[str], wait_s: float = 0.0, boot_id: str = BOOT) -> GpuReset:
        return GpuReset(
            host=self.host,
            uuids=uuids,
            boot_id=boot_id,
            wait_s=wait_s,
            log_line=lambda _: None,
            stop=threading.Event(),
        )

    @staticmethod
    def _file(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)
