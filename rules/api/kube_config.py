"""Find the API server and its credentials as kubectl does: a kubeconfig, else the pod's service
account.

Reads files and opens no connection. An invalid configuration raises a `KubeConfigError` with the
file and the remedy. Error messages never contain secrets.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from rules.api import messages
from rules.text.proxy import ProxyError, proxy_for, usable_proxy

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REMEDY: Final = "pass --kubeconfig FILE (or set KUBECONFIG) with a file kubectl can use"
T = TypeVar("T")


class KubeConfigError(Exception):
    """The configuration is invalid; the message has the file and the remedy."""


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate or key: a file name, or data embedded in the kubeconfig."""

    file: str = ""
    data: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.file or self.data)

    @contextmanager
    def path(self) -> Iterator[str]:
        """Provide a file with it, since Python's TLS loads client certificates from files only."""
        if not self.data:
            yield self.file
            return
        # Imported here: in a cluster there is no kubeconfig.
        import tempfile

        with tempfile.NamedTemporaryFile(prefix="gpuward-") as kept:  # made with mode 0600
            kept.write(self.data)
            kept.flush()
            yield kept.name


class Acting(msgspec.Struct, frozen=True, kw_only=True):
    """The user to impersonate; none if `user` is empty.

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


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    """Base of the kubeconfig parts that are read; other fields are skipped."""


class KubeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One API server and one identity. Paths, not contents, where the contents may rotate."""

    server: str
    ca: Material = Material()
    verify: bool = True
    token: str = ""
    token_file: str = ""
    """Takes precedence over `token`, as in kubectl."""
    client_cert: Material = Material()
    client_key: Material = Material()
    login: str = ""
    """Another login method: an exec plugin, an auth provider or a password."""
    acting: Acting = Acting()
    server_name: str = ""
    """The name in the server's certificate, if it is not the host."""
    proxy: str | None = None
    context: str = ""
    kubeconfig: str = ""
    """The file it was read from, or several joined by `:`; "" for a service account."""
    files: tuple[str, ...] = ()
    """All files that it was read from or that it names."""

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context with the CA and the client certificate. Raises OSError."""
        # With a CA, the system's CAs (a megabyte) are not loaded.
        context = ssl.create_default_context(
            cafile=self.ca.file or None, cadata=self.ca.data.decode("ascii", "replace") or None
        )
        if self.client_cert:
            with self.client_cert.path() as certificate, self.client_key.path() as key:
                context.load_cert_chain(certificate, key or None)
        if not self.verify:
            # Requested by insecure-skip-tls-verify in the kubeconfig.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # As lenient as kubectl: cluster CAs often do not comply with RFC 5280.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


class _Cluster(_Part, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(_Part, frozen=True):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: object = None
    auth_provider: object = None
    username: str = ""
    as_user: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}


class _Context(_Part, frozen=True):
    cluster: str = ""
    user: str = ""


class _NamedCluster(_Part, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(_Part, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(_Part, frozen=True):
    name: str
    context: _Context = _Context()


class _KubeconfigFile(_Part, frozen=True):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


def load(
    kubeconfig: str | None, environ: Mapping[str, str] = os.environ, context: str | None = None
) -> KubeConfig:
    """Load the given kubeconfig, else $KUBECONFIG, else the pod's service account, else
    ~/.kube/config. `context` needs a kubeconfig.
    """
    path = kubeconfig or environ.get("KUBECONFIG", "")
    if not path and not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    return from_files(path or str(Path.home() / ".kube" / "config"), environ, context)


def in_cluster(
    environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT
) -> KubeConfig:
    """Load the service account that Kubernetes mounts into the pod."""
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = account / "token", account / "ca.crt"
    for file in (token, ca):
        if not file.exists():
            raise KubeConfigError(
                f"The pod's service account cannot be used: {file} is missing; set "
                "automountServiceAccountToken to true, or pass --kubeconfig FILE."
            )
    bracketed = f"[{host}]" if ":" in host else host
    server = f"https://{bracketed}:{port}"
    return KubeConfig(
        server=server,
        ca=Material(file=str(ca)),
        token_file=str(token),
        proxy=_proxy(server, "", environ),
        files=(str(token), str(ca)),
    )


def from_files(
    path: str | Path, environ: Mapping[str, str] = os.environ, context: str | None = None
) -> KubeConfig:
    """Load the given context of a kubeconfig, else its current one.

    `path` may be several files joined by `:`. As in kubectl, the first definition of a cluster, a
    user, a context or the current context wins, and missing files are skipped.
    """
    path = str(path)
    files = [Path(part).expanduser() for part in path.split(":") if part]
    read = [(file, _read(file)) for file in files if file.is_file()]
    if not read:
        raise KubeConfigError(f"Kubeconfig {path} does not exist or is not a file; {_REMEDY}.")
    contexts = _first((one.name, one.context) for _, found in read for one in found.contexts)
    name = context or next((f.current_context for _, f in read if f.current_context), "")
    if (chosen := contexts.get(name)) is None:
        raise KubeConfigError(_no_context(path, context, tuple(contexts)))
    clusters = _first((c.name, (file, c.cluster)) for file, found in read for c in found.clusters)
    users = _first((u.name, (file, u.user)) for file, found in read for u in found.users)
    at, cluster = clusters.get(chosen.cluster, (files[0], _Cluster()))
    by, user = users.get(chosen.user, (files[0], _User()))
    if not cluster.server:
        raise KubeConfigError(
            f"Kubeconfig {path} names no server for cluster {chosen.cluster!r} of context "
            f"{name!r}; {_REMEDY}."
        )
    server = cluster.server.rstrip("/")
    ca = _material(at, cluster.certificate_authority, cluster.certificate_authority_data)
    certificate = _material(by, user.client_certificate, user.client_certificate_data)
    key = _material(by, user.client_key, user.client_key_data)
    token_file = _relative_to(by, user.token_file)
    named = (token_file, *(one.file for one in (ca, certificate, key)))
    return KubeConfig(
        server=server,
        ca=ca,
        verify=not cluster.insecure_skip_tls_verify,
        token=user.token,
        token_file=token_file,
        client_cert=certificate,
        client_key=key,
        login=_login(user),
        acting=_acting(path, user),
        server_name=cluster.tls_server_name,
        proxy=_proxy(server, cluster.proxy_url, environ),
        context=name,
        kubeconfig=path,
        files=(*map(str, files), *filter(None, named)),
    )


def _read(path: Path) -> _KubeconfigFile:
    # Imported here: in a cluster there is no kubeconfig, and YAML is a megabyte.
    import yaml

    try:
        content = _without_nulls(yaml.safe_load(path.read_bytes()))
        return msgspec.convert({} if content is None else content, _KubeconfigFile)
    except OSError as error:
        raise KubeConfigError(
            f"Kubeconfig {path} cannot be read: {error.strerror}; {_REMEDY}."
        ) from error
    except msgspec.ValidationError as error:
        raise KubeConfigError(f"Kubeconfig {path} is not valid: {error}; {_REMEDY}.") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        # Tagged scalars such as `!!int ""` raise the others. The parser's message is left out,
        # because it quotes the line, which may contain a secret.
        raise KubeConfigError(f"Kubeconfig {path} is not valid YAML; {_REMEDY}.") from None


def _without_nulls(value: Any) -> Any:
    """Return the value without nulls: kubectl writes `users: null` for none."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _first(named: Iterator[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in named:
        found.setdefault(name, value)
    return found


