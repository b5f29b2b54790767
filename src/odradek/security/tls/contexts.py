"""TLS contexts of listeners and of connections to other nodes, from settings.

Python's `ssl` reads private keys only from files; a key of a store is passed in a file in memory, so that a protected
key is never on a disk in plain text.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.distinguished_name import distinguished_name
from odradek.security.tls.stores import Identity, ReadFile, load_identity, load_trusted

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NAMES = {ssl.TLSVersion.TLSv1_2: "TLS 1.2", ssl.TLSVersion.TLSv1_3: "TLS 1.3"}
_KNOWN = " and ".join(_VERSIONS)
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS13_PREFIXES = ("TLS_AES_", "TLS_CHACHA20_")


class TlsContext:
    """A context and the properties of its certificate.

    Attributes:
        not_before, not_after: when all certificates of its chain are valid; None without a certificate.
        subject, hosts: the subject and the alternative names of the certificate; None and empty without one.
    """

    __slots__ = ("context", "hosts", "not_after", "not_before", "subject")

    def __init__(self, context: ssl.SSLContext, identity: Identity | None) -> None:
        self.context = context
        self.not_before: datetime | None = None
        self.not_after: datetime | None = None
        self.subject: str | None = None
        self.hosts: frozenset[str] = frozenset()
        if identity is not None:
            self.not_before = max(each.not_valid_before_utc for each in identity.chain)
            self.not_after = min(each.not_valid_after_utc for each in identity.chain)
            self.subject = distinguished_name(identity.chain[0].subject)
            self.hosts = _alternative_names(identity.chain[0])


def _alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(each.value) for each in extension.value)


def server_context(config: TlsConfig, read: ReadFile) -> TlsContext:
    """The context of a listener.

    Raises:
        TlsSettingError: the error, and what to do.
    """
    identity = load_identity(config, read)
    if identity is None:
        raise TlsSettingError(
            "a listener with SSL needs ssl.keystore.location, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = _client_auth(config)
    trusted = load_trusted(config, read)
    if trusted is not None:
        _add_trusted(context, trusted)
    elif context.verify_mode != ssl.CERT_NONE:
        raise TlsSettingError(
            f"ssl.client.auth={config.client_auth} needs ssl.truststore.location, or ssl.truststore.certificates"
        )
    _agree(context, config)
    _load_chain(context, identity)
    return TlsContext(context, identity)


def client_context(config: TlsConfig, read: ReadFile) -> TlsContext:
    """The context of connections to brokers and controllers; without certificates in the settings, the system's are
    trusted.

    Raises:
        TlsSettingError: as `server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    how = config.endpoint_identification.lower()
    if how not in ("https", ""):
        raise TlsSettingError(f"ssl.endpoint.identification.algorithm={how}: must be https, or empty")
    context.check_hostname = how == "https"
    trusted = load_trusted(config, read)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _add_trusted(context, trusted)
    _agree(context, config)
    identity = load_identity(config, read)
    if identity is not None:
        _load_chain(context, identity)
    return TlsContext(context, identity)


def _client_auth(config: TlsConfig) -> ssl.VerifyMode:
    mode = _CLIENT_AUTH.get(config.client_auth)
    if mode is None:
        raise TlsSettingError(f"ssl.client.auth={config.client_auth}: must be one of {', '.join(_CLIENT_AUTH)}")
    return mode


def _add_trusted(context: ssl.SSLContext, trusted: list[x509.Certificate]) -> None:
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))


def _agree(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Versions and cipher suites."""
    given = ",".join(config.enabled_protocols)
    if unknown := [name for name in config.enabled_protocols if name not in _VERSIONS]:
        raise TlsSettingError(f"ssl.enabled.protocols={given}: {', '.join(unknown)} is not served; {_KNOWN} are")
    versions = sorted(_VERSIONS[name] for name in config.enabled_protocols)
    if not versions:
        raise TlsSettingError(f"ssl.enabled.protocols: must name one of {_KNOWN}")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if not config.cipher_suites:
        return
    older = [openssl_name(name) for name in config.cipher_suites if not name.startswith(_TLS13_PREFIXES)]
    if len(older) in (0, len(config.cipher_suites)):
        # As in Java: a list with suites of only one TLS version disables the other version.
        only = ssl.TLSVersion.TLSv1_2 if older else ssl.TLSVersion.TLSv1_3
        if only not in versions:
            raise TlsSettingError(
                f"ssl.cipher.suites names suites of {_NAMES[only]} alone, ssl.enabled.protocols {given}"
            )
        context.minimum_version = context.maximum_version = only
    if not older:
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise TlsSettingError(
            f"ssl.cipher.suites={','.join(config.cipher_suites)}: OpenSSL has none of these suites"
        ) from None


def suites_beyond(config: TlsConfig, context: ssl.SSLContext) -> list[str]:
    """Suites of TLS 1.3 that a context agrees to, and that `ssl.cipher.suites` leaves out though it names others.

    Python's `ssl` cannot choose among them.
    """
    named = {name for name in config.cipher_suites if name.startswith(_TLS13_PREFIXES)}
    agreed = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"]
    return [name for name in agreed if name not in named] if named else []


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2; `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is the IANA's."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "")
    if "CHACHA20" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    parts = [cipher] if exchange == "RSA" else [exchange, cipher]
    return "-".join(parts).replace("_", "-")


def _load_chain(context: ssl.SSLContext, identity: Identity) -> None:
    with _file_in_memory(identity.to_pem()) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise TlsSettingError(f"ssl.keystore: OpenSSL refuses the certificate or its key: {reason}") from None


@contextlib.contextmanager
def _file_in_memory(data: bytes) -> Iterator[str]:
    """A path under which OpenSSL reads these bytes, and that ends with the block."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("identity")
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile() as file:  # of mode 0600, where the system has no files in memory
        file.write(data)
        file.flush()
        yield file.name
