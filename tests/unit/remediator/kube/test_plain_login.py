"""A plain kubeconfig is read as the Kubernetes library reads it; anything else is left to that."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remediator.kube.access import Access
from remediator.kube.kubeconfig import PlainLogin, plain_login
from tests.support.remediator.kubectl_cluster import REPOSITORY, cluster

SERVER = {"server": "http://127.0.0.1:1/"}


def login(user: dict[str, Any] | None = None, **changes: Any) -> PlainLogin | None:
    return plain_login({**SERVER, **changes}, user or {}, Path("/etc/kube"))


@pytest.mark.parametrize(
    ("user", "changes"),
    [
        pytest.param({"exec": {"command": "aws"}}, {}, id="exec login"),
        pytest.param({"auth-provider": {"name": "oidc"}}, {}, id="auth provider"),
        pytest.param({"username": "a", "password": "b"}, {}, id="password"),
        pytest.param({"token": "a", "tokenFile": "b"}, {}, id="token said twice"),
        pytest.param({"token": 7}, {}, id="a token that is no text"),
        pytest.param({"new-way": "x"}, {}, id="a word of a newer kubectl"),
        pytest.param({}, {"server": ""}, id="no server"),
        pytest.param({}, {"insecure-skip-tls-verify": "no"}, id="a yes that is no yes"),
        pytest.param({}, {"certificate-authority-data": "%%"}, id="not base64"),
    ],
)
def test_what_is_not_plain_is_left_to_the_library(user, changes):
    assert login(user, **changes) is None


def test_a_plain_login_is_what_its_sections_say():
    data = base64.b64encode(b"PEM").decode()
    found = login(
        {"tokenFile": "token", "client-certificate-data": data, "client-key": "/abs/key"},
        **{"certificate-authority": "ca.crt", "tls-server-name": "api", "proxy-url": "http://p"},
    )
    assert found is not None
    assert (found.host, found.server_name, found.proxy) == (
        "http://127.0.0.1:1",
        "api",
        "http://p",
    )
    assert (found.token_file, found.authority.file) == ("/etc/kube/token", "/etc/kube/ca.crt")
    assert (found.certificate.data, found.key.file) == (b"PEM", "/abs/key")


async def test_a_token_file_is_read_at_every_request(tmp_path):
    (tmp_path / "token").write_text("first\n")
    config = {
        "clusters": [{"name": "c", "cluster": SERVER}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    access = Access(str(tmp_path / "kubeconfig"))
    await access.load()
    assert await access.headers() == [("Authorization", "Bearer first")]
    (tmp_path / "token").write_text("second")
    assert await access.headers() == [("Authorization", "Bearer second")]
    (tmp_path / "token").unlink()
    assert await access.headers() == [("Authorization", "Bearer second")]


HEAVY = ("kubernetes", "structlog", "rich", "pydantic")
OF_OTHER_COMMANDS = (
    "rules.session.decide",
    *("remediator.kubectl.why", "remediator.kubectl.plan"),
)
LOADED = """
import sys
from remediator.kubectl.cli import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
print([name for name in sys.argv[1].split(",") if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        pytest.param(("--help",), (*HEAVY, "asyncio", "aiohttp", "msgspec", "yaml"), id="help"),
        pytest.param(("fleet",), (*HEAVY, *OF_OTHER_COMMANDS), id="fleet"),
    ],
)
def test_a_command_reads_nothing_heavy_that_it_does_not_need(tmp_path, words, heavy):
    """Not a timed assertion: what costs the half second is named."""
    with cluster(tmp_path) as kubectl:
        given = ["--kubeconfig", str(kubectl.kubeconfig), *words]
        done = subprocess.run(
            [sys.executable, "-c", LOADED, ",".join(heavy), *given],
            capture_output=True, text=True, check=False, cwd=REPOSITORY,
        )  # fmt: skip
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
