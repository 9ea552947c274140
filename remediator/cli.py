"""Console script `gpuward-remediator`: the controller and its policy tools.

A usage error, an unusable kubeconfig or an invalid policy file exits with 64 and one sentence,
without a traceback.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from remediator import policy_file, settings, version
from remediator.kube import access
from rules.api.kube_config import KubeConfigError
from rules.policy import components, policy, reader
from rules.policy.policy import Policy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = settings.make_parser(os.environ)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in ([], ["policy"]):
        # Without a command, print the help, as kubectl gpuward does.
        given = [*given, "--help"]
    if given[:1] == ["--version"]:
        sys.stdout.write(f"gpuward {version.release_version()}\n")
        return 0
    parsed = parser.parse_args(given)
    if parsed.command == "run":
        return _run(parsed)
    if parsed.action == "check":
        return _check(parsed.file)
    if parsed.action == "rbac":
        return _rbac(parsed.file, parsed.output)
    return _schema() if parsed.action == "schema" else _show(parsed.file or parsed.policy)


_ASK = "kubectl -n gpuward get configmap gpuward-policy -o yaml | gpuward-remediator policy show -"


def _run(parsed: argparse.Namespace) -> int:
    # Imported here, because `policy check` needs neither the client nor the server.
    try:
        from remediator.page.server import ListenError
        from remediator.run import run
    except ModuleNotFoundError as error:
        return settings.fail(access.lacking_client(error))

    try:
        return asyncio.run(run(settings.run_settings(parsed, os.environ)))
    except (KubeConfigError, ListenError) as error:
        return settings.fail(str(error))
    except KeyboardInterrupt:
        return 130


def _check(path: str) -> int:
    found = policy_file.given_policy(path)
    if isinstance(found, Policy):
        source = _named(path)
        for one in found.policies:
            at = f"{source}: policy {one.name}" if len(found.policies) > 1 else source
            sys.stdout.write(f"{at}: valid, mode {one.mode}\n")
            for note in reader.unknown_reasons(one):
                sys.stderr.write(f"{at}: note: {note}\n")
            for asked in components.asked_components(one):
                then = "kubectl gpuward preflight shows whether it is installed"
                sys.stderr.write(f"{at}: note: {asked.sentence}; {then}\n")
        return 0
    return _wrong(found)


def _named(path: str) -> str:
    return "standard input" if path == "-" else path


def _wrong(problems: Sequence[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return settings.EX_USAGE


def _rbac(path: str, output: str | None) -> int:
    """Print the component that the policy's own adapters need, or write it to a folder."""
    found = policy_file.given_policy(path)
    if not isinstance(found, Policy):
        return _wrong(found)
    needs = components.repair_needs(*(one.repair for one in found.policies))
    listed = ", ".join(needs.components) or "none"
    source = _named(path)
    sys.stderr.write(f"{source}: needs these components of shipped adapters: {listed}\n")
    if not needs.own:
        sys.stderr.write(f"{source}: the policy's own adapters need no component\n")
        return 0
    try:
        for name, text in needs.own.items():
            if output is None:
                sys.stdout.write(f"# {name}\n{text}")
                continue
            Path(output).mkdir(parents=True, exist_ok=True)
            (Path(output) / name).write_text(text, "utf-8")
    except OSError as error:
        return settings.fail(
            f"{output}: cannot be written ({error.strerror}); name another --output"
        )
    return 0


def _schema() -> int:
    sys.stdout.write(f"{json.dumps(reader.policy_schema(), indent=2)}\n")
    return 0


def _show(path: str | None) -> int:
    if not path:
        sys.stderr.write(f"These are the defaults. To show the policy of the cluster: {_ASK}\n")
    found = policy_file.given_policy(path) if path else Policy()
    if not isinstance(found, Policy):
        return _wrong(found)
    views = map(policy.effective_view, found.policies)
    sys.stdout.write(yaml.safe_dump_all(views, sort_keys=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
