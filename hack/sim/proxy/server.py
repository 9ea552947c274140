"""A listener with its certificate, and the proxy in front of a server that runs elsewhere."""

import asyncio
import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from hack.sim.proxy.faults import Faults
from hack.sim.proxy.forward import Forwarder, Served
from hack.sim.proxy.layer import Proxy, RequestLog


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """What a TLS server and its clients need."""

    context: ssl.SSLContext
    ca_pem: bytes


def make_serving_certificate(address: str) -> ServingCertificate:
    """A new authority and a certificate for the address, signed by it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    ends = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begin(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("simulated-kubernetes-ca"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
        )

    ca_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = (
        begin("simulated-kubernetes-ca", ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = [
        x509.IPAddress(ipaddress.ip_address(address)),
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
    ]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority)
    certificate = (
        begin("kube-apiserver", key.public_key())
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(private + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return ServingCertificate(context, ca.public_bytes(pem))


_SHUTDOWN_S = 0.5
_LINE_LIMIT = 64 * 1024
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """One address; `body_limit` is the size in bytes over which reading a body raises."""

    def __init__(self, handle: Handler, *, host: str, port: int, tls: bool, body_limit: int):
        self._handle = handle
        self._host, self._port = host, port
        self._body_limit = body_limit
        self._certificate: ServingCertificate | None = (
            make_serving_certificate(host) if tls else None
        )
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._certificate else 'http'}://{self._host}:{self._port}"

    @property
    def ca_pem(self) -> bytes | None:
        """The authority that clients must trust; None without TLS."""
        return self._certificate.ca_pem if self._certificate else None

    def rotate_authority(self) -> None:
        """From the next start on, another authority signs the certificate."""
        self._certificate = make_serving_certificate(self._host)

    async def start(self) -> None:
        """Listen; after a stop again at the same address."""
        server = web.Server(
            self._handle,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        context = self._certificate.context if self._certificate else None
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=context, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End every connection."""
        if self._runner is None:
            return
        serving = self._runner.server
        open_connections = [one.transport for one in serving.connections] if serving else []
        await self._runner.cleanup()
        self._runner = None
        for transport in open_connections:
            if transport is not None:
                # A TLS connection would wait for its peer's goodbye and outlive the event loop.
                transport.abort()
        await asyncio.sleep(0)

    def _request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            asyncio.get_running_loop(),
            client_max_size=self._body_limit,
        )


_HOST = "127.0.0.1"
_BODY_LIMIT = 64 * 1024 * 1024
"""More than any API server takes, so that the refusal is the server's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProxy:
    """Where it listens, whom to trust, its rules and its log."""

    url: str
    ca_pem: bytes | None
    faults: Faults
    requests: RequestLog


@asynccontextmanager
async def proxy_before(
    url: str, *, ca_pem: bytes | None, users: Mapping[str, str], served: Served | None = None
) -> AsyncIterator[RunningProxy]:
    """A proxy before the server at `url`, with TLS where the server has it.

    `users` are the server's static tokens with their users; `served` changes what clients read.
    """
    faults, log = Faults(), RequestLog()
    tls = ssl.create_default_context(cadata=ca_pem.decode()) if ca_pem else None
    forwarder = Forwarder(url, faults=faults, tls=tls, users=users, served=served)
    proxy = Proxy(forwarder, faults=faults, log=log)
    listener = Listener(
        proxy.handle, host=_HOST, port=0, tls=tls is not None, body_limit=_BODY_LIMIT
    )
    try:
        await listener.start()
        yield RunningProxy(url=listener.url, ca_pem=listener.ca_pem, faults=faults, requests=log)
    finally:
        faults.drop_watches()
        await listener.stop()
        await forwarder.close()
