"""What the Kubernetes library leaves out of a kubeconfig: the chosen context, and as whom we act.

The library authenticates; it knows no impersonation (`as:`), goes on without credentials when an
exec login gave none, and of several files takes the last one's `current-context`. Read as kubectl
does: the first file that names something wins, `current-context` too.

A plain kubeconfig is read without the library, which takes half a second. Plain is: a server, its
authority, and a token or a client certificate. Anything else (an exec login, an auth provider, a
password, both a token and its file, a word not known here, a mistake) is left to the library,
which also words the errors.
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
from urllib.parse import quote

import yaml

MOST_GROUPS: Final = 64
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Whom the API server is to take us for; nobody else where `user` is empty.

    Kubernetes refuses groups, uid or extra without a user.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """The impersonation headers of the Kubernetes API, one per group and extra value."""
        found = [("Impersonate-User", self.user)] if self.user else []
        found += [("Impersonate-Group", group) for group in self.groups]
        found += [("Impersonate-Uid", self.uid)] if self.uid else []
        return found + [
            (f"Impersonate-Extra-{quote(key.lower(), safe='')}", value)
            for key, value in self.extra
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenContext:
    """The context in force, as far as we need it."""

    name: str = ""
    namespace: str = ""
    acting: Acting = Acting()
    exec_login: str = ""
    """The command of an exec login; empty where the user section has none."""
    plain: PlainLogin | None = None
    """How to log in, where the files say it plainly; None: only the library knows."""
    known: tuple[str, ...] = ()
    """The names of all contexts there are."""


def chosen_context(path: str, name: str | None) -> ChosenContext:
    """The named context, else the current one; an empty one where the files name none.

    `path` may be several files joined by `:`. Raises ValueError for an `as-groups` or
    `as-user-extra` without `as`: the API server would refuse every request. Raises OSError and
    yaml.YAMLError for files that cannot be read; the library reads them first.
    """
    contexts: dict[str, Any] = {}
    users: dict[str, Any] = {}
    clusters: dict[str, Any] = {}
    folders: dict[tuple[str, str], Path] = {}
    current = ""
    for part in path.split(":"):
        if not part or not (file := Path(part).expanduser()).exists():
            continue
        said = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(said, dict):
            continue
        sections = (("contexts", contexts), ("users", users), ("clusters", clusters))
        for section, found in sections:
            for item in said.get(section) or ():
                found.setdefault(str(item.get("name")), item.get(section[:-1]) or {})
                folders.setdefault((section, str(item.get("name"))), file.parent.absolute())
        current = current or str(said.get("current-context") or "")
    context = contexts.get(name or current) or {}
    user = users.get(str(context.get("user"))) or {}
    login = user.get("exec") or {}
    cluster, its = str(context.get("cluster")), str(context.get("user"))
    plain = None
    if cluster in clusters and its in users:
        homes = {folders["clusters", cluster], folders["users", its]}
        # Of two folders a relative name in either could be meant.
        if len(homes) == 1:
            plain = plain_login(clusters[cluster], users[its], homes.pop())
    return ChosenContext(
        name=name or current,
        namespace=str(context.get("namespace") or ""),
        acting=_acting(user),
        exec_login=str(login.get("command") or "") if isinstance(login, dict) else "",
        plain=plain,
        known=tuple(contexts),
    )


def _acting(user: dict[str, Any]) -> Acting:
    extra = user.get("as-user-extra") or {}
    acting = Acting(
        user=str(user.get("as") or ""),
        groups=tuple(str(group) for group in user.get("as-groups") or ())[:MOST_GROUPS],
        uid=str(user.get("as-uid") or ""),
        extra=tuple((str(key), str(one)) for key, values in extra.items() for one in values or ()),
    )
    if acting.headers() and not acting.user:
        raise ValueError("as-groups, as-uid and as-user-extra need as: beside them")
    return acting


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
