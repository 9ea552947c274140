"""Read and renew the credentials for the API server, and send them as request headers.

`rules.api.kube_config` finds them. For an exec plugin, an auth provider or a password, this module
logs in with the Kubernetes client. It reads everything again after a 401, after a failed TLS
handshake and when one of the files changed. It must never log a credential.
"""

import asyncio
import os
import ssl
from pathlib import Path

import msgspec

from rules.api.kube_config import Acting, KubeConfig, KubeConfigError, Material, load
from rules.text.printable import printable

_LOGIN_S = 120.0
"""An operator may have to confirm a login in a browser."""
_Seen = tuple[tuple[str, int, int, int] | None, ...]


class Access:
    """Address, TLS and credentials of one API server."""

    def __init__(
        self, kubeconfig: str | None, context: str | None = None, acting: Acting | None = None
    ) -> None:
        """`acting` overrides the user that the kubeconfig impersonates."""
        self._kubeconfig = kubeconfig
        self._context = context
        self._asked = acting
        self._config = KubeConfig(server="")
        self._tls: ssl.SSLContext | None = None
        self._authorization = ""
        self._seen: _Seen = ()

    @property
    def host(self) -> str:
        """Scheme, name and port of the API server."""
        return self._config.server

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context with authority and client certificate; None for plain HTTP."""
        return self._tls

    @property
    def server_name(self) -> str | None:
        """The expected name in the server's certificate, if it is not the host."""
        return self._config.server_name or None

    @property
    def proxy(self) -> str | None:
        """The proxy the kubeconfig names, else the environment (`HTTPS_PROXY`, `NO_PROXY`)."""
        return self._config.proxy

    @property
    def acting(self) -> Acting:
        """The user to impersonate."""
        return self._asked or self._config.acting

    def changed(self) -> bool:
        """Whether a file was replaced since the configuration was read: kubeconfig, token,
        authority or client certificate.
        """
        return _seen(self._config.files) != self._seen

    async def load(self) -> None:
        """Read the configuration; KubeConfigError if it is unusable, and the last one stays in
        use.
        """
        config = load(self._kubeconfig, os.environ, self._context)
        # Before the contents are read, so that a later change is noticed.
        seen = _seen(config.files)
        login = ""
        if config.login:
            login, config = await _logged_in(config)
        try:
            token = (_read(config.token_file) or config.token).strip()
            self._tls = config.tls() if config.server.startswith("https") else None
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise KubeConfigError(
                f"The token or certificates of the cluster configuration cannot be used: {error}; "
                "check tokenFile, certificate-authority, client-certificate and client-key."
            ) from error
        self._config, self._seen = config, seen
        self._authorization = f"Bearer {token}" if token else login
        # `kubectl config use-context` in another terminal must not move a running command to
        # another cluster.
        self._context = self._context or config.context or None

    def headers(self) -> list[tuple[str, str]]:
        """The headers with the credentials and the user to impersonate."""
        own = [("Authorization", self._authorization)] if self._authorization else []
        return own + self.acting.headers()


async def _logged_in(config: KubeConfig) -> tuple[str, KubeConfig]:
    """Log in with an exec plugin, an auth provider or a password; return the Authorization header
    and a configuration with the client certificate. KubeConfigError if the login fails.
    """
    # Imported here because it takes half a second and is rarely needed.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_kube_config

    found = Configuration()
    why = "it gave no credentials"
    try:
        async with asyncio.timeout(_LOGIN_S):
            await load_kube_config(
                config_file=config.kubeconfig,
                context=config.context,
                client_configuration=found,
                persist_config=False,
            )
        token = str(await found.get_api_key_with_prefix("BearerToken") or "")
        if token or found.cert_file:
            files = {
                "client_cert": Material(file=found.cert_file or ""),
                "client_key": Material(file=found.key_file or ""),
            }
            return token, msgspec.structs.replace(config, **files)
    except TimeoutError:
        why = f"it took longer than {_LOGIN_S:.0f} s"
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        # The client raises many kinds of errors for malformed files.
        why = printable(" ".join(str(error).split()))[:200]
    raise KubeConfigError(
        f"The login of the kubeconfig with {config.login} gave no credentials ({why}); run "
        "kubectl get nodes with the same kubeconfig to see why, and log in again."
    )


def _read(token_file: str) -> str:
    return Path(token_file).read_text(encoding="utf-8") if token_file else ""


def _seen(files: tuple[str, ...]) -> _Seen:
    """Identity of each file; files of a volume are replaced and never written in place."""
    found: list[tuple[str, int, int, int] | None] = []
    for name in files:
        try:
            stat = Path(name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((name, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def lacking_client(error: ModuleNotFoundError) -> str:
    """The message for an installation without the Kubernetes client; raises any other error."""
    if (error.name or "").partition(".")[0] not in {"aiohttp", "kubernetes", "yarl"}:
        raise error
    return (
        f"This installation has only a part of gpuward and lacks {error.name}; install the rest "
        "with pip install 'gpuward[remediator]', or use the image gpuward-remediator."
    )
