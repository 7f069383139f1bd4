"""TLS certificates for servers on loopback and their users, signed by a certificate authority that exists as long as the lab."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_VALIDITY = timedelta(days=30)
# The clocks of client and server may differ.
_CLOCK_SKEW = timedelta(minutes=5)
_LOOPBACK = "127.0.0.1"


class NoCertificateLibrary(Exception):
    """The package `cryptography` is not installed."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Issues certificates for servers on loopback and for users. Nothing outside the lab trusts it."""

    def __init__(self) -> None:
        _require_cryptography()
        self._key = _new_key()
        self._name = _name("muster-lab")
        builder = _certificate_builder(self._name, issuer=self._name, key=self._key, is_ca=True)
        self._certificate = _sign(builder, by=self._key)

    @property
    def certificate(self) -> bytes:
        return _certificate_pem(self._certificate)

    def server(self, name: str) -> KeyPair:
        """For a server on 127.0.0.1; an etcd member is a client as well."""
        from cryptography import x509

        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(_LOOPBACK))])
        return self._issue(_name(name), names=names)

    def user(self, user: str, *, groups: Iterable[str] = ()) -> KeyPair:
        """For a client: Kubernetes reads the user from the common name and the groups from the organisations."""
        return self._issue(_name(user, groups=groups), names=None)

    def _issue(self, subject: x509.Name, *, names: x509.SubjectAlternativeName | None) -> KeyPair:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        key = _new_key()
        key_usages = [Usage.CLIENT_AUTH] if names is None else [Usage.SERVER_AUTH, Usage.CLIENT_AUTH]
        builder = _certificate_builder(subject, issuer=self._name, key=key, is_ca=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(key_usages), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return KeyPair(_certificate_pem(_sign(builder, by=self._key)), _private_key_pem(key))


def service_account_keys() -> tuple[bytes, bytes]:
    """A private and a public key as PEM, for the tokens of service accounts."""
    _require_cryptography()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = _new_key()
    return _private_key_pem(key), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise NoCertificateLibrary("certificates need the package cryptography: pip install 'muster[lab]'") from None


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str, *, groups: Iterable[str] = ()) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate_builder(
    subject: x509.Name, *, issuer: x509.Name, key: EllipticCurvePrivateKey, is_ca: bool
) -> x509.CertificateBuilder:
    """The parts that all certificates have. `is_ca`: the authority's own certificate."""
    from cryptography import x509

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


def _sign(builder: x509.CertificateBuilder, *, by: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
    return builder.add_extension(identifier, critical=False).sign(by, SHA256())


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private_key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
