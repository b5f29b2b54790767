"""Keys and certificates out of PEM, PKCS12 and JKS, and the contexts made of them."""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.contexts import client_context, openssl_name, server_context
from odradek.security.tls.development import make_authority, pkcs12_of
from odradek.security.tls.distinguished_name import distinguished_name
from odradek.security.tls.listener import ListenerTls
from odradek.security.tls.stores import Identity, load_identity, load_trusted

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
AUTHORITY = make_authority("Authority", now=NOW)
IDENTITY = AUTHORITY.issue("node", ["node.example"], now=NOW)
CHAIN = "".join(each.public_bytes(Encoding.PEM).decode() for each in IDENTITY.chain)
KEY_DER = IDENTITY.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
INLINE = TlsConfig(keystore_certificate_chain=CHAIN, keystore_key=IDENTITY.to_pem().decode().removeprefix(CHAIN))


def reading(data: bytes) -> object:
    return lambda path: data


def jks(password: str, *, key_password: str | None = None, trusted: bool = False) -> bytes:
    """A key store as Java's `JavaKeyStore` writes it, made from its description."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    def certificate(value: x509.Certificate) -> bytes:
        der = value.public_bytes(Encoding.DER)
        return text("X.509") + struct.pack(">I", len(der)) + der

    if trusted:
        entries = struct.pack(">I", 2) + text("ca") + bytes(8) + certificate(AUTHORITY.certificate)
    else:
        secret = (key_password or password).encode("utf-16-be")
        salt = os.urandom(20)
        stream, digest = b"", salt
        while len(stream) < len(KEY_DER):
            digest = hashlib.sha1(secret + digest).digest()
            stream += digest
        hidden = bytes(a ^ b for a, b in zip(KEY_DER, stream, strict=False))
        octets = salt + hidden + hashlib.sha1(secret + KEY_DER).digest()
        algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
        inner = algorithm + b"\x04\x81" + bytes([len(octets)]) + octets
        protected = b"\x30\x81" + bytes([len(inner)]) + inner
        entries = struct.pack(">I", 1) + text("node") + bytes(8) + struct.pack(">I", len(protected)) + protected
        entries += struct.pack(">I", len(IDENTITY.chain)) + b"".join(map(certificate, IDENTITY.chain))
    body = b"\xfe\xed\xfe\xed" + struct.pack(">II", 2, 1) + entries
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def identity(config: TlsConfig, data: bytes = b"") -> Identity | None:
    return load_identity(config, lambda path: data)


STORE = TlsConfig(keystore_location="/store", keystore_password="secret")


def named(value: object) -> str | None:
    """The same name in each worker: keys are drawn in each."""
    return "data" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    ("config", "data"),
    [
        (INLINE, b""),
        (TlsConfig(keystore_location="/store", keystore_type="PEM"), IDENTITY.to_pem()),
        (replace(STORE, keystore_type="PKCS12"), pkcs12_of(IDENTITY, "secret")),
        (STORE, pkcs12_of(IDENTITY, "secret")),
        (STORE, jks("secret")),
        (replace(STORE, key_password="other"), jks("secret", key_password="other")),
    ],
    ids=named,
)
def test_a_key_and_its_chain_come_out_of_every_format(config: TlsConfig, data: bytes) -> None:
    found = identity(config, data)
    assert found is not None
    assert found.chain == IDENTITY.chain
    assert found.to_pem() == IDENTITY.to_pem()


def test_an_encrypted_key_needs_its_password() -> None:
    encrypted = IDENTITY.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hidden"))
    config = replace(INLINE, keystore_key=encrypted.decode())
    found = identity(replace(config, key_password="hidden"))
    assert found is not None and found.to_pem() == IDENTITY.to_pem()
    with pytest.raises(TlsSettingError, match=r"needs ssl\.key\.password"):
        identity(config)
    with pytest.raises(TlsSettingError, match=r"is ssl\.key\.password right"):
        identity(replace(config, key_password="wrong"))


@pytest.mark.parametrize("data", [jks("secret", trusted=True), AUTHORITY.pem.encode()], ids=["JKS", "PEM"])
def test_trusted_certificates_come_out_of_every_format(data: bytes) -> None:
    kind = "JKS" if data.startswith(b"\xfe\xed") else "PEM"
    config = TlsConfig(truststore_location="/trusted", truststore_type=kind, truststore_password="secret")
    assert load_trusted(config, lambda path: data) == [AUTHORITY.certificate]


@pytest.mark.parametrize(
    ("config", "data", "problem"),
    [
        (replace(INLINE, keystore_key=None), b"", "belong together"),
        (replace(STORE, keystore_type="BKS"), b"", "it is one of PEM, PKCS12, JKS"),
        (STORE, IDENTITY.to_pem(), "set ssl.keystore.type=PEM"),
        (STORE, jks("other"), "the password is wrong"),
        (replace(STORE, key_password="wrong"), jks("secret"), "the password of the key is wrong"),
        (STORE, jks("secret")[:60], "the password is wrong, or the file is damaged"),
        (STORE, pkcs12_of(IDENTITY, "other"), "is ssl.keystore.password right"),
        (STORE, b"nothing", "cannot be read as PKCS12"),
        (replace(STORE, keystore_type="PEM"), CHAIN.encode(), "holds no private key"),
        (replace(STORE, keystore_type="PEM"), b"", "holds no certificate"),
        (
            replace(INLINE, keystore_certificate_chain=AUTHORITY.pem),
            b"",
            "none of the certificates is that of the private key",
        ),
    ],
    ids=named,
)
def test_unusable_stores_are_named(config: TlsConfig, data: bytes, problem: str) -> None:
    with pytest.raises(TlsSettingError, match=problem):
        identity(config, data)


@pytest.mark.parametrize("size", [0, 3, 4, 10, 30, 200])
def test_a_cut_off_jks_is_refused_without_its_password(size: int) -> None:
    config = TlsConfig(truststore_location="/trusted")
    with pytest.raises(TlsSettingError):
        load_trusted(config, lambda path: jks("secret", trusted=True)[:size])


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(TlsSettingError, match="No such file or directory; name a file"):
        load_identity(STORE, Path.read_bytes)


def now_ms() -> int:
    return int(NOW.timestamp() * 1000)


def read_nothing(path: Path) -> bytes:
    raise AssertionError(path)


def test_versions_and_suites_are_those_of_the_settings() -> None:
    config = replace(INLINE, enabled_protocols=("TLSv1.2",), cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",))
    context = server_context(config, read_nothing).context
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    older = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    only_newest = replace(INLINE, cipher_suites=("TLS_AES_256_GCM_SHA384",))
    assert server_context(only_newest, read_nothing).context.minimum_version == ssl.TLSVersion.TLSv1_3
    only_older = replace(INLINE, cipher_suites=("ECDHE-ECDSA-AES128-GCM-SHA256",))
    assert server_context(only_older, read_nothing).context.maximum_version == ssl.TLSVersion.TLSv1_2
    both = replace(INLINE, cipher_suites=(*only_older.cipher_suites, *only_newest.cipher_suites))
    context = server_context(both, read_nothing).context
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def test_suites_of_tls_1_3_that_are_not_chosen_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """Python cannot choose among them."""
    ListenerTls("EXTERNAL", INLINE, now_ms)
    ListenerTls("EXTERNAL", replace(INLINE, cipher_suites=("ECDHE-ECDSA-AES128-GCM-SHA256",)), now_ms)
    assert caplog.records == []
    ListenerTls("EXTERNAL", replace(INLINE, cipher_suites=("TLS_AES_256_GCM_SHA384",)), now_ms)
    (line,) = caplog.records
    assert "more are agreed to in TLS 1.3" in line.getMessage()


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_password_that_pem_does_not_have_is_said(store: str, caplog: pytest.LogCaptureFixture) -> None:
    password: dict[str, Any] = {f"{store}_password": "p"}
    kind: dict[str, Any] = {f"{store}_type": "pem"}
    for fields in (password, kind):
        ListenerTls("EXTERNAL", replace(INLINE, **fields), now_ms)
    assert caplog.records == []
    ListenerTls("EXTERNAL", replace(INLINE, **password, **kind), now_ms)
    (line,) = caplog.records
    assert line.getMessage() == f"ssl.{store}.password has no effect on PEM"


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_suites_have_two_names(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(openssl)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            replace(INLINE, enabled_protocols=("TLSv1.3",), cipher_suites=("ECDHE-ECDSA-AES128-GCM-SHA256",)),
            "ssl.cipher.suites names suites of TLS 1.2 alone, ssl.enabled.protocols TLSv1.3",
        ),
        (replace(INLINE, enabled_protocols=("TLSv1.1",)), "TLSv1.1 is not served; TLSv1.2 and TLSv1.3 are"),
        (replace(INLINE, cipher_suites=("TLS_NO_SUCH",)), "OpenSSL has none of these suites"),
        (replace(INLINE, client_auth="required"), "needs ssl.truststore.location"),
        (TlsConfig(), "needs ssl.keystore.location"),
    ],
)
def test_a_listener_says_what_it_lacks(config: TlsConfig, problem: str) -> None:
    with pytest.raises(TlsSettingError, match=problem):
        server_context(config, read_nothing)


def test_a_client_checks_hosts_unless_the_setting_is_empty() -> None:
    config = TlsConfig(truststore_certificates=AUTHORITY.pem)
    assert client_context(config, read_nothing).context.check_hostname
    unchecked = client_context(replace(config, endpoint_identification=""), read_nothing).context
    assert not unchecked.check_hostname and unchecked.verify_mode == ssl.CERT_REQUIRED


def test_a_context_knows_when_its_certificate_expires() -> None:
    assert server_context(INLINE, read_nothing).not_after == NOW + datetime.timedelta(days=365)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "a")], "CN=a,C=DE"),
        ([(NameOID.COMMON_NAME, 'a,b+"c"\\<d>;')], r"CN=a\,b\+\"c\"\\\<d\>\;"),
        ([(NameOID.COMMON_NAME, "#a ")], r"CN=\#a\ "),
        ([(NameOID.COMMON_NAME, " a")], r"CN=\ a"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.COMMON_NAME, "a\nb")], "CN=a\nb"),
    ],
)
def test_names_are_written_as_java_writes_them(parts: list[tuple[x509.ObjectIdentifier, str]], text: str) -> None:
    assert distinguished_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])) == text


def test_a_pkcs12_store_without_a_key_is_refused() -> None:
    data = pkcs12.serialize_key_and_certificates(None, None, None, [AUTHORITY.certificate], NoEncryption())
    with pytest.raises(TlsSettingError, match="holds no private key"):
        identity(TlsConfig(keystore_location="/store"), data)
