"""Impersonation and login of a kubeconfig; a failed login never sends an anonymous request."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from remediator.kube.access import Access
from rules.api.kube_config import Acting, KubeConfigError


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

    assert access.headers() == [
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

    assert access.headers() == [("Authorization", "Bearer t"), ("Impersonate-User", "joe")]


PLUGIN = """
import json, os, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert asked["kind"] == "ExecCredential"
print(json.dumps({**asked, "status": {"token": os.environ["X"]}}))
"""


def login(program: str, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", program],
        "interactiveMode": "Never",
        **changes,
    }


async def test_a_login_program_gives_the_token(tmp_path):
    asked = login(PLUGIN, env=[{"name": "X", "value": "secret"}])
    access = Access(written(tmp_path, {"exec": asked}))
    await access.load()
    assert access.headers() == [("Authorization", "Bearer secret")]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"exec": login("import sys; sys.exit(3)")}, "exec plugin"),
        ({"exec": login('print(\'{"status": {"token": null}}\')')}, "exec plugin"),
        ({"exec": login("print('hello')")}, "exec plugin"),
        ({"exec": login("", command="/nowhere/login")}, "exec plugin"),
        ({"auth-provider": {"name": "oidc", "config": {}}}, "auth provider"),
    ],
)
async def test_a_login_that_gives_nothing_stops_the_command(tmp_path, asked, why):
    with pytest.raises(KubeConfigError, match=f"{why} gave no credentials"):
        await Access(written(tmp_path, asked)).load()


async def test_a_password_logs_in(tmp_path):
    access = Access(written(tmp_path, {"username": "ann", "password": "secret"}))
    await access.load()
    assert access.headers() == [("Authorization", "Basic YW5uOnNlY3JldA==")]


async def test_a_token_file_that_was_replaced_is_read_again(tmp_path):
    (tmp_path / "token").write_text("first\n")
    access = Access(written(tmp_path, {"tokenFile": "token"}))
    await access.load()
    assert access.headers() == [("Authorization", "Bearer first")]
    (tmp_path / "token").unlink()
    assert access.changed()
    with pytest.raises(KubeConfigError, match="token"):
        await access.load()
    assert access.headers() == [("Authorization", "Bearer first")]
    (tmp_path / "token").write_text("second")
    await access.load()
    assert access.headers() == [("Authorization", "Bearer second")]
    assert not access.changed()


async def test_a_named_context_needs_no_current_one(tmp_path):
    access = Access(written(tmp_path, {"token": "t"}, current=""), "x")
    await access.load()
    assert access.host == "http://127.0.0.1:1"


def replace_file(path: str) -> None:
    """Another file of the same content, as kubelet swaps a volume's files."""
    partial = Path(f"{path}.partial")
    partial.write_text(Path(path).read_text())
    partial.rename(path)


async def test_a_file_that_was_replaced_is_noticed(tmp_path):
    path = written(tmp_path, {"token": "t"})
    access = Access(path)
    await access.load()
    assert not access.changed()
    replace_file(path)
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
