"""Where the API server is and how to prove who we are: kubeconfig or the pod's service account.

`kubernetes.aio.config` reads both (tokens, token files, client certificates, exec plugins); this
module turns its result into what `remediator.kube.api` needs. All of it is read again when the
server answers 401, when a TLS handshake fails and when one of the files changed; a mounted token
also once a minute. It must never log a credential.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path
from typing import Any

import yaml

from remediator.kube.kubeconfig import Acting, ChosenContext, PlainLogin, chosen_context
from rules.api.sentences import some
from rules.text.proxy import ProxyError, proxy_for, usable_proxy

DEFAULT_NAMESPACE = "gpuward"
"""Where the manifests install us."""
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
_Seen = tuple[tuple[str, int, int, int] | None, ...]
_REMEDY = "pass --kubeconfig FILE (or set KUBECONFIG) with a file kubectl can use"


class AccessError(Exception):
    """No usable configuration; the text is one sentence for a person, with the remedy."""


class Access:
    """Address, TLS and credentials of one API server."""

    def __init__(
        self, kubeconfig: str | None, context: str | None = None, acting: Acting | None = None
    ) -> None:
        """`acting` overrides whom the kubeconfig says to act as."""
        self._kubeconfig = kubeconfig
        self._context = context
        self._asked = acting
        self._chosen = ChosenContext()
        self._configuration: Any = None
        self._plain: PlainLogin | None = None
        """Instead of `_configuration`, where the kubeconfig is of the plain kind."""
        self._tls: ssl.SSLContext | None = None
        self._proxy: str | None = None
        self._token = ""
        self._files: tuple[str, ...] = ()
        """What the configuration in use was read from, mounted tokens apart."""
        self._seen: _Seen = ()

    @property
    def host(self) -> str:
        """Scheme, name and port of the API server."""
        return self._plain.host if self._plain else str(self._configuration.host).rstrip("/")

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What verifies the server and shows our certificate; None for plain HTTP."""
        return self._tls

    @property
    def server_name(self) -> str | None:
        """The name to expect in the server's certificate, where it is not the host."""
        name = self._plain.server_name if self._plain else self._configuration.tls_server_name
        return str(name) if name else None

    @property
    def proxy(self) -> str | None:
        """The proxy the kubeconfig names, else the environment (`HTTPS_PROXY`, `NO_PROXY`)."""
        return self._proxy

    def changed(self) -> bool:
        """Whether a file was replaced since the configuration was read: a kubeconfig, the
        cluster's authority or a client certificate.
        """
        return _seen(self._files) != self._seen

    async def load(self) -> None:
        """Read the configuration (again); AccessError when there is none that works."""
        # Before they are read: what changes meanwhile is noticed afterwards.
        before = {name: _seen((name,)) for name in self._files}
        await self._load()
        # `kubectl config use-context` in another terminal must not move a running command to
        # another cluster.
        self._context = self._context or self._chosen.name or None
        self._files = self._read_from()
        self._seen = tuple(
            one for name in self._files for one in before.get(name) or _seen((name,))
        )

    def _read_from(self) -> tuple[str, ...]:
        if self._plain is not None:
            login = self._plain
            named = [login.authority.file, login.certificate.file, login.key.file]
        else:
            found = self._configuration
            named = [found.ssl_ca_cert, found.cert_file, found.key_file]
        if not self._in_cluster():
            named += kubeconfig_path(self._kubeconfig).split(":")
        return tuple(name for name in named if name)

    def _in_cluster(self) -> bool:
        return not self._kubeconfig and not self._context and _SERVICE_HOST in os.environ

    async def _load(self) -> None:
        in_cluster = self._in_cluster()
        if not in_cluster and self._load_plain():
            return
        if not in_cluster:
            _check_readable(kubeconfig_path(self._kubeconfig), self._context)
        # Imported here: half a second that a plain kubeconfig does not cost.
        from kubernetes.aio.client import Configuration

        configuration = Configuration()
        configuration.host = ""
        if self._kubeconfig is None and not self._context and os.environ.get(_SERVICE_HOST):
            _load_service_account(configuration)
        else:
            path = kubeconfig_path(self._kubeconfig)
            named = self._context
            if named is None and ":" in path and _any_file(path):
                named = _chosen(path, None).name or None
            await _load_kubeconfig(configuration, path, named)
            self._chosen = _chosen(path, named)
            _check_login(configuration, self._chosen)
        try:
            tls = _tls_context(configuration)
        except (OSError, ssl.SSLError) as error:
            raise AccessError(
                f"The certificates named by the cluster configuration cannot be used: {error}; "
                "check certificate-authority, client-certificate and client-key."
            ) from error
        self._configuration, self._tls, self._plain = configuration, tls, None
        self._proxy = _proxy(str(configuration.proxy or ""), self.host)

    def _load_plain(self) -> bool:
        """Whether the kubeconfig says plainly how to log in, and did; the library has the rest."""
        path = kubeconfig_path(self._kubeconfig)
        try:
            chosen = chosen_context(path, self._context)
            if chosen.plain is None:
                return False
            chosen.plain.bearer()
            tls = chosen.plain.tls()
        except (OSError, ssl.SSLError, yaml.YAMLError, ValueError, TypeError, AttributeError):
            return False
        self._plain, self._chosen = chosen.plain, chosen
        self._proxy = _proxy(chosen.plain.proxy, self.host)
        self._tls = _as_lenient_as_kubectl(tls) if tls is not None else None
        return True

    def namespaces(self, given: str) -> tuple[str, ...]:
        """Where the lease may be, best first: only `given` where somebody named one.

        `gpuward` comes before the kubeconfig context's own namespace, so that a replica started
        by hand competes with those installed in the cluster instead of leading beside them.
        """
        if given:
            return (given,)
        found = (DEFAULT_NAMESPACE, self._chosen.namespace, "default")
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def acting(self) -> Acting:
        """Whom the API server is to take us for."""
        return self._asked or self._chosen.acting

    async def headers(self) -> list[tuple[str, str]]:
        """Who we are, and whom we act as; a mounted token is read again every minute."""
        if self._plain is not None:
            return self._plain_headers(self._plain)
        from kubernetes.aio.config import ConfigException

        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError):
            # The kubelet swaps the token file; the old token is still good for minutes.
            token = self._configuration.api_key.get("BearerToken")
        said = [("Authorization", str(token).strip())] if token else []
        return said + self.acting.headers()

    def _plain_headers(self, login: PlainLogin) -> list[tuple[str, str]]:
        with contextlib.suppress(OSError):
            # Whoever swaps the file is at it; the old token is still good.
            self._token = login.bearer()
        said = [("Authorization", f"Bearer {self._token}")] if self._token else []
        return said + self.acting.headers()


