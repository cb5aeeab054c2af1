"""A certificate authority for the tests, and certificates of its for addresses and names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """An authority with a key of its own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("cluster CA")
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = builder.add_extension(usage, True).sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """What others trust it by, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, file: Path, server: str = "127.0.0.1") -> None:
        """Write a certificate for an address or a host name, and its key, to a file."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(server), self._name, key.public_key())
        names = x509.SubjectAlternativeName([_server(server)])
        use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(names, False).add_extension(use, False)
        made = builder.sign(self._key, hashes.SHA256())
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )


def _server(server: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(server))
    except ValueError:
        return x509.DNSName(server)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
