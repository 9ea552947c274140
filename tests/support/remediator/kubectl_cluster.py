"""The commands of `kubectl gpuward` against the simulated API server, in a thread, clock set.

Ages and times in the golden files never change, and what is random is made stable.
"""

import asyncio
import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from hack.sim.cluster.resource import LEASES, NAMESPACES, Caller, Resource
from hack.sim.cluster.server import HostedServer, run_in_thread
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kubectl.cli import main
from remediator.kubectl.cluster import connect
from remediator.kubectl.command import CommandError, Terminal
from remediator.kubectl.parser import make_parser
from remediator.kubectl.uninstall import Waits, uninstall
from rules.api.timestamps import format_micro_time
from tests.support.remediator.kubectl_objects import NOW, Object

REPOSITORY = Path(__file__).parents[3]
LOADED = NOW - 20 * 60 - 30
_RANDOM = (
    (re.compile(r"(by-hand|pause)-(?!0badcafe)[0-9a-f]{8}\b"), r"\1-XXXXXXXX"),
    (re.compile(r"\b[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b\d{8}T\d{6}Z"), "TIME"),
    (re.compile(r"(resourceVersion: ')\d+"), r"\1N"),
    (re.compile(r'("resourceVersion": ")\d+'), r"\1N"),
)


Stream: type[io.StringIO] = io.StringIO
"""What stands for standard output and standard error: a pipe."""


class Kubectl:
    """The commands against one server, as somebody types them."""

    def __init__(self, hosted: HostedServer, folder: Path) -> None:
        self.hosted = hosted
        self.kubeconfig = hosted.server.write_kubeconfig(folder / "kubeconfig")

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        return run_command("--kubeconfig", str(self.kubeconfig), *arguments)

    def transcript(self, *arguments: str) -> str:
        """What a terminal shows: progress and errors, then the answer; what is random made
        stable.
        """
        code, out, err = self(*arguments)
        ended = f"[exit {code}]\n" if code else ""
        return f"$ kubectl gpuward {shlex.join(arguments)}\n{stable(err + out)}{ended}"

    def get(self, resource: Resource, name: str) -> Object:
        found: Object = self.hosted.run(self.hosted.server.client.get(resource, name))
        return found


def run_command(*arguments: str) -> tuple[int, str, str]:
    out, err = Stream(), Stream()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def uninstalled(kubectl: Kubectl, **waits: float) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `uninstall --yes` with shorter waits."""
    flags = ["--kubeconfig", str(kubectl.kubeconfig), "uninstall", "--yes"]
    options = make_parser().parse_args(flags)
    terminal = Terminal(agreed=True)

    async def run() -> str:
        async with connect(options, terminal.say) as one:
            return await uninstall(one, options, terminal, Waits(**{"poll_s": 0.05, **waits}))

    with redirect_stderr(io.StringIO()) as err:
        try:
            return 0, asyncio.run(run()), err.getvalue()
        except CommandError as error:
            return error.exit_code, "", f"{err.getvalue()}{error}"


def stable(text: str) -> str:
    for pattern, replacement in _RANDOM:
        text = pattern.sub(replacement, text)
    return text


@contextmanager
def cluster(
    folder: Path,
    fill: Callable[[HostedServer], None] = lambda hosted: None,
    *,
    crds: bool = True,
    led: bool = False,
    **options: Any,
) -> Iterator[Kubectl]:
    """A server whose clock stands still; options as SimulatedApiServer takes them.

    Everything is made at LOADED, and read at NOW. `led`: a remediator leads in namespace gpuward.
    """
    moment = [LOADED]
    with run_in_thread(clock=lambda: moment[0], **options) as hosted:
        if crds:
            manifests = read_manifests(REPOSITORY / "daemonset" / "crds")
            hosted.run(post_manifests(hosted.server.client, manifests))
        fill(hosted)
        if led:
            load(hosted, NAMESPACES, {"metadata": {"name": "gpuward"}})
            load(hosted, LEASES, lease(NOW))
        moment[0] = NOW
        yield Kubectl(hosted, folder)


def lease(at: float, holder: str = "", namespace: str = "gpuward") -> Object:
    """The remediators', renewed at that moment; without a holder it is being handed over."""
    spec = {"holderIdentity": holder, "renewTime": format_micro_time(at)}
    return {"metadata": {"name": "gpuward-remediator", "namespace": namespace}, "spec": spec}


def may(role: str, *files: Path) -> list[Object]:
    """The ClusterRoles for people, bound to ann with one of them, and what these files hold."""
    roles = REPOSITORY / "daemonset" / "base" / "viewer-operator-roles.yaml"
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": group}],
    }
    return [*(one for file in (roles, *files) for one in read_manifests(file)), binding]


def viewer(name: str = "ann") -> Caller:
    return Caller(name, ("system:authenticated",))


def load(hosted: HostedServer, resource: Resource, *objects: Object) -> None:
    hosted.call(lambda: hosted.server.load(resource, objects))
