"""`gpuward-agent`: the command line of the node agent.

Each command is a module with `add_parser` and a `run` that takes the parsed arguments and
returns the exit status. Only the module of the requested command is imported, so that the daemon
does not load what the other commands need. A usage error exits with 64 and one sentence. Exit
status 2 would mean an unhealthy node.
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
    "run": ("agent.daemon.run", "Watch this machine's GPUs and publish their health"),
    "check": ("agent.commands.check", "Check this machine's GPUs once, without Kubernetes"),
    "reset-gpu": (
        "agent.commands.reset_gpu",
        "Reset GPUs of this machine that no process has open",
    ),
    "restart-node": ("agent.commands.restart_node", "Reboot this machine"),
    "decode": ("agent.commands.decode", "Decode the GPU errors in a kernel log"),
    "explain": ("agent.commands.explain", "Explain an Xid, an SXid or a reason"),
}

_EPILOG: Final = """\
Examples:
  gpuward-agent check               # check this machine, no cluster needed
  dmesg | gpuward-agent decode      # find GPU errors in a kernel log
  gpuward-agent explain 79          # what Xid 79 means and what gpuward does

Use "gpuward-agent COMMAND --help" for the options and exit status of a command.
Exit status 64: usage or configuration error."""


class _AgentParser(CommandParser):
    """An argument parser that reports an error in one sentence and exits with 64."""

    def error(self, message: str) -> NoReturn:
        """Print `message` and exit with 64."""
        _, message = self.complaint(message)
        self.exit(settings.USAGE_ERROR, f"{self.prog}: {message}; see {self.prog} --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command in `arguments` (default: `sys.argv`) and return its exit status."""
    parser = _AgentParser(
        prog="gpuward-agent",
        description="Detects GPU faults on this node and publishes them to Kubernetes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    # Without a command print the help, as kubectl gpuward does.
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if given[:1] == ["--version"]:
        sys.stdout.write(f"gpuward {settings.VERSION}\n")
        return 0
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    named = next((argument for argument in given if not argument.startswith("-")), "")
    for command, (module, summary) in COMMANDS.items():
        if command == named:
            # Modules are never freed: garbage collection here takes a tenth of the start time.
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
        # Commands with a message of their own handle Ctrl-C themselves.
        sys.stderr.write(f"{parser.prog}: interrupted\n")
        return EXIT_INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
