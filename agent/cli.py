"""`gpuward-agent`: the command line of the node agent.

Each command is a module with `add_parser` and a `run` that takes the parsed arguments and
returns the exit status; only the module of the command that was given is imported, since the
daemon must not carry what the others need. Wrong use ends with 64 and one sentence, never with
2, which would read as an unhealthy node.
"""

import argparse
import gc
import sys
from importlib import import_module
from typing import Final, NoReturn

from agent import settings
from agent.settings import SettingsError
from rules.text.user_input import CommandParser

EXIT_INTERRUPTED: Final = 130

COMMANDS: Final = {
    "run": ("agent.daemon.run", "watch this machine and publish its health on its Node"),
    "check": ("agent.commands.check", "look at this machine once, without Kubernetes"),
    "reset-gpu": ("agent.commands.reset_gpu", "reset GPUs of this machine that nobody has open"),
    "restart-node": ("agent.commands.restart_node", "ask this machine's init for a reboot"),
    "decode": ("agent.commands.decode", "say what the lines of a kernel log mean"),
    "explain": ("agent.commands.explain", "say what an Xid, SXid or reason means, and our answer"),
}

_EPILOG: Final = """\
Start with 'gpuward-agent check' on a GPU machine, or try the entire in a checkout with hack/demo.
Exit status: 0 well; check: 0 healthy, 1 degraded, 2 unhealthy, 3 unknown;
reset-gpu, restart-node: 1 failed, 3 refused; 64 wrong use."""


class _AgentParser(CommandParser):
    """A parser whose errors are one sentence and the exit status 64."""

    def error(self, message: str) -> NoReturn:
        """End the program because of wrong use."""
        _, message = self.complaint(message)
        self.exit(settings.USAGE_ERROR, f"{self.prog}: {message}; see {self.prog} --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command that `arguments` (default: of the process) name."""
    parser = _AgentParser(
        prog="gpuward-agent",
        description="Finds failing GPUs on this machine and reports it in words Kubernetes "
        "understands.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    # Without a command: what there is, as kubectl gpuward answers.
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if given[:1] == ["--version"]:
        sys.stdout.write(f"gpuward {settings.VERSION}\n")
        return 0
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    named = next((argument for argument in given if not argument.startswith("-")), "")
    for command, (module, summary) in COMMANDS.items():
        if command == named:
            # Modules are made to stay: looking for garbage among them is a tenth of a start.
            gc.disable()
            import_module(module).add_parser(subparsers)
            gc.enable()
        else:
            subparsers.add_parser(command, help=summary)
    parsed = parser.parse_args(given)
    try:
        status: int = parsed.run(parsed)
    except SettingsError as error:
        sys.stderr.write(f"{parser.prog} {named}: {error}\n")
        return settings.USAGE_ERROR
    except KeyboardInterrupt:
        # Commands that have more to say at Ctrl-C end by themselves.
        sys.stderr.write(f"{parser.prog}: interrupted\n")
        return EXIT_INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
