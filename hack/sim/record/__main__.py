"""`hack/record`: record the GPUs of this node as a YAML description for `--nvml sim:FILE`.

    hack/record --output node.yaml [--anonymise] [--nvml real|sim:FILE]

It reads what the agent reads, once and read-only. Then it reads the description through the
simulated driver and reports differences on standard error. Exit status: 0 recorded, 1 NVML cannot
be read, 64 usage error.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from agent.sources.machine import REAL, simulated
from hack.sim.driver import install
from hack.sim.record.description import anonymised, describe
from hack.sim.record.reading import NodeRead, ReadError, initialised, read_node
from hack.sim.record.replay import Difference, correct, replayed
from rules.judge.observation import HostSeen, PciFunction

WRONG_USE = 64
SIMULATED = "sim:"


class Parser(argparse.ArgumentParser):
    """An argument parser that exits with 64 on an error, as the agent does."""

    def error(self, message: str) -> Any:
        """Print the error in one line and exit."""
        self.exit(WRONG_USE, f"hack/record: {message}; see hack/record --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Record the node, check its replay and write the description; return the exit status."""
    parser = Parser(prog="hack/record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="file to write [default: standard output]")
    parser.add_argument(
        "--anonymise",
        action="store_true",
        help="replace UUIDs and serial numbers with invented ones",
    )
    parser.add_argument("--nvml", default="real", help="real or sim:FILE [default: real]")
    options = parser.parse_args(arguments)
    if options.nvml != "real" and not options.nvml.startswith(SIMULATED):
        parser.error(f"--nvml {options.nvml} is not real or sim:FILE")
    try:
        node, functions, host = read(options.nvml)
        document, replay = record(node, functions, host)
        left = correct(document, node, replay)
        if options.anonymise:
            document = anonymised(document)
        text = yaml.safe_dump(document, sort_keys=False, width=150)
        if options.output is None:
            sys.stdout.write(text)
        else:
            options.output.write_text(text, encoding="utf-8")
    except ReadError as error:
        print(f"hack/record: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"hack/record: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        return WRONG_USE
    _report(node, left, options.output, same_links=node.topology == replay.topology)
    return 0


def read(nvml: str) -> tuple[NodeRead, tuple[PciFunction, ...], HostSeen]:
    """Return what NVML, the PCI bus and the host of a real or simulated node report."""
    with ExitStack() as stack:
        machine = REAL
        if nvml.startswith(SIMULATED):
            path = nvml.removeprefix(SIMULATED)
            machine = simulated(path)
            stack.enter_context(install(path))
        stack.enter_context(initialised())
        node = read_node()
        try:
            functions = machine.functions()
        except OSError:
            functions = ()
        return node, functions, machine.host(time.time())


def record(
    node: NodeRead, functions: tuple[PciFunction, ...], host: HostSeen
) -> tuple[dict[str, Any], NodeRead]:
    """Return the description, corrected after a first replay, and the result of its replay."""
    document = describe(node, functions, host)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.yaml"
        correct(document, node, replayed(path, document))
        return document, replayed(path, document)


def _report(
    node: NodeRead, left: list[Difference], output: Path | None, *, same_links: bool
) -> None:
    def report(sentence: str) -> None:
        print(sentence, file=sys.stderr)

    for found in left:
        report(
            f"GPU {found.gpu}: {found.signal} is {found.node} on this node and"
            f" {found.simulated} in the replay."
        )
    if not same_links:
        report("The topology of the replay differs: compare it with `nvidia-smi topo -m`.")
    if node.unreadable:
        report(f"{node.unreadable} GPUs do not answer and are missing in the description.")
    where = f" in {output}" if output else ""
    replay = f"gpuward-agent check --nvml sim:{output}" if output else "--nvml sim:FILE"
    report(f"{len(node.gpus)} GPUs recorded{where}. Replay them with {replay}.")


if __name__ == "__main__":
    sys.exit(main())
