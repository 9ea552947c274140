"""How `kubectl gpuward` is used and misused: options anywhere, exit status, errors with
remedies.
"""

import http.server
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.cluster import resource as r
from hack.sim.cluster.client import kubeconfig_text
from hack.sim.cluster.server import HostedServer
from hack.sim.manifests import post_manifests
from remediator.kubectl.cli import main
from remediator.kubectl.command import COMMANDS
from tests.support.remediator.kubectl_cluster import REPOSITORY, cluster, may, run_command, viewer
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY, PAUSES, QUARANTINES


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--context", "simulated", "fleet", "-o", "json"), id="before"),
        pytest.param(("fleet", "--context", "simulated", "-o", "json"), id="after"),
        pytest.param(("-n", "x", "fleet", "-n", "gpuward", "-o", "json"), id="the later wins"),
    ],
)
def test_options_are_accepted_before_and_after_the_command(fleet, arguments):
    code, out, err = fleet(*arguments)
    assert (code, err) == (0, "")
    assert json.loads(out)["kind"] == "List"


def test_an_unreachable_api_server_is_reported_in_one_line(tmp_path):
    with cluster(tmp_path) as kubectl:
        kubeconfig = str(kubectl.kubeconfig)
    code, out, err = run_command("--kubeconfig", kubeconfig, "fleet")
    assert (code, out) == (1, "")
    assert "no answer from the API server" in err
    assert "check the cluster's address" in err


@contextmanager
def answering(code: int, body: bytes, kind: str, folder: Path) -> Iterator[str]:
    """The kubeconfig of an address where something answers every call the same."""

    class Same(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            # The first invalid answer cancels the other lists.
            with suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # the name that the library looks for

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Same)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    path = folder / "kubeconfig"
    path.write_text(kubeconfig_text(f"http://127.0.0.1:{server.server_port}"))
    try:
        yield str(path)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("code", "body", "kind", "message"),
    [
        pytest.param(404, b"", "text/html", "is not a Kubernetes API server", id="a web server"),
        pytest.param(200, b"<html>", "text/html", "unreadable object", id="a login page"),
        pytest.param(200, b"null", "application/json", "unreadable object", id="null"),
        pytest.param(200, b'{"items": [1]}', "application/json", "unreadable object",
                     id="numbers"),
        pytest.param(200, b'{"items": [{"metadata": {"name": "\xff"}}]}', "application/json",
                     "unreadable object", id="not UTF-8"),
        pytest.param(401, b"{}", "application/json", "renew the credentials", id="not logged in"),
        pytest.param(429, b"slow down", "text/plain", "try again in a moment", id="too busy"),
        pytest.param(503, b"", "text/plain", "try again in a moment", id="no backend"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [("fleet",), ("why", HEALTHY)], ids=lambda c: c[0])
def test_whatever_answers_ends_in_one_sentence(tmp_path, command, code, body, kind, message):
    with answering(code, body, kind, tmp_path) as kubeconfig:
        found, out, err = run_command("--kubeconfig", kubeconfig, *command)
    assert (found, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


class Broken(io.StringIO):
    """Standard output that fails unexpectedly."""

    def write(self, text: str) -> int:
        raise ZeroDivisionError("oh\x1b[2J")


def test_an_unexpected_error_is_one_sentence(fleet, monkeypatch):
    arguments = ["--kubeconfig", str(fleet.kubeconfig), "fleet"]
    err = io.StringIO()
    with redirect_stdout(Broken()), redirect_stderr(err):
        assert main(arguments) == 1
        assert "unexpected ZeroDivisionError: oh\\x1b[2J; this is a fault of" in err.getvalue()
        monkeypatch.setenv("GPUWARD_TRACEBACK", "1")
        with pytest.raises(ZeroDivisionError):
            main(arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(None, "does not exist", id="missing"),
        pytest.param("}{", "is not valid", id="not YAML"),
        pytest.param("kind: Config", "is not valid", id="empty"),
    ],
)
def test_an_unusable_kubeconfig_is_wrong_use(tmp_path, text, message):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    code, out, err = run_command("--kubeconfig", str(path), "fleet")
    assert (code, out) == (64, "")
    assert message in err


def test_an_operator_acts_and_who_acted_is_recorded(tmp_path):
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        hosted.run(post_manifests(hosted.server.client, may("gpuward-operator")))

    options: dict[str, Any] = {"authorization": "RBAC", "tokens": {"secret": viewer()}}
    with cluster(tmp_path, fill, **options) as kubectl:
        assert kubectl("quarantine", BLOCKED, "--reason", "fan", "--yes")[0] == 0
        assert kubectl("release", BLOCKED, "--reason", "tested", "--yes")[0] == 0
        assert kubectl("hold", BLOCKED, "--reason", "vendor")[0] == 0
        assert kubectl("mark-replaced", BLOCKED, "--reason", "new GPU")[0] == 0
        assert kubectl("pause", "-l", "rack=a,pool=b", "--reason", "drill")[0] == 0
        session = kubectl.get(QUARANTINES, f"{BLOCKED}-0badcafe")["spec"]
        node = kubectl.get(r.NODES, BLOCKED)["metadata"]["annotations"]
        pauses, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(PAUSES))
    assert session["release"].pop("at").endswith("Z"), "the time of the request is recorded, too"
    assert session["release"] == {"by": "ann", "reason": "tested"}
    assert session["hold"] is True
    assert (session["causes"][-1]["by"], session["causes"][-1]["message"]) == ("ann", "fan")
    assert node["gpuward.io/hold"] == "vendor (ann)"
    assert re.fullmatch(r"2026-03-05T12:00:0[01]Z new GPU \(ann\)", node["gpuward.io/repaired"])
    made = next(one["spec"] for one in pauses if one["metadata"]["name"] != "pause-0badcafe")
    assert made["by"] == "ann"
    assert made["scope"]["nodeSelector"] == {"matchLabels": {"rack": "a", "pool": "b"}}


