"""Where the API server is and how to speak to it: in-cluster files or a kubeconfig.

Called at start and again when the API server refuses the agent or shows a certificate that it
does not know: files rotate. Reads files, opens no connection. Everything that is wrong with them
is one sentence in a `KubeConfigError`; secrets never appear in it.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from rules.text.proxy import ProxyError, proxy_for, usable_proxy

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeConfigError(Exception):
    """The configuration cannot be used; the text names the file and the remedy."""


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate or key: a file's name, or what the kubeconfig itself holds."""

    file: str = ""
    data: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.file or self.data)

    @contextmanager
    def path(self) -> Iterator[str]:
        """A file to read it from; Python's TLS takes client certificates from files only."""
        if not self.data:
            yield self.file
            return
        # Imported here: in a cluster there is no kubeconfig.
        import tempfile

        with tempfile.NamedTemporaryFile(prefix="gpuward-") as kept:  # made with mode 0600
            kept.write(self.data)
            kept.flush()
            yield kept.name


class KubeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One API server and one identity. Paths, not contents, where the contents may rotate."""

    server: str
    ca: Material = Material()
    verify: bool = True
    token: str = ""
    token_file: str = ""
    client_cert: Material = Material()
    client_key: Material = Material()
    server_name: str = ""
    proxy: str | None = None

    def tls(self) -> ssl.SSLContext:
        """What verifies the server and shows our certificate. Raises OSError."""
        # Only without an authority are the machine's own read: a megabyte of them.
        context = ssl.create_default_context(
            cafile=self.ca.file or None, cadata=self.ca.data.decode("ascii", "replace") or None
        )
        if self.client_cert:
            with self.client_cert.path() as certificate, self.client_key.path() as key:
                context.load_cert_chain(certificate, key or None)
        if not self.verify:
            # Asked for by name in the kubeconfig (insecure-skip-tls-verify).
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # As lenient as kubectl: clusters' own authorities often lack what RFC 5280 asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    """What is read of a kubeconfig; its other fields are skipped."""


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


def load(kubeconfig: str, environ: Mapping[str, str] = os.environ) -> KubeConfig:
    """The file where one is named, else $KUBECONFIG, else the pod's own service account."""
    path = kubeconfig or environ.get("KUBECONFIG", "")
    if path:
        return from_file(Path(path), environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return from_file(default, environ)
    raise KubeConfigError(
        "no API server is known: not in a pod and no kubeconfig;"
        " give --kubeconfig FILE, or use 'gpuward-agent check' for a look without Kubernetes"
    )


def in_cluster(
    environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT
) -> KubeConfig:
    """The service account that Kubernetes mounts into the pod."""
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = account / "token", account / "ca.crt"
    for file in (token, ca):
        if not file.exists():
            raise KubeConfigError(
                f"{file} is missing: set automountServiceAccountToken, or give --kubeconfig FILE"
            )
    bracketed = f"[{host}]" if ":" in host else host
    server = f"https://{bracketed}:{port}"
    return KubeConfig(
        server=server,
        ca=Material(file=str(ca)),
        token_file=str(token),
        proxy=_proxy(server, "", environ),
    )


def from_file(path: Path, environ: Mapping[str, str] = os.environ) -> KubeConfig:
    """The current context of a kubeconfig."""
    # Imported here: in a cluster there is no kubeconfig, and YAML is a megabyte.
    import yaml

    try:
        content = msgspec.convert(yaml.safe_load(path.read_bytes()), _KubeconfigFile)
    except OSError as error:
        raise KubeConfigError(
            f"kubeconfig {path} cannot be read ({error.strerror}): name a readable file"
        ) from error
    except msgspec.ValidationError as error:
        raise KubeConfigError(f"kubeconfig {path} is not a kubeconfig: {error}") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        # All but the first: what the constructors of tagged scalars raise, such as `!!int ""`.
        # Not chained into the text: the parser quotes the line, which may hold a secret.
        raise KubeConfigError(f"kubeconfig {path} is not YAML: correct the file") from None
    contexts = {entry.name: entry.context for entry in content.contexts}
    context = contexts.get(content.current_context)
    if context is None:
        raise KubeConfigError(
            f"kubeconfig {path} has no context {content.current_context!r}:"
            " set current-context to one of its contexts"
        )
    clusters = {entry.name: entry.cluster for entry in content.clusters}
    users = {entry.name: entry.user for entry in content.users}
    cluster = clusters.get(context.cluster)
    if cluster is None or not cluster.server:
        raise KubeConfigError(
            f"kubeconfig {path} has no server for cluster {context.cluster!r}: add it"
        )
    return _identity(path, cluster, users.get(context.user, _User()), environ)


def _identity(
    path: Path, cluster: _Cluster, user: _User, environ: Mapping[str, str]
) -> KubeConfig:
    if user.exec is not None or user.auth_provider is not None:
        raise KubeConfigError(
            f"kubeconfig {path} gets its credentials from a program, which the agent does not"
            " run: use a token, a token file or a client certificate"
        )
    if user.username:
        raise KubeConfigError(
            f"kubeconfig {path} uses a password, which Kubernetes no longer accepts:"
            " use a token, a token file or a client certificate"
        )
    server = cluster.server.rstrip("/")
    authority = cluster.certificate_authority, cluster.certificate_authority_data
    return KubeConfig(
        server=server,
        ca=_material(path, *authority),
        verify=not cluster.insecure_skip_tls_verify,
        token=user.token,
        token_file=_beside(path, user.token_file),
        client_cert=_material(path, user.client_certificate, user.client_certificate_data),
        client_key=_material(path, user.client_key, user.client_key_data),
        server_name=cluster.tls_server_name,
        proxy=_proxy(server, cluster.proxy_url, environ),
    )


def _proxy(server: str, named: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the kubeconfig names, else that of the environment."""
    try:
        return usable_proxy(named) if named else proxy_for(server, environ)
    except ProxyError as error:
        raise KubeConfigError(f"{server} cannot be reached: {error}") from error


def _beside(config: Path, name: str) -> str:
    """A relative name is relative to the kubeconfig."""
    return str(config.parent / name) if name else ""


def _material(config: Path, name: str, data: str) -> Material:
    """What the kubeconfig names or embeds; data wins over a name, as in kubectl."""
    if not data:
        return Material(file=_beside(config, name))
    try:
        return Material(data=base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise KubeConfigError(
            f"kubeconfig {config} holds data that is not base64: correct the file"
        ) from error
