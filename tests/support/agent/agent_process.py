"""A real agent process for end-to-end tests, with a kernel log that the test writes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.run.warm_start import WarmProcess

REPOSITORY = Path(__file__).parents[3]
XID79 = "NVRM: Xid (PCI:{pci}): 79, pid=1234, name=python, GPU has fallen off the bus."
END_WITHIN_S = 30


class AgentProcess:
    """`gpuward-agent run` on one node, with a kernel log for the driver's lines."""

    popen: type[subprocess.Popen[bytes]] = WarmProcess

    def __init__(self, folder: Path, kubeconfig: Path, node: str, **options: str) -> None:
        self.kernel_log = folder / "kmsg"
        self._sequence = 0
        given = {
            "kmsg": str(self.kernel_log),
            "nvml": "off",
            "udev": "off",
            "listen": "off",
            "kubeconfig": str(kubeconfig),
            "node-name": node,
            **options,
        }
        if given["kmsg"] == str(self.kernel_log):
            os.mkfifo(self.kernel_log)
            # Kept open, because the agent may restart while lines are written.
            self._writer = os.open(self.kernel_log, os.O_RDWR)
        flags = [f"--{name}={value}" if value else f"--{name}" for name, value in given.items()]
        self._command = [sys.executable, "-m", "agent.cli", "run", *flags]
        self.log = folder / "agent.daemon.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again after `stop`."""
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUWARD_", "POD_", "KUBE"))
        }
        with self.log.open("ab") as log:
            self._process = self.popen(
                self._command, cwd=REPOSITORY, stderr=log, stdin=subprocess.DEVNULL, env=environ
            )

    def kernel_line(self, text: str) -> None:
        """The driver prints a line."""
        self._sequence += 1
        os.write(self._writer, f"4,{self._sequence},{self._sequence}000,-;{text}\n".encode())

    @property
    def port(self) -> int | None:
        """Return the address of its metrics; None until it has logged it."""
        log = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        lines = [json.loads(line) for line in log.split("\n")[:-1] if line.startswith("{")]
        return next((line["port"] for line in reversed(lines) if "port" in line), None)

    def stop(self) -> int:
        """Stop it and return its exit status."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(END_WITHIN_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    async def exit_status(self) -> int:
        """Wait until it ends and return its exit status."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, END_WITHIN_S)


class AgentRestarted(AgentProcess):
    """Start it and its children with their own interpreters, as a container does."""

    popen: type[subprocess.Popen[bytes]] = subprocess.Popen


@contextmanager
def running(agent: AgentProcess) -> Iterator[AgentProcess]:
    """Start it, and stop it in any case."""
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()
