"""Security of a client, from settings by the names of Kafka's Java clients or of librdkafka.

Our own clients get a TLS context. librdkafka gets PEM instead of Java's stores, a name and a password instead of a JAAS
entry, and a callback for tokens. The formats of stores are those of a node's settings: PEM, PKCS12, JKS; without a type
the file decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from odradek.client.sasl import ENDPOINT_KEY, Credentials, credentials_from, has_sasl, ticket_from

if TYPE_CHECKING:
    import ssl

    from odradek.security.tls.config import TlsConfig

# The interval in which librdkafka requests a token; it is renewed earlier than that before it expires.
TOKEN_S = 60.0

# Names of librdkafka that differ from Kafka's.
_CERTIFICATE, _KEY, _AUTHORITY = "ssl.certificate.location", "ssl.key.location", "ssl.ca.location"
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_TYPES = ("ssl.keystore.type", "ssl.truststore.type")
# Settings of logins that librdkafka does not know, or means otherwise: tokens are fetched here, but where its own way
# (`oidc`) is asked for by name.
_OF_LOGINS = ("sasl.oauthbearer.", "sasl.login.", "sasl.jaas.config", "https.ca.")
_METHOD = "sasl.oauthbearer.method"
# Settings that name stores, or belong to them: librdkafka gets what the stores hold.
_STORES = (
    _CERTIFICATE,
    _KEY,
    _AUTHORITY,
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
)


def credentials(settings: Mapping[str, str]) -> Credentials | None:
    """The credentials of our own client; None without SASL. Blocks during a request to the issuer.

    Raises:
        SaslSettingError: a mechanism that is not supported, no name and password, or no token.
    """
    return credentials_from(settings, SystemRandom(), token=_current_token)


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The context of our own client.

    Raises:
        TlsSettingError: the error, and what to do.
    """
    from odradek.security.tls.contexts import client_context

    return client_context(tls_config(settings), Path.read_bytes).context


def librdkafka_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """The same settings, those of security as librdkafka takes them; others stay as they are.

    Raises:
        TlsSettingError: a store cannot be read.
        SaslSettingError: a JAAS entry without name and password, or a mechanism that is not supported.
    """
    found: dict[str, Any] = {_RENAMED.get(name, name): value for name, value in settings.items() if name not in _TYPES}
    if "ssl.keystore.location" in settings or "ssl.truststore.location" in settings:
        for name in _STORES:
            found.pop(name, None)
        found |= _stores_as_pem(tls_config(settings))
    is_by_token = settings.get("sasl.mechanism", "").upper() == "OAUTHBEARER" and ENDPOINT_KEY in settings
    if not has_sasl(settings):
        found = _without_logins(found)
    elif is_by_token and _METHOD not in settings:
        found = _without_logins(found)
        credentials(settings)  # settings without a token are an error at once, not a line in the log of librdkafka
        found["oauth_cb"] = partial(_token, dict(settings))
    elif found.pop("sasl.jaas.config", None):
        found |= _of_entry(settings)
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _without_logins(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not name.startswith(_OF_LOGINS)}


def _of_entry(settings: Mapping[str, str]) -> dict[str, str]:
    """The options of the JAAS entry, with the names of librdkafka."""
    if settings.get("sasl.mechanism", "GSSAPI").upper() == "GSSAPI":
        return ticket_from(settings).for_librdkafka()
    who = credentials(settings)
    return {} if who is None else {"sasl.username": who.username, "sasl.password": who.password}


def tls_config(settings: Mapping[str, str]) -> TlsConfig:
    """Keys, authorities, versions and suites. Raises TlsSettingError for a file of librdkafka's names."""
    from odradek.security.tls.config import TlsConfig

    chain, key = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.key")
    keystore = settings.get("ssl.keystore.location")
    if _CERTIFICATE in settings:
        chain = _text(settings, _CERTIFICATE)
        key = _text(settings, _KEY) if _KEY in settings else chain
    elif keystore is not None and _KEY in settings:  # the certificates alone by Java's name
        chain, key, keystore = _text(settings, "ssl.keystore.location"), _text(settings, _KEY), None
    return TlsConfig(
        keystore_type=settings.get("ssl.keystore.type", ""),
        keystore_location=keystore,
        keystore_password=settings.get("ssl.keystore.password"),
        keystore_certificate_chain=chain,
        keystore_key=key,
        key_password=settings.get("ssl.key.password"),
        truststore_type=settings.get("ssl.truststore.type", ""),
        truststore_location=settings.get("ssl.truststore.location", settings.get(_AUTHORITY)),
        truststore_password=settings.get("ssl.truststore.password"),
        truststore_certificates=settings.get("ssl.truststore.certificates"),
        enabled_protocols=tuple(_list(settings.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))),
        cipher_suites=tuple(_list(settings.get("ssl.cipher.suites", ""))),
        endpoint_identification=settings.get("ssl.endpoint.identification.algorithm", "https"),
    )


def _stores_as_pem(config: TlsConfig) -> dict[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding

    from odradek.security.tls.stores import load_identity, load_trusted

    found = {}
    identity = load_identity(config, Path.read_bytes)
    if identity is not None:
        found["ssl.certificate.pem"] = identity.certificates_pem()
        found["ssl.key.pem"] = identity.key_pem()
    trusted = load_trusted(config, Path.read_bytes)
    if trusted is not None:
        found["ssl.ca.pem"] = "".join(each.public_bytes(Encoding.PEM).decode() for each in trusted)
    return found


def _current_token(settings: Mapping[str, str]) -> str:
    from odradek.security.client.tokens import current_token  # which loads an HTTP client

    return current_token(settings)


def _token(settings: Mapping[str, str], _: str) -> tuple[str, float]:
    """A token, and the time at which librdkafka requests the next one."""
    return _current_token(settings), time.time() + TOKEN_S


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _text(settings: Mapping[str, str], name: str) -> str:
    from odradek.security.tls.config import TlsSettingError

    try:
        return Path(settings[name]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in PEM"
        raise TlsSettingError(f"{name}={settings[name]}: {reason}") from None
