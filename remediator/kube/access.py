"""Credentials for the API server: read, used as request headers and renewed.

`rules.api.kube_config` finds them; this module runs the login program that a kubeconfig names and
notices replaced files. All of it is read again when the server answers 401, when a TLS handshake
fails and when one of the files changed. It must never log a credential.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
from pathlib import Path

import msgspec

from rules.api.kube_config import (
    Acting,
    ExecLogin,
    KubeConfig,
    KubeConfigError,
    Material,
    load,
)
from rules.text.printable import printable

_LOGIN_S = 120.0
"""A person may have to confirm a login in a browser."""
_Seen = tuple[tuple[str, int, int, int] | None, ...]


class _Credentials(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    status: _Credentials | None = None


class Access:
    """Address, TLS and credentials of one API server."""

    def __init__(
        self, kubeconfig: str | None, context: str | None = None, acting: Acting | None = None
    ) -> None:
        """`acting` overrides the user that the kubeconfig says to act as."""
        self._kubeconfig = kubeconfig
        self._context = context
        self._asked = acting
        self._config = KubeConfig(server="")
        self._tls: ssl.SSLContext | None = None
        self._token = ""
        self._seen: _Seen = ()

    @property
    def host(self) -> str:
        """Scheme, name and port of the API server."""
        return self._config.server

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What verifies the server and shows our certificate; None for plain HTTP."""
        return self._tls

    @property
    def server_name(self) -> str | None:
        """The name to expect in the server's certificate, where it is not the host."""
        return self._config.server_name or None

    @property
    def proxy(self) -> str | None:
        """The proxy the kubeconfig names, else the environment (`HTTPS_PROXY`, `NO_PROXY`)."""
        return self._config.proxy

    @property
    def acting(self) -> Acting:
        """The user that the API server is to take us for."""
        return self._asked or self._config.acting

    def changed(self) -> bool:
        """Whether a file was replaced since the configuration was read: a kubeconfig, a mounted
        token, the cluster's authority or a client certificate.
        """
        return _seen(self._config.files) != self._seen

    async def load(self) -> None:
        """Read the configuration (again); KubeConfigError when there is none that works, and what
        was read before stays in use.
        """
        config = load(self._kubeconfig, os.environ, self._context)
        # Before their contents are read: what changes meanwhile is noticed afterwards.
        seen = _seen(config.files)
        token = config.token
        if config.exec_login is not None:
            given = await _log_in(config, config.exec_login)
            token = given.token or ""
            if given.client_certificate_data:
                certificate = Material(data=given.client_certificate_data.encode())
                key = Material(data=(given.client_key_data or "").encode())
                config = msgspec.structs.replace(config, client_cert=certificate, client_key=key)
        try:
            token = _read(config.token_file) or token
            self._tls = config.tls() if config.server.startswith("https") else None
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise KubeConfigError(
                f"The token or certificates of the cluster configuration cannot be used: {error}; "
                "check tokenFile, certificate-authority, client-certificate and client-key."
            ) from error
        self._config, self._token, self._seen = config, token.strip(), seen
        # `kubectl config use-context` in another terminal must not move a running command to
        # another cluster.
        self._context = self._context or config.context or None

    def headers(self) -> list[tuple[str, str]]:
        """Who we are, and whom we act as."""
        own = [("Authorization", f"Bearer {self._token}")] if self._token else []
        return own + self.acting.headers()


async def _log_in(config: KubeConfig, login: ExecLogin) -> _Credentials:
    """The credentials that the kubeconfig's login program prints, by the protocol of
    client.authentication.k8s.io; KubeConfigError where it prints none.
    """
    why = "it printed no credentials"
    interactive = login.interactive_mode != "Never" and sys.stdin.isatty()
    spec: dict[str, object] = {"interactive": interactive}
    if login.provide_cluster_info:
        spec["cluster"] = _cluster_of(config)
    info = {"apiVersion": login.api_version, "kind": "ExecCredential", "spec": spec}
    environ = {**os.environ, **{one.name: one.value for one in login.env}}
    environ["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    try:
        process = await asyncio.create_subprocess_exec(
            login.command,
            *login.args,
            env=environ,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(_LOGIN_S):
            printed, _ = await process.communicate()
        if process.returncode:
            why = f"it ended with status {process.returncode}"
        else:
            found = msgspec.json.decode(printed, type=_ExecCredential).status
            if found and (found.token or found.client_certificate_data):
                return found
    except TimeoutError:
        process.kill()
        why = f"it took longer than {_LOGIN_S:.0f} s"
    except OSError as error:
        why = f"{error.strerror}. {printable(login.install_hint)[:300]}".rstrip(". ")
    except msgspec.DecodeError:
        why = "it did not print an ExecCredential"
    raise KubeConfigError(
        f"The login of the kubeconfig, {login.command[:200]}, gave no credentials ({why}); run "
        "kubectl get nodes with the same kubeconfig to see why, and log in again."
    )


def _read(token_file: str) -> str:
    return Path(token_file).read_text(encoding="utf-8") if token_file else ""


def _cluster_of(config: KubeConfig) -> dict[str, object]:
    authority = config.ca.data or (Path(config.ca.file).read_bytes() if config.ca.file else b"")
    return {
        "server": config.server,
        "tls-server-name": config.server_name,
        "insecure-skip-tls-verify": not config.verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": config.proxy or "",
    }


def _seen(files: tuple[str, ...]) -> _Seen:
    """Which files these are now: a volume's files are replaced and never written in place."""
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
    """What to say where the client of a whole cluster is not installed; raises any other error."""
    if (error.name or "").partition(".")[0] not in {"aiohttp", "yarl"}:
        raise error
    return (
        f"This installation has only a part of gpuward and lacks {error.name}; install the rest "
        "with pip install 'gpuward[remediator]', or use the image gpuward-remediator."
    )
