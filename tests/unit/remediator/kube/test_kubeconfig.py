"""A kubeconfig says whom we act as, and a login that gave nothing is never a stranger's
request.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from remediator.kube.access import Access, AccessError
from remediator.kube.kubeconfig import Acting, chosen_context


def written(tmp_path: Any, user: dict[str, Any], current: str = "x", **context: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
    }
    if current:
        config["current-context"] = current
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


async def test_issue15_01_requests_act_as_the_user_that_the_kubeconfig_names(tmp_path):
    user = {
        "token": "t",
        "as": "jane",
        "as-groups": ["sre", "oncall"],
        "as-uid": "7",
        "as-user-extra": {"Reason/Why": ["drill"]},
    }
    access = Access(written(tmp_path, user))
    await access.load()

    assert await access.headers() == [
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "sre"),
        ("Impersonate-Group", "oncall"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-reason%2Fwhy", "drill"),
    ]


async def test_issue15_01_who_is_asked_for_on_the_command_line_wins(tmp_path):
    access = Access(written(tmp_path, {"token": "t", "as": "jane"}), None, Acting(user="joe"))
    await access.load()

    assert await access.headers() == [("Authorization", "Bearer t"), ("Impersonate-User", "joe")]


async def test_issue15_01_groups_without_a_user_are_refused(tmp_path):
    with pytest.raises(AccessError, match="need as: beside them"):
        await Access(written(tmp_path, {"token": "t", "as-groups": ["sre"]})).load()


async def test_issue15_01_an_exec_login_that_gives_nothing_stops_the_command(tmp_path):
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit(3)"],
        "interactiveMode": "Never",
    }
    with pytest.raises(AccessError):
        await Access(written(tmp_path, {"exec": login})).load()


async def test_issue15_01_an_exec_login_without_a_token_stops_the_command(tmp_path):
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {},
    }
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(json.dumps(answer))})"],
        "interactiveMode": "Never",
    }
    with pytest.raises(AccessError, match=r"gave no credentials|not valid"):
        await Access(written(tmp_path, {"exec": login})).load()


async def test_issue15_without_a_current_context_the_others_are_named(tmp_path):
    with pytest.raises(AccessError, match=r"no current-context; name one .* --context: x$"):
        await Access(written(tmp_path, {"token": "t"}, current="")).load()


async def test_issue15_01_a_named_context_needs_no_current_one(tmp_path):
    path = written(tmp_path, {"token": "t"}, current="", namespace="gpus")
    access = Access(path, "x")
    await access.load()

    assert access.namespaces("") == ("gpuward", "gpus", "default")


def test_the_first_file_that_names_a_user_wins(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    first = written(one, {"as": "jane"})
    second = written(two, {"as": "joe"})

    assert chosen_context(f"{first}:{second}", None).acting == Acting(user="jane")
    assert chosen_context(f"{tmp_path}/none:{second}", None).acting == Acting(user="joe")


@pytest.mark.parametrize(
    "login", [{"token": "t"}, {"auth-provider": {}}], ids=["plain", "library"]
)
async def test_issue15_01_of_several_files_the_first_current_context_is_in_force(
    tmp_path: Any, login: dict[str, Any]
) -> None:
    """As kubectl: a command must never go to another cluster than `kubectl config
    current-context`.
    """
    files = []
    for name in ("prod", "lab"):
        folder = tmp_path / name
        folder.mkdir()
        path = written(folder, {"token": "t", **login}, current=name)
        config = json.loads((folder / "kubeconfig").read_text())
        config["clusters"] = [{"name": name, "cluster": {"server": f"http://{name}:1"}}]
        config["contexts"] = [{"name": name, "context": {"cluster": name, "user": "u"}}]
        (folder / "kubeconfig").write_text(json.dumps(config))
        files.append(path)
    access = Access(":".join(files))
    await access.load()

    assert access.host == "http://prod:1"
