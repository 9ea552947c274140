"""A certificate authority for one server's lifetime.

Made when a server starts with TLS; the keys never leave the process except into a temporary file
that the TLS library insists on reading.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path


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
