"""Kubeconfigs of clusters, and messages about invalid ones."""

import base64
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.publish.client import Kube
from rules.api.kube_config import Acting, KubeConfigError, from_files, in_cluster, load

SERVER = "https://api.example:6443"


def write(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    path = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
        "preferences": {},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_token_and_embedded_authority(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    path = write(
        tmp_path,
        cluster={"server": f"{SERVER}/", "certificate-authority-data": data},
        user={"token": "secret"},
    )
    config = from_files(path)
    assert (config.server, config.token, config.verify) == (SERVER, "secret", True)
    assert config.ca.data == b"PEM"
    with config.ca.path() as file:
        assert Path(file).read_bytes() == b"PEM"
        assert Path(file).stat().st_mode & 0o077 == 0
    assert not Path(file).exists()


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        cluster={"server": SERVER, "certificate-authority": "ca.pem"},
        user={"client-certificate": "me.pem", "client-key": "/abs/me.key", "tokenFile": "token"},
    )
    config = from_files(path)
    assert config.ca.file == str(tmp_path / "ca.pem")
    assert config.client_cert.file == str(tmp_path / "me.pem")
    assert config.client_key.file == "/abs/me.key"
    assert config.token_file == str(tmp_path / "token")


def test_verification_is_off_only_when_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, cluster={"server": SERVER, "insecure-skip-tls-verify": True})
    assert not from_files(path).verify


@pytest.mark.parametrize(
    ("content", "context", "expected"),
    [
        pytest.param(None, None, "does not exist", id="missing"),
        pytest.param("a: [", None, "is not valid YAML", id="no yaml"),
        pytest.param('a: !!int ""', None, "is not valid YAML", id="an empty number"),
        pytest.param("a: !!bool foo", None, "is not valid YAML", id="no truth"),
        pytest.param("a: " + "[" * 5_000, None, "is not valid YAML", id="nesting without end"),
        pytest.param("[]", None, "is not valid", id="no mapping"),
        pytest.param("some text", None, "is not valid", id="some text"),
        pytest.param("{users: [{name: u, user: {token: 7}}]}", None, r"users\[0\]", id="type"),
        pytest.param("", None, "describes no context", id="empty"),
        pytest.param("contexts: null", None, "describes no context", id="null, as kubectl writes"),
        pytest.param("contexts: [{name: a}]", "b", "has no context b.* a$", id="unknown"),
        pytest.param("contexts: [{name: a}]", None, "no current-context.* a$", id="none chosen"),
        pytest.param(
            "{current-context: b, contexts: [{name: a}]}", None, "no current-context", id="gone"
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
            None,
            "no server for cluster 'c'",
            id="no cluster",
        ),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(
    tmp_path: Path, content: str | None, context: str | None, expected: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KubeConfigError, match=expected) as raised:
        load(str(path), {}, context)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({"client-key-data": "%%%"}, "not base64", id="no base64"),
        pytest.param({"as-groups": ["sre"]}, "need as:;", id="groups of nobody"),
    ],
)
def test_identities_that_cannot_be_used_are_refused(
    tmp_path: Path, user: dict[str, Any], expected: str
) -> None:
    path = write(tmp_path, cluster={"server": SERVER}, user=user)
    with pytest.raises(KubeConfigError, match=expected):
        from_files(path)


def test_the_agent_runs_no_login_program(tmp_path: Path) -> None:
    login = {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}
    path = write(tmp_path, cluster={"server": SERVER}, user={"exec": login})
    with pytest.raises(KubeConfigError, match="an exec plugin"):
        Kube(from_files(path), user_agent="test")


def test_of_several_files_the_first_that_names_something_wins(tmp_path: Path) -> None:
    """As kubectl: a command must never go to another cluster than `kubectl config
    current-context`.
    """
    files = []
    for name in ("prod", "lab"):
        (folder := tmp_path / name).mkdir()
        user = {"as": name, "client-key": f"{name}.key"}
        text = write(folder, cluster={"server": f"https://{name}"}, user=user).read_text()
        (folder / "config").write_text(text.replace("name: here", f"name: {name}").replace(
            "current-context: here", f"current-context: {name}"))  # fmt: skip
        files.append(folder / "config")
    found = from_files(":".join(map(str, (tmp_path / "none", *files))))
    assert (found.server, found.context, found.acting) == (
        "https://prod",
        "prod",
        Acting(user="prod"),
    )
    assert found.client_key.file == str(tmp_path / "prod" / "prod.key")
    assert from_files(":".join(map(str, files)), {}, "lab").context == "lab"


def test_a_secret_in_a_broken_file_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users: [{name: u, user: {token: s3cr3t}}\n  : : [")
    with pytest.raises(KubeConfigError) as raised:
        from_files(path)
    assert "s3cr3t" not in str(raised.value)


def test_the_pods_own_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeConfigError, match="token is missing"):
        in_cluster(environ, tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("PEM")
    config = in_cluster(environ, tmp_path)
    assert config.server == "https://[fd00::1]:443"
    assert config.token_file == str(tmp_path / "token")


def test_flag_variable_pod_and_home_are_asked_in_this_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("flag", "variable", ".kube"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, cluster={"server": f"http://{name}"})
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    both = {**pod, "KUBECONFIG": str(tmp_path / "variable/config")}
    assert load(str(tmp_path / "flag/config"), both).server == "http://flag"
    assert load("", both).server == "http://variable"
    with pytest.raises(KubeConfigError, match="set automountServiceAccountToken to true"):
        load("", pod)
    assert load("", pod, "here").server == "http://.kube"
    assert load("", {}).server == "http://.kube"


@contextmanager
def no_room() -> Iterator[None]:
    """Every write to a file fails, as on a full file system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_for_embedded_certificates_is_one_sentence(
    tmp_path: Path,
) -> None:
    certificate = {"client-certificate-data": "YQ==", "client-key-data": "YQ=="}
    config = from_files(write(tmp_path, cluster={"server": SERVER}, user=certificate))
    with no_room(), pytest.raises(KubeConfigError, match="File too large"):
        Kube(config, user_agent="test")


def test_the_proxy_is_the_kubeconfigs_or_the_environments(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "env.example:1", "NO_PROXY": "10.96.0.0/12"}
    path = write(tmp_path, cluster={"server": SERVER})
    assert from_files(path, environ).proxy == "http://env.example:1"
    assert from_files(path, {}).proxy is None
    path = write(tmp_path, cluster={"server": SERVER, "proxy-url": "http://own.example:2"})
    assert from_files(path, environ).proxy == "http://own.example:2"
    path = write(tmp_path, cluster={"server": SERVER, "proxy-url": "socks5://own.example:2"})
    with pytest.raises(KubeConfigError, match="socks5 is not supported"):
        from_files(path, environ)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("PEM")
    service = {**environ, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert in_cluster(service, tmp_path).proxy is None
