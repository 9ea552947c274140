"""Kubeconfig files: written for kubectl and our programs, read by the HTTP client.

Only what a test cluster or a control plane under test needs: server, CA, token, client
certificate.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


def kubeconfig_text(
    url: str, *, ca_pem: bytes | None = None, token: str | None = None, namespace: str = "default"
) -> str:
    """A kubeconfig with one context."""
    cluster: dict[str, Any] = {"server": url}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "simulated",
        "clusters": [{"name": "simulated", "cluster": cluster}],
        "contexts": [
            {
                "name": "simulated",
                "context": {"cluster": "simulated", "user": "admin", "namespace": namespace},
            }
        ],
        "users": [{"name": "admin", "user": {"token": token} if token else {}}],
    }
    return yaml.safe_dump(config, sort_keys=False)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server."""

    url: str
    token: str | None = None
    tls: ssl.SSLContext | None = None


def read_kubeconfig(path: Path) -> Access:
    """The access that the current context of a kubeconfig gives; KeyError when it is
    incomplete.
    """
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"]).get("user") or {}
    token = user.get("token")
    if token is None and user.get("tokenFile"):
        token = Path(user["tokenFile"]).read_text(encoding="utf-8").strip()
    url = cluster["server"].rstrip("/")
    tls = _tls(cluster, user) if url.startswith("https:") else None
    return Access(url, token, tls)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise KeyError(f"the kubeconfig has no entry named {name}")


def _data(source: dict[str, Any], field: str) -> bytes | None:
    if encoded := source.get(f"{field}-data"):
        return base64.b64decode(encoded)
    if path := source.get(field):
        return Path(path).read_bytes()
    return None


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    ca = _data(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=ca.decode() if ca else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
    if certificate and key:
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder) / "client.pem"
            pem.touch(mode=0o600)
            pem.write_bytes(key + b"\n" + certificate)
            context.load_cert_chain(pem)
    return context
