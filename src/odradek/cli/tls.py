"""TLS of the commands: keys and certificates of a properties file, for our client and for librdkafka.

Formats are those of a node's settings: PEM, PKCS12, JKS; a type that is not given is that of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.errors import BAD_CONFIG, CliError

if TYPE_CHECKING:
    import ssl

    from odradek.security.tls.config import TlsConfig

# Names of librdkafka for what Kafka's settings name otherwise.
_CERTIFICATE, _KEY, _AUTHORITY = "ssl.certificate.location", "ssl.key.location", "ssl.ca.location"


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of our own client. Raises CliError."""
    from odradek.security.tls.config import TlsSettingError
    from odradek.security.tls.contexts import client_context

    try:
        return client_context(_config(properties), Path.read_bytes).context
    except TlsSettingError as error:
        raise CliError(f"TLS: {error}", code=BAD_CONFIG) from None


def java_stores(properties: Mapping[str, str]) -> dict[str, str]:
    """What librdkafka takes in place of key and trust stores that it does not read: PEM text.

    Raises:
        CliError.
    """
    from cryptography.hazmat.primitives.serialization import Encoding

    from odradek.security.tls.config import TlsSettingError
    from odradek.security.tls.stores import load_identity, load_trusted

    config = _config(properties)
    found = {}
    try:
        identity = load_identity(config, Path.read_bytes) if config.keystore_location else None
        trusted = load_trusted(config, Path.read_bytes) if config.truststore_location else None
    except TlsSettingError as error:
        raise CliError(f"TLS: {error}", code=BAD_CONFIG) from None
    if identity is not None:
        found["ssl.certificate.pem"] = identity.certificates_pem()
        found["ssl.key.pem"] = identity.key_pem()
    if trusted is not None:
        found["ssl.ca.pem"] = "".join(each.public_bytes(Encoding.PEM).decode() for each in trusted)
    return found


def _config(properties: Mapping[str, str]) -> TlsConfig:
    from odradek.security.tls.config import TlsConfig

    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    if _CERTIFICATE in properties:
        chain = _text(properties, _CERTIFICATE)
        key = _text(properties, _KEY) if _KEY in properties else chain
    return TlsConfig(
        keystore_type=properties.get("ssl.keystore.type", ""),
        keystore_location=properties.get("ssl.keystore.location"),
        keystore_password=properties.get("ssl.keystore.password"),
        keystore_certificate_chain=chain,
        keystore_key=key,
        key_password=properties.get("ssl.key.password"),
        truststore_type=properties.get("ssl.truststore.type", ""),
        truststore_location=properties.get("ssl.truststore.location", properties.get(_AUTHORITY)),
        truststore_password=properties.get("ssl.truststore.password"),
        truststore_certificates=properties.get("ssl.truststore.certificates"),
        enabled_protocols=tuple(_list(properties.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))),
        cipher_suites=tuple(_list(properties.get("ssl.cipher.suites", ""))),
        endpoint_identification=properties.get("ssl.endpoint.identification.algorithm", "https"),
    )


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _text(properties: Mapping[str, str], key: str) -> str:
    try:
        return Path(properties[key]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in PEM"
        raise CliError(f"TLS: {key}={properties[key]}: {reason}", code=BAD_CONFIG) from None