def _no_context(path: str, context: str | None, known: tuple[str, ...]) -> str:
    if not known:
        return f"Kubeconfig {path} is not valid: it describes no context; {_REMEDY}."
    if context:
        return (
            f"Kubeconfig {path} has no context {context}; kubectl config get-contexts lists "
            f"them: {messages.name_list(known)}"
        )
    return (
        f"Kubeconfig {path} has no current-context; set it with kubectl config use-context, or "
        f"name one of its contexts with --context: {messages.name_list(known)}"
    )


def _login(user: _User) -> str:
    if user.exec is not None:
        return "an exec plugin"
    if user.auth_provider is not None:
        return "an auth provider"
    return "a password" if user.username else ""


def _acting(path: str, user: _User) -> Acting:
    extra = tuple((key, one) for key, values in user.as_user_extra.items() for one in values)
    acting = Acting(user=user.as_user, groups=user.as_groups, uid=user.as_uid, extra=extra)
    if acting.headers() and not acting.user:
        raise KubeConfigError(
            f"Kubeconfig {path} is not valid: as-groups, as-uid and as-user-extra need as:; "
            f"{_REMEDY}."
        )
    return acting


def _proxy(server: str, named: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy of the kubeconfig, else that of the environment."""
    try:
        return usable_proxy(named) if named else proxy_for(server, environ)
    except ProxyError as error:
        raise KubeConfigError(f"{server} cannot be reached: {error}.") from error


def _relative_to(config: Path, name: str) -> str:
    """Return the path of `name`, which may be relative to its kubeconfig."""
    return str(config.parent.absolute() / name) if name else ""


def _material(config: Path, name: str, data: str) -> Material:
    """Return the embedded data, else the file, as kubectl does."""
    if not data:
        return Material(file=_relative_to(config, name))
    try:
        return Material(data=base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise KubeConfigError(
            f"Kubeconfig {config} holds data that is not base64; correct the file."
        ) from error
