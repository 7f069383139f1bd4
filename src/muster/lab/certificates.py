"""TLS certificates for servers on loopback and their users, signed by a certificate authority that exists as long as the lab.

The only module that needs the package `cryptography`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from cryptography.x509.oid import NameOID

_VALIDITY = timedelta(days=30)
# The clocks of client and server may differ.
_CLOCK_SKEW = timedelta(minutes=5)
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Issues certificates for servers on loopback and for users. Nothing outside the lab trusts it."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("muster-lab")
        builder = _certificate_builder(self._name, issuer=self._name, key=self._key, is_ca=True)
        self.certificate = self._signed(builder)
        """Its own certificate, as PEM."""

    def server(self, name: str) -> KeyPair:
        """For a server on 127.0.0.1; an etcd member is a client as well."""
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(_LOOPBACK))])
        return self._issue(_name(name), x509.ExtendedKeyUsage([Usage.SERVER_AUTH, Usage.CLIENT_AUTH]), names)

    def user(self, user: str, *, groups: Iterable[str] = ()) -> KeyPair:
        """For a client: Kubernetes reads the user from the common name and the groups from the organisations."""
        return self._issue(_name(user, groups=groups), x509.ExtendedKeyUsage([Usage.CLIENT_AUTH]))

    def _issue(self, subject: x509.Name, *extensions: x509.ExtensionType) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate_builder(subject, issuer=self._name, key=key, is_ca=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return KeyPair(self._signed(builder), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(issuer, critical=False).sign(self._key, SHA256()).public_bytes(Encoding.PEM)


def _name(common: str, *, groups: Iterable[str] = ()) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate_builder(
    subject: x509.Name, *, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, is_ca: bool
) -> x509.CertificateBuilder:
    """The parts that all certificates have. `is_ca`: the authority's own certificate."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - _CLOCK_SKEW, now + _VALIDITY
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(usage, critical=True)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
