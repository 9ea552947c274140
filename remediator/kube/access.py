"""Where the API server is and how to prove who we are: kubeconfig or the pod's service account.

`kubernetes.aio.config` reads both (tokens, token files, client certificates, exec plugins); this
module turns its result into what `remediator.kube.api` needs and reads it again when the server
says 401 or a minute has passed. It must never log a credential.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

DEFAULT_NAMESPACE = "gpuward"
"""Where the manifests install us."""
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"


class AccessError(Exception):
    """No usable configuration; the text is one sentence for a person, with the remedy."""


class Access:
    """Address, TLS and credentials of one API server."""

    def __init__(self, kubeconfig: str | None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._context_namespace = ""
        self._configuration: Any = None
        self._tls: ssl.SSLContext | None = None

    @property
    def host(self) -> str:
        """Scheme, name and port of the API server."""
        return str(self._configuration.host).rstrip("/")

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What verifies the server and shows our certificate; None for plain HTTP."""
        return self._tls

    @property
    def server_name(self) -> str | None:
        """The name to expect in the server's certificate, where it is not the host."""
        name = self._configuration.tls_server_name
        return str(name) if name else None

    @property
    def proxy(self) -> str | None:
        """The proxy the kubeconfig names."""
        return str(self._configuration.proxy) if self._configuration.proxy else None

    async def load(self) -> None:
        """Read the configuration (again); AccessError when there is none that works."""
        configuration = Configuration()
        configuration.host = ""
        if self._kubeconfig is None and not self._context and os.environ.get(_SERVICE_HOST):
            _load_service_account(configuration)
        else:
            path = kubeconfig_path(self._kubeconfig)
            await _load_kubeconfig(configuration, path, self._context)
            self._context_namespace = _context_namespace(path, self._context)
        try:
            tls = _tls_context(configuration)
        except (OSError, ssl.SSLError) as error:
            raise AccessError(
                f"The certificates named by the cluster configuration cannot be used: {error}; "
                "check certificate-authority, client-certificate and client-key."
            ) from error
        self._configuration, self._tls = configuration, tls

    def namespaces(self, given: str) -> tuple[str, ...]:
        """Where the lease may be, best first: only `given` where somebody named one.

        `gpuward` comes before the kubeconfig context's own namespace, so that a replica started
        by hand competes with those installed in the cluster instead of leading beside them.
        """
        if given:
            return (given,)
        found = (DEFAULT_NAMESPACE, self._context_namespace, "default")
        return tuple(dict.fromkeys(filter(None, found)))

    async def headers(self) -> dict[str, str]:
        """The Authorization header; a mounted token is read again every minute."""
        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError):
            # The kubelet swaps the token file; the old token is still good for minutes.
            token = self._configuration.api_key.get("BearerToken")
        return {"Authorization": str(token).strip()} if token else {}


def kubeconfig_path(given: str | None) -> str:
    """The kubeconfig as kubectl finds it: the flag, $KUBECONFIG, then ~/.kube/config."""
    return given or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def _load_service_account(configuration: Any) -> None:
    try:
        load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise AccessError(
            f"The pod's service account cannot be used: {error} Set automountServiceAccountToken "
            "to true for the remediator's pod, or pass --kubeconfig FILE."
        ) from error


async def _load_kubeconfig(configuration: Any, path: str, context: str | None) -> None:
    remedy = "pass --kubeconfig FILE (or set KUBECONFIG) with a file kubectl can use"
    if not _any_file(path):
        raise AccessError(f"Kubeconfig {path} does not exist or is not a file; {remedy}.")
    try:
        await load_kube_config(
            config_file=path,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except OSError as error:
        raise AccessError(
            f"Kubeconfig {path} cannot be read: {error.strerror}; {remedy}."
        ) from error
    except (ConfigException, yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError) as e:
        # The library stumbles over malformed files in many ways; all mean the file is not usable.
        said = " ".join(str(e).split())[:200]
        raise AccessError(f"Kubeconfig {path} is not valid: {said}; {remedy}.") from e
    if not configuration.host:
        raise AccessError(f"Kubeconfig {path} names no server for its current context; {remedy}.")


def _context_namespace(path: str, context: str | None) -> str:
    """The namespace of the context in a kubeconfig that was loaded before; often it has none."""
    contexts, current = list_kube_config_contexts(path)
    chosen = next((item for item in contexts if item["name"] == context), current)
    return str(chosen["context"].get("namespace") or "")


def _any_file(path: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in path.split(":") if part)


def _tls_context(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Clusters' own authorities often lack what RFC 5280 strictness asks for; kubectl accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return context
