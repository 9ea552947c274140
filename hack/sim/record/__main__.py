"""`hack/record`: record the GPUs of this node as a YAML description for `--nvml sim:FILE`.

    hack/record --output node.yaml [--anonymise] [--nvml real|sim:FILE]

It reads what the agent reads, once, and writes nothing to a GPU. The description is then read back
through the simulated driver, and differences are reported on standard error. Ends with 0,
or with 1 where NVML cannot be read, 64 for wrong use.
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
from hack.sim.record.replay import Difference, mend, replayed
from rules.judge.observation import HostSeen, PciFunction

WRONG_USE = 64
SIMULATED = "sim:"


class Parser(argparse.ArgumentParser):
    """Ends with 64 for wrong use, as every program here."""

    def error(self, message: str) -> Any:
        """Say it in one line."""
        self.exit(WRONG_USE, f"hack/record: {message}; see hack/record --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Record, replay, write."""
    parser = Parser(prog="hack/record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="file to write (standard output)")
    parser.add_argument(
        "--anonymise",
        action="store_true",
        help="replace UUIDs and serial numbers by invented ones",
    )
    parser.add_argument("--nvml", default="real", help="real or sim:FILE (real)")
    options = parser.parse_args(arguments)
    if options.nvml != "real" and not options.nvml.startswith(SIMULATED):
        parser.error(f"--nvml {options.nvml} is neither real nor sim:FILE")
    try:
        node, functions, host = look(options.nvml)
        document, replay = record(node, functions, host)
        left = mend(document, node, replay)
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
    _say(node, left, options.output, same_links=node.topology == replay.topology)
    return 0


def look(nvml: str) -> tuple[NodeRead, tuple[PciFunction, ...], HostSeen]:
    """This node, or the simulated one: NVML, and the PCI bus and the host beside it."""
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
    """The description, mended after a first replay; and how it replays now."""
    document = describe(node, functions, host)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.yaml"
        mend(document, node, replayed(path, document))
        return document, replayed(path, document)


def _say(node: NodeRead, left: list[Difference], output: Path | None, *, same_links: bool) -> None:
    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)

    for found in left:
        say(
            f"GPU {found.gpu}: {found.signal} is {found.node} here and replays as "
            f"{found.simulated}."
        )
    if not same_links:
        say("How the GPUs are joined replays differently: compare `nvidia-smi topo -m` by hand.")
    if node.unseen:
        say(f"{node.unseen} GPUs do not answer and are not in the description.")
    where = f" in {output}" if output else ""
    replay = f"gpuward-agent check --nvml sim:{output}" if output else "--nvml sim:FILE"
    say(f"{len(node.gpus)} GPUs recorded{where}; replay them with {replay}.")


if __name__ == "__main__":
    sys.exit(main())
