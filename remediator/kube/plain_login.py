"""A kubeconfig of the plain kind, read without the Kubernetes library, which takes half a second.

Plain is: a server, its authority, and a token or a client certificate. Anything else (an exec
login, an auth provider, a password, both a token and its file, a word not known here, a mistake)
is left to the library, which also words the errors.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_CLUSTER: Final = {
    "server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify",
    "tls-server-name", "proxy-url", "disable-compression", "extensions",
}  # fmt: skip
_USER: Final = {
    "token", "tokenFile", "client-certificate", "client-certificate-data", "client-key",
    "client-key-data", "as", "as-uid", "as-groups", "as-user-extra", "extensions",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What TLS needs, as a file or as bytes; the bytes win, as in kubectl."""

    file: str = ""
    data: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.file or self.data)

    @contextmanager
    def path(self) -> Iterator[str]:
        """A file to read it from, gone afterwards where it was none before; never
        world-readable.
        """
        if not self.data:
            yield self.file
            return
        with tempfile.NamedTemporaryFile() as kept:  # made with mode 0600
            kept.write(self.data)
            kept.flush()
            yield kept.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLogin:
    """Address and credentials of one API server."""

    host: str
    server_name: str = ""
    proxy: str = ""
    insecure: bool = False
    authority: Material = Material()
    certificate: Material = Material()
    key: Material = Material()
    token: str = ""
    token_file: str = ""

    def bearer(self) -> str:
        """The token now: a file may be swapped at any time. Raises OSError."""
        if self.token_file:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        return self.token.strip()

    def tls(self) -> ssl.SSLContext | None:
        """What verifies the server; None for plain HTTP. Raises OSError and ssl.SSLError."""
        if not self.host.startswith("https"):
            return None
        with self.authority.path() as authority:
            context = ssl.create_default_context(cafile=authority or None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            with self.certificate.path() as certificate, self.key.path() as key:
                context.load_cert_chain(certificate, keyfile=key or None)
        return context


def plain_login(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> PlainLogin | None:
    """The login that two sections of a kubeconfig in `folder` describe; None where not plain."""
    server = cluster.get("server")
    known = cluster.keys() <= _CLUSTER and user.keys() <= _USER
    if not known or not isinstance(server, str) or not server:
        return None
    words = [value for key, value in {**cluster, **user}.items() if key not in _NO_WORDS]
    if any(not isinstance(value, str) for value in words):
        return None
    insecure = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool) or (user.get("token") and user.get("tokenFile")):
        return None
    try:
        return PlainLogin(
            host=server.rstrip("/"),
            server_name=cluster.get("tls-server-name", ""),
            proxy=cluster.get("proxy-url", ""),
            insecure=insecure,
            authority=_material(cluster, "certificate-authority", folder),
            certificate=_material(user, "client-certificate", folder),
            key=_material(user, "client-key", folder),
            token=user.get("token", ""),
            token_file=_beside(user.get("tokenFile", ""), folder),
        )
    except ValueError:
        return None


_NO_WORDS: Final = frozenset(
    {"insecure-skip-tls-verify", "disable-compression", "extensions", "as", "as-uid", "as-groups",
     "as-user-extra"}
)  # fmt: skip
"""Keys whose value is no text, or is read elsewhere."""


def _material(section: dict[str, Any], key: str, folder: Path) -> Material:
    data = section.get(f"{key}-data", "")
    return Material(
        file=_beside(section.get(key, ""), folder),
        data=base64.b64decode(data, validate=True) if data else b"",
    )


def _beside(name: str, folder: Path) -> str:
    """A relative name is relative to the kubeconfig it stands in."""
    return str(folder / name) if name else ""
