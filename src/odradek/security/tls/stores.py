"""Keys and certificates from PEM text, PEM files, PKCS12 and JKS (KIP-651)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.jks import MAGIC as JKS_MAGIC
from odradek.security.tls.jks import JksError, read_jks, recover_key

ReadFile = Callable[[Path], bytes]

_TYPES = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificates, the key's own first, then those of its issuers."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    def to_pem(self) -> bytes:
        """Certificates and key, in the order in which OpenSSL reads them."""
        return (self.certificates_pem() + self.key_pem()).encode()

    def certificates_pem(self) -> str:
        """The certificates as PEM text."""
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in self.chain)

    def key_pem(self) -> str:
        """The private key as PEM text (PKCS#8), without encryption."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def load_identity(config: TlsConfig, read: ReadFile) -> Identity | None:
    """The key of this node or client; None where no setting names one.

    Raises:
        TlsSettingError.
    """
    if config.keystore_key is not None or config.keystore_certificate_chain is not None:
        if not config.keystore_key or not config.keystore_certificate_chain:
            raise TlsSettingError("ssl.keystore.key and ssl.keystore.certificate.chain belong together: give both")
        pem = f"{config.keystore_certificate_chain}\n{config.keystore_key}".encode()
        return _pem_identity(pem, config.key_password, "ssl.keystore.key")
    if config.keystore_location is None:
        return None
    name = f"ssl.keystore.location={config.keystore_location}"
    data = _read(config.keystore_location, read, name)
    kind = _kind(config.keystore_type, data, "ssl.keystore.type")
    if kind == "PEM":
        return _pem_identity(data, config.key_password, name)
    if kind == "JKS":
        return _jks_identity(data, config, name)
    return _pkcs12_identity(data, config, name)


def load_trusted(config: TlsConfig, read: ReadFile) -> list[x509.Certificate] | None:
    """The certificates of trusted authorities; None where no setting names any.

    Raises:
        TlsSettingError.
    """
    if config.truststore_certificates is not None:
        return _pem_certificates(config.truststore_certificates.encode(), "ssl.truststore.certificates")
    if config.truststore_location is None:
        return None
    name = f"ssl.truststore.location={config.truststore_location}"
    data = _read(config.truststore_location, read, name)
    kind = _kind(config.truststore_type, data, "ssl.truststore.type")
    if kind == "PEM":
        return _pem_certificates(data, name)
    password = config.truststore_password
    try:
        if kind == "JKS":
            store = read_jks(data, password)
            found = [x509.load_der_x509_certificate(each) for each in store.trusted]
        else:
            bag = pkcs12.load_pkcs12(data, None if password is None else password.encode())
            found = [each.certificate for each in bag.additional_certs]
    except ValueError as error:
        raise TlsSettingError(f"{name}: {error}; is ssl.truststore.password right?") from None
    if not found:
        raise TlsSettingError(f"{name} holds no trusted certificate; import the authority's (keytool -importcert)")
    return found


def _read(location: str, read: ReadFile, name: str) -> bytes:
    try:
        return read(Path(location))
    except OSError as error:
        raise TlsSettingError(f"{name}: {error.strerror or error}; name a file that this user can read") from None


def _kind(configured: str, data: bytes, key: str) -> str:
    """The format of a file. Java accepts PKCS12 for the type JKS and the reverse, and so do we.

    Without a type ("", as in settings of clients) the file decides.
    """
    is_pem = data.lstrip().startswith(b"-----BEGIN")
    kind = configured.upper() or ("PEM" if is_pem else "JKS")
    if kind not in _TYPES:
        raise TlsSettingError(f"{key}={configured} is unknown; it is one of {', '.join(_TYPES)}")
    if kind == "PEM":
        return kind
    if is_pem:
        raise TlsSettingError(f"{key}={configured}, but the file is PEM; set {key}=PEM")
    return "JKS" if data.startswith(JKS_MAGIC) else "PKCS12"


def _pem_certificates(data: bytes, name: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise TlsSettingError(f"{name} holds no certificate in PEM: {error}") from None


def _pem_identity(data: bytes, password: str | None, name: str) -> Identity:
    chain = _pem_certificates(data, name)
    begin = data.find(b"PRIVATE KEY-----")
    begin = data.rfind(b"-----BEGIN", 0, begin) if begin >= 0 else -1
    if begin < 0:
        raise TlsSettingError(f"{name} holds no private key; it must stand there as PKCS#8 in PEM")
    end = data.find(b"PRIVATE KEY-----", data.find(b"-----END", begin)) + len(b"PRIVATE KEY-----")
    try:
        key = load_pem_private_key(data[begin:end] + b"\n", None if password is None else password.encode())
    except TypeError:
        hint = "needs ssl.key.password" if password is None else "is not encrypted: leave ssl.key.password out"
        raise TlsSettingError(f"{name}: the private key {hint}") from None
    except ValueError:
        raise TlsSettingError(f"{name}: the private key cannot be read; is ssl.key.password right?") from None
    return _checked(key, chain, name)


def _jks_identity(data: bytes, config: TlsConfig, name: str) -> Identity:
    try:
        store = read_jks(data, config.keystore_password)
        if not store.keys:
            raise TlsSettingError(f"{name} holds no private key")
        protected, chain = store.keys[0]
        password = config.key_password or config.keystore_password
        if password is None:
            raise TlsSettingError(f"{name} needs ssl.keystore.password")
        key = load_der_private_key(recover_key(protected, password), None)
        return _checked(key, [x509.load_der_x509_certificate(each) for each in chain], name)
    except JksError as error:
        raise TlsSettingError(f"{name}: {error}; see ssl.keystore.password and ssl.key.password") from None


def _pkcs12_identity(data: bytes, config: TlsConfig, name: str) -> Identity:
    password = config.keystore_password
    try:
        bag = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise TlsSettingError(f"{name} cannot be read as PKCS12; is ssl.keystore.password right?") from None
    if bag.key is None or bag.cert is None:
        raise TlsSettingError(f"{name} holds no private key with its certificate")
    others = [each.certificate for each in bag.additional_certs]
    return _checked(bag.key, _ordered(bag.cert.certificate, others), name)


def _ordered(leaf: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """A chain from the leaf to its last known issuer: PKCS12 keeps certificates in no order."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _checked(key: PrivateKeyTypes, chain: list[x509.Certificate], name: str) -> Identity:
    """A key with its certificates, the key's own among them."""
    own = next((each for each in chain if each.public_key() == key.public_key()), None)
    if own is None:
        raise TlsSettingError(f"{name}: none of the certificates is that of the private key")
    return Identity(key, tuple(_ordered(own, [each for each in chain if each is not own])))
