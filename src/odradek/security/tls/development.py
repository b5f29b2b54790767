"""A certificate authority and certificates for development and tests, not for shared networks.

Keys are of the curve P-256: they are generated fast, and supported by every client.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from odradek.security.tls.stores import Identity

DAY = datetime.timedelta(days=1)
# Clocks of other machines may be behind.
_BEFORE = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority for development only."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """The certificate of the authority, as PEM text."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        common_name: str,
        hosts: Sequence[str] = (),
        *,
        now: datetime.datetime,
        valid: datetime.timedelta = 365 * DAY,
        organization: str = "",
    ) -> Identity:
        """A key and a certificate for servers and clients.

        Args:
            hosts: names and IP addresses that a client may connect to.
            now: when it begins to be valid; `valid` may be negative for one that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        begin = now - _BEFORE if valid > datetime.timedelta() else now + 2 * valid
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name, organization))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), False)
        return Identity(key, (builder.sign(self.key, hashes.SHA256()), self.certificate))


def make_authority(common_name: str, *, now: datetime.datetime, valid: datetime.timedelta = 3650 * DAY) -> Authority:
    """A new authority, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
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
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .issuer_name(_name(common_name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def pkcs12_of(identity: Identity, password: str) -> bytes:
    """A key and its certificates as Java's default format of key stores."""
    own, *issuers = identity.chain
    return pkcs12.serialize_key_and_certificates(
        b"odradek",
        identity.key,  # type: ignore[arg-type]  # every kind of key that we make can stand in PKCS12
        own,
        issuers,
        BestAvailableEncryption(password.encode()),
    )


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
