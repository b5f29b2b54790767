"""Connections to a cluster by client properties, as Kafka's tools read them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.sasl import SaslSettingError
from odradek.common.errors import ConfigError
from odradek.common.real_io import RealClock, RealNetwork
from odradek.security.client.settings import credentials, tls_context
from odradek.security.tls.config import TlsSettingError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def make_cluster(bootstrap: str, properties: Mapping[str, str], *, client_id: str, timeout_ms: int) -> Cluster:
    """A cluster that is not connected yet. May block while a token is requested.

    Raises:
        ConfigError: invalid properties; the text has no secret.
    """
    try:
        return Cluster(
            RealNetwork(),
            RealClock(),
            parse_bootstrap(bootstrap),
            client_id=properties.get("client.id", client_id),
            timeout_ms=timeout_ms,
            tls=client_tls(properties),
            sasl=credentials(properties),
        )
    except (SaslSettingError, ValueError) as error:
        raise ConfigError([str(error)]) from None


def client_tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """The TLS of a client; None if the security protocol has none. Raises ConfigError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError([f"security.protocol={protocol} is unknown; it is one of {', '.join(PROTOCOLS)}"])
    try:
        return tls_context(properties) if protocol.endswith("SSL") else None
    except (TlsSettingError, ValueError) as error:
        raise ConfigError([str(error)]) from None