def _proxy(named: str, host: str) -> str | None:
    """The proxy that the kubeconfig names, else that of the environment."""
    try:
        return usable_proxy(named) if named else proxy_for(host, os.environ)
    except ProxyError as error:
        raise AccessError(f"{host} cannot be reached: {error}.") from error


def _seen(files: tuple[str, ...]) -> _Seen:
    """Which files these are now: a volume's files are replaced and never written in place."""
    found: list[tuple[str, int, int, int] | None] = []
    for name in files:
        try:
            stat = Path(name).expanduser().stat()
        except OSError:
            found.append(None)
        else:
            found.append((name, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def lacking_client(error: ModuleNotFoundError) -> str:
    """What to say where the client of a whole cluster is not installed; raises any other error."""
    if (error.name or "").partition(".")[0] not in {"aiohttp", "kubernetes", "yarl"}:
        raise error
    return (
        f"This installation has only a part of gpuward and lacks {error.name}; install the rest "
        "with pip install 'gpuward[remediator]', or use the image gpuward-remediator."
    )


def kubeconfig_path(given: str | None) -> str:
    """The kubeconfig as kubectl finds it: the flag, $KUBECONFIG, then ~/.kube/config."""
    return given or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def _load_service_account(configuration: Any) -> None:
    from kubernetes.aio.config import ConfigException, load_incluster_config

    try:
        load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise AccessError(
            f"The pod's service account cannot be used: {error} Set automountServiceAccountToken "
            "to true for the remediator's pod, or pass --kubeconfig FILE."
        ) from error


async def _load_kubeconfig(configuration: Any, path: str, context: str | None) -> None:
    from kubernetes.aio.config import ConfigException, load_kube_config

    if not _any_file(path):
        raise AccessError(f"Kubeconfig {path} does not exist or is not a file; {_REMEDY}.")
    try:
        await load_kube_config(
            config_file=path,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except OSError as error:
        raise AccessError(
            f"Kubeconfig {path} cannot be read: {error.strerror}; {_REMEDY}."
        ) from error
    except (ConfigException, yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError) as e:
        # The library stumbles over malformed files in many ways; all mean the file is not usable.
        said = " ".join(str(e).split())[:200]
        raise AccessError(f"Kubeconfig {path} is not valid: {said}; {_REMEDY}.") from e
    if not configuration.host:
        raise AccessError(f"Kubeconfig {path} names no server for its current context; {_REMEDY}.")


def _check_readable(path: str, context: str | None) -> None:
    """AccessError where there is no file, none of them is a kubeconfig, or nothing says which of
    their contexts is meant: what is plain to see needs no library to find it out.
    """
    if not _any_file(path):
        raise AccessError(f"Kubeconfig {path} does not exist or is not a file; {_REMEDY}.")
    with contextlib.suppress(OSError, yaml.YAMLError, ValueError, TypeError, AttributeError):
        chosen = chosen_context(path, context)
        if not chosen.known:
            raise AccessError(
                f"Kubeconfig {path} is not valid: it describes no context; {_REMEDY}."
            )
        if context and context not in chosen.known:
            raise AccessError(
                f"Kubeconfig {path} has no context {context}; kubectl config get-contexts lists "
                f"them: {some(chosen.known)}"
            )
        if chosen.name not in chosen.known:
            raise AccessError(
                f"Kubeconfig {path} has no current-context; name one of its contexts with "
                f"--context: {some(chosen.known)}"
            )


def _chosen(path: str, context: str | None) -> ChosenContext:
    try:
        return chosen_context(path, context)
    except (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())[:200]
        raise AccessError(
            f"Kubeconfig {path} is not valid: {said}; pass --kubeconfig FILE (or set KUBECONFIG) "
            "with a file kubectl can use."
        ) from error


def _check_login(configuration: Any, chosen: ChosenContext) -> None:
    """A login that gave nothing must not end as a stranger's request."""
    if chosen.exec_login and not (configuration.api_key or configuration.cert_file):
        raise AccessError(
            f"The login of the kubeconfig, {chosen.exec_login[:200]}, gave no credentials; run "
            "kubectl get nodes with the same kubeconfig to see why, and log in again."
        )


def _any_file(path: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in path.split(":") if part)


def _tls_context(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return _as_lenient_as_kubectl(context)


def _as_lenient_as_kubectl(context: ssl.SSLContext) -> ssl.SSLContext:
    """Clusters' own authorities often lack what RFC 5280 strictness asks for."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