def test_a_policy_file_is_judged_instead_of_the_clusters(fleet, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\nmode: Enforce\n")
    code, out, _ = fleet("plan", HEALTHY, "--policy", str(policy))
    assert code == 0
    assert out.startswith(f"policy {policy}, mode Enforce")
    policy.write_text("mod: Enforce\n")
    code, _, err = fleet("plan", "--policy", str(policy))
    assert code == 64
    assert "did you mean mode?" in err


FORMED = [command for command in COMMANDS if command.forms]
FREE = {"mark", "evidence", "labels", "annotations"}
"""What others wrote, or a record with keys of its own."""


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner) if key not in FREE else ()
    for inner in value if isinstance(value, list) else ():
        yield from keys_of(inner)


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("command", FORMED, ids=[command.name for command in FORMED])
def test_every_command_prints_one_list_of_documented_kinds(fleet, command, form):
    nodes = [BLOCKED, HEALTHY] if command.node else []
    code, out, _ = fleet(command.name, *nodes, "-o", form)
    found = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert code == 0
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert found.keys() == {"apiVersion", "kind", "items"}
    assert len(found["items"]) >= max(1, len(nodes))
    assert all(one["metadata"].keys() == {"name"} for one in found["items"])
    assert {one["apiVersion"] for one in found["items"]} == {"gpuward.io/v1alpha1"}
    assert [key for key in keys_of(found) if not re.fullmatch(r"[a-z][A-Za-z0-9]*", key)] == []
    page = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    (kind,) = {one["kind"] for one in found["items"]}
    (row,) = re.findall(rf"^\| `{command.name}` \| `{kind}` \| (.*) \|$", page, re.MULTILINE)
    documented = {"apiVersion", "kind", "metadata", *re.findall(r"`(\w+)`", row)}
    assert {key for one in found["items"] for key in one} <= documented
