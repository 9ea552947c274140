"""Several nodes, labels, dry runs, watching and time limits, as kubectl has them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.proxy.faults import Fault
from tests.support.remediator.kubectl_cluster import REPOSITORY, Kubectl, cluster
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY, QUARANTINES

REASON = ("--reason", "fan noise")


def test_a_node_is_named_as_kubectl_names_one(fleet):
    assert fleet("why", f"node/{HEALTHY}") == fleet("why", HEALTHY)
    assert fleet("plan", f"nodes/{BLOCKED}") == fleet("plan", BLOCKED)
    assert fleet("plan", f"pod/{HEALTHY}")[0] == 64


def test_several_nodes_are_answered_one_after_the_other(fleet):
    code, out, err = fleet("why", HEALTHY, BLOCKED)
    assert (code, err) == (0, "")
    assert out == f"{fleet('why', HEALTHY)[1]}\n{fleet('why', BLOCKED)[1]}"


def test_what_fails_on_one_node_does_not_keep_the_others(fleet):
    code, out, err = fleet("why", "gpu-never", HEALTHY)
    assert code == 1
    assert out.startswith(f"{HEALTHY}: Healthy, in service")
    assert "gpu-never: node gpu-never not found" in err
    assert "1 of 2 nodes failed" in err


def test_nodes_are_chosen_by_label(fleet):
    code, out, _ = fleet("why", "-l", "gpuward.io/opt-out=true")
    assert (code, out.split(":")[0]) == (0, "gpu-opted-out")
    assert fleet("why", "-l", "a=b")[2].startswith("kubectl gpuward: no node has the labels a=b")
    assert fleet("fleet", "-l", "gpuward.io/opt-out")[1].startswith("1 GPU node: ")
    assert "gpu-budget" not in fleet("plan", "-l", "gpuward.io/health=healthy")[1]


ACTS = [
    ("quarantine", HEALTHY, "--yes", *REASON),
    ("release", BLOCKED, "--yes", *REASON),
    ("hold", BLOCKED, *REASON),
    ("unhold", "gpu-held"),
    ("mark-replaced", BLOCKED, *REASON),
    ("pause", *REASON),
    ("resume",),
    ("uninstall", "--yes"),
]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param((), 1, id="without a name it asks, and nobody can answer"),
        pytest.param(("--yes",), 0, id="agreed"),
        pytest.param(("pause-0badcafe",), 0, id="named"),
    ],
)
def test_all_pauses_end_only_after_a_confirmation(
    tmp_path: Path, arguments: tuple[str, ...], code: int
):
    with cluster(tmp_path, load_fleet) as kubectl:
        assert kubectl("pause", "--reason", "mine")[0] == 0
        found, _, err = kubectl("resume", *arguments)
        listed = kubectl("fleet")[1]
    assert found == code
    assert ("(pause-0badcafe)" in listed) is bool(code)
    if code:
        assert "This ends all 2 pauses" in err
        assert "by ann (pause-0badcafe), gpu-paused" in err
        assert "Nothing was changed; confirm with --yes" in err


def everything(kubectl: Kubectl) -> str:
    client = kubectl.hosted.server.client
    kinds = (r.NODES, QUARANTINES, r.PODS)
    found = [kubectl.hosted.run(client.list(kind))[0] for kind in kinds]
    return json.dumps(found, sort_keys=True)


def test_an_interrupt_prints_what_was_requested_until_then(fleet):
    interrupt = Fault(
        path="/gpu-paused$",
        action="delay",
        delay_s=2.0,
        then=lambda: os.kill(os.getpid(), signal.SIGINT),
    )
    fleet.hosted.call(lambda: fleet.hosted.server.faults.add(interrupt))
    code, out, err = fleet("hold", BLOCKED, "gpu-paused", HEALTHY, *REASON)
    assert (code, out) == (130, "")
    assert err.startswith(f"{BLOCKED}: session {BLOCKED}-0badcafe held")
    assert HEALTHY not in err


@pytest.mark.parametrize("arguments", ACTS, ids=[arguments[0] for arguments in ACTS])
def test_a_dry_run_changes_nothing(fleet, arguments):
    before = everything(fleet), fleet("pause", "--dry-run", *REASON)[0]
    code, out, err = fleet(*arguments, "--dry-run")
    assert code == 0, err
    first, *message = out.rstrip().splitlines()
    assert first.startswith("dry run, checked by the API server: nothing was changed")
    # The answer is only quoted, since nothing was done.
    assert message
    assert all(line.startswith("  ") or not line for line in message)
    assert (everything(fleet), 0) == before
    assert "pause-0badcafe" in fleet("fleet")[1]


def test_ctrl_c_prints_one_line_and_exits_with_130(tmp_path):
    """While an API server does not answer: what an operator does then."""
    silent = (
        "import socket, sys, threading, os, signal, time\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
        "open(sys.argv[1], 'w').write('''apiVersion: v1\n"
        'clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]\n'
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "current-context: x\n''' % s.getsockname()[1])\n"
        "def stop():\n"
        "    s.accept(); os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=stop, daemon=True).start()\n"
        "from remediator.kubectl.cli import main\n"
        "sys.exit(main(['--kubeconfig', sys.argv[1], 'fleet']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", silent, str(Path(tmp_path) / "kubeconfig")],
        capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "kubectl gpuward: interrupted\n"


def test_what_is_the_same_for_all_nodes_is_read_at_the_first_of_them(tmp_path: Path) -> None:
    """Lists of a large fleet once per node would keep its API server busy; what was asked for
    before counts in the budget all the same.
    """
    names = [HEALTHY, "gpu-cordoned", "gpu-no-agent", "gpu-cancelled"]
    with cluster(tmp_path, load_fleet) as kubectl:
        before = len(kubectl.hosted.server.requests.all)
        code, out, err = kubectl("quarantine", *names, *REASON, "--yes")
        asked_for = list(kubectl.hosted.server.requests.all)[before:]
    assert (code, err) == (0, "")
    lists = Counter((one.verb, one.resource) for one in asked_for if one.verb == "list")
    assert lists["list", "nodes"] == 1
    assert lists["list", "gpuquarantines"] == len(names) + 1, "of each node, and of the fleet"
    counted = Counter(one.resource for one in asked_for)
    assert counted["configmaps"] == counted["gpuwardpauses"] == 1
    assert counted["selfsubjectreviews"] == 1
    message = re.findall(r"exceeds the budget \((\d+) of 13", out)
    assert message == ["5", "6", "7"], "a node that is cordoned already costs nothing"
