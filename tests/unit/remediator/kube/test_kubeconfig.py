"""A kubeconfig says whom we act as, and a login that gave nothing is never a stranger's
request.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
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


async def test_requests_act_as_the_user_that_the_kubeconfig_names(tmp_path):
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


async def test_who_is_asked_for_on_the_command_line_wins(tmp_path):
    access = Access(written(tmp_path, {"token": "t", "as": "jane"}), None, Acting(user="joe"))
    await access.load()

    assert await access.headers() == [("Authorization", "Bearer t"), ("Impersonate-User", "joe")]


async def test_groups_without_a_user_are_refused(tmp_path):
    with pytest.raises(AccessError, match="need as: beside them"):
        await Access(written(tmp_path, {"token": "t", "as-groups": ["sre"]})).load()


async def test_an_exec_login_that_gives_nothing_stops_the_command(tmp_path):
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit(3)"],
        "interactiveMode": "Never",
    }
    with pytest.raises(AccessError):
        await Access(written(tmp_path, {"exec": login})).load()


async def test_an_exec_login_without_a_token_stops_the_command(tmp_path):
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


async def test_without_a_current_context_the_others_are_named(tmp_path):
    with pytest.raises(AccessError, match=r"no current-context; name one .* --context: x$"):
        await Access(written(tmp_path, {"token": "t"}, current="")).load()


async def test_a_named_context_needs_no_current_one(tmp_path):
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
async def test_of_several_files_the_first_current_context_is_in_force(
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


def towards(path: str, **cluster: str) -> str:
    """The kubeconfig with another cluster section."""
    config = json.loads(Path(path).read_text())
    config["clusters"][0]["cluster"] = {key.replace("_", "-"): cluster[key] for key in cluster}
    Path(path).write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({}, "http://env.example:1", id="the environment's"),
        pytest.param({"proxy_url": "http://own:2"}, "http://own:2", id="the kubeconfig's"),
    ],
)
async def test_the_proxy_is_the_kubeconfigs_or_the_environments(
    tmp_path, monkeypatch, own, expected
):
    monkeypatch.setenv("HTTPS_PROXY", "env.example:1")
    path = towards(written(tmp_path, {"token": "t"}), server="https://10.96.0.1:443", **own)
    access = Access(path)
    await access.load()
    assert access.proxy == expected
    monkeypatch.setenv("NO_PROXY", "10.96.0.0/12")
    await access.load()
    assert access.proxy == own.get("proxy_url")


async def test_a_proxy_of_another_kind_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://u:s3cret@proxy:1080")
    path = towards(written(tmp_path, {"token": "t"}), server="https://api.example")
    with pytest.raises(AccessError, match="socks5 is not supported") as raised:
        await Access(path).load()
    assert "s3cret" not in str(raised.value)


def replace_whole(path: str) -> None:
    """Another file of the same content, as kubelet swaps a volume's files."""
    partial = Path(f"{path}.partial")
    partial.write_text(Path(path).read_text())
    partial.rename(path)


async def test_a_file_that_was_replaced_is_noticed(tmp_path):
    path = written(tmp_path, {"token": "t"})
    access = Access(path)
    await access.load()
    assert not access.changed()
    replace_whole(path)
    assert access.changed()
    await access.load()
    assert not access.changed()


def use_context(path: str, name: str) -> None:
    """Add a context of another cluster and make it the current one."""
    config = json.loads(Path(path).read_text())
    config["clusters"].append({"name": "d", "cluster": {"server": "http://127.0.0.1:2"}})
    config["contexts"].append({"name": name, "context": {"cluster": "d", "user": "u"}})
    config["current-context"] = name
    Path(path).write_text(json.dumps(config))


async def test_another_current_context_moves_no_running_command_to_another_cluster(tmp_path):
    path = written(tmp_path, {"token": "t"})
    access = Access(path)
    await access.load()
    use_context(path, "y")
    await access.load()
    assert access.host == "http://127.0.0.1:1"
    fresh = Access(path)
    await fresh.load()
    assert fresh.host == "http://127.0.0.1:2"
