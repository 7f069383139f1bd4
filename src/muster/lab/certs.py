"""Certificates of a cluster on loopback: an authority that lives as long as the lab, and whatever it signs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_LIFE = timedelta(days=30)
# Clocks of client and server need not agree to the second.
_LEEWAY = timedelta(minutes=5)
_LOOPBACK = "127.0.0.1"


class NoCertificates(Exception):
    """The library that makes certificates is missing."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates for servers on loopback and for users. Nothing outside the lab trusts it."""

    def __init__(self) -> None:
        _need_library()
        self._key = _new_key()
        self._name = _name("muster-lab")
        signed = _builder(self._name, issuer=self._name, key=self._key, ends=True)
        self._certificate = _signed(signed, by=self._key)

    @property
    def certificate(self) -> bytes:
        return _pem(self._certificate)

    def server(self, name: str) -> Pair:
        """For a server on 127.0.0.1, which as etcd's member is a client too."""
        from cryptography import x509

        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(_LOOPBACK))])
        return self._pair(_name(name), names=names)

    def user(self, user: str, *, groups: Iterable[str] = ()) -> Pair:
        """For a client: Kubernetes reads the user from the common name and the groups from the organisations."""
        return self._pair(_name(user, groups=groups), names=None)

    def _pair(self, subject: x509.Name, *, names: x509.SubjectAlternativeName | None) -> Pair:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        key = _new_key()
        usages = [Usage.CLIENT_AUTH] if names is None else [Usage.SERVER_AUTH, Usage.CLIENT_AUTH]
        builder = _builder(subject, issuer=self._name, key=key, ends=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return Pair(_pem(_signed(builder, by=self._key)), _private(key))


def key_pair() -> tuple[bytes, bytes]:
    """A private and a public key as PEM, for the tokens of service accounts."""
    _need_library()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = _new_key()
    return _private(key), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _need_library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise NoCertificates("a cluster on loopback makes its own certificates: pip install 'muster[lab]'") from None


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str, *, groups: Iterable[str] = ()) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, *, issuer: x509.Name, key: EllipticCurvePrivateKey, ends: bool) -> x509.CertificateBuilder:
    """What all certificates have. `ends`: the chain of trust ends here, which is to say that it is the authority's own."""
    from cryptography import x509

    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - _LEEWAY, now + _LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=ends, path_length=None), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ends,
        crl_sign=ends,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(usage, critical=True)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _signed(builder: x509.CertificateBuilder, *, by: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
    return builder.add_extension(identifier, critical=False).sign(by, SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
