"""Kubeconfigs as people have them, and what is said about those that cannot be used."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.kube.client import Kube
from agent.kube.config import KubeConfigError, from_file, in_cluster, load

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
    config = from_file(path)
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
    config = from_file(path)
    assert config.ca.file == str(tmp_path / "ca.pem")
    assert config.client_cert.file == str(tmp_path / "me.pem")
    assert config.client_key.file == "/abs/me.key"
    assert config.token_file == str(tmp_path / "token")


def test_verification_is_off_only_when_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, cluster={"server": SERVER, "insecure-skip-tls-verify": True})
    assert not from_file(path).verify


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("a: [", "is not YAML", id="no yaml"),
        pytest.param('a: !!int ""', "is not YAML", id="an empty number"),
        pytest.param("a: !!bool foo", "is not YAML", id="no truth"),
        pytest.param("[]", "is not a kubeconfig", id="no mapping"),
        pytest.param("current-context: x", "has no context 'x'", id="no context"),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
            "has no server for cluster 'c'",
            id="no cluster",
        ),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(
    tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(KubeConfigError, match=said) as raised:
        from_file(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        pytest.param({"exec": {"command": "aws"}}, "from a program", id="exec"),
        pytest.param({"auth-provider": {"name": "gcp"}}, "from a program", id="auth provider"),
        pytest.param({"username": "me", "password": "pw"}, "password", id="password"),
        pytest.param({"client-key-data": "%%%"}, "not base64", id="no base64"),
    ],
)
def test_identities_that_cannot_be_used_are_refused(
    tmp_path: Path, user: dict[str, Any], said: str
) -> None:
    path = write(tmp_path, cluster={"server": SERVER}, user=user)
    with pytest.raises(KubeConfigError, match=said):
        from_file(path)


def test_a_secret_in_a_broken_file_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users: [{name: u, user: {token: s3cr3t}}\n  : : [")
    with pytest.raises(KubeConfigError) as raised:
        from_file(path)
    assert "s3cr3t" not in str(raised.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="cannot be read"):
        load(str(tmp_path / "nothing"), {})


def test_the_pods_own_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeConfigError, match="token is missing"):
        in_cluster(environ, tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("PEM")
    config = in_cluster(environ, tmp_path)
    assert config.server == "https://[fd00::1]:443"
    assert config.token_file == str(tmp_path / "token")


def test_nothing_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KubeConfigError, match="--kubeconfig FILE"):
        load("", {})


def test_no_room_for_embedded_certificates_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    certificate = {"client-certificate-data": "YQ==", "client-key-data": "YQ=="}
    config = from_file(write(tmp_path, cluster={"server": SERVER}, user=certificate))
    with pytest.raises(KubeConfigError, match="No space left on device"):
        Kube(config, user_agent="test")


def test_the_proxy_is_the_kubeconfigs_or_the_environments(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "env.example:1", "NO_PROXY": "10.96.0.0/12"}
    path = write(tmp_path, cluster={"server": SERVER})
    assert from_file(path, environ).proxy == "http://env.example:1"
    assert from_file(path, {}).proxy is None
    path = write(tmp_path, cluster={"server": SERVER, "proxy-url": "http://own.example:2"})
    assert from_file(path, environ).proxy == "http://own.example:2"
    path = write(tmp_path, cluster={"server": SERVER, "proxy-url": "socks5://own.example:2"})
    with pytest.raises(KubeConfigError, match="socks5 is not supported"):
        from_file(path, environ)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("PEM")
    service = {**environ, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert in_cluster(service, tmp_path).proxy is None


def test_nesting_without_end_is_no_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("a: " + "[" * 5_000)
    with pytest.raises(KubeConfigError, match="is not YAML"):
        from_file(path)
