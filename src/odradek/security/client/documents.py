"""Requests to a token issuer, with the TLS options of a JAAS entry, as in Kafka's clients."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from odradek.common.real_https import read_https
from odradek.security.client.settings import tls_config


def issuer_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context of connections to an issuer; without certificates in the options, the system's are trusted.

    Raises:
        TlsSettingError: a store or a setting that cannot be used.
    """
    from odradek.security.tls.contexts import client_context  # which takes a while to load

    return client_context(tls_config(options), Path.read_bytes).context


def read_document(url: str, options: Mapping[str, str]) -> bytes:
    """Read a document over HTTPS, with the trust of these options. Blocks.

    Raises:
        OSError: as `read_https`, and for invalid options.
        ValueError: the address is not https://.
    """
    from odradek.security.tls.config import TlsSettingError

    try:
        context = issuer_context(options)
    except TlsSettingError as error:
        raise OSError(str(error)) from None
    return read_https(url, context)
