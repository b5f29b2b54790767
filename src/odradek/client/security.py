"""TLS and SASL of outgoing connections to one listener."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.sasl import Credentials


def _no_tls() -> ssl.SSLContext | None:
    return None


def _no_sasl() -> Credentials | None:
    return None


@dataclass(frozen=True, slots=True)
class OutgoingSecurity:
    """The TLS and SASL of a node as the client of another node's listener.

    Attributes:
        tls: returns the context of the next connection, which may have been renewed; None without TLS.
        sasl: returns the credentials of the next connection; None without SASL.
    """

    tls: Callable[[], ssl.SSLContext | None] = _no_tls
    sasl: Callable[[], Credentials | None] = _no_sasl


PLAINTEXT = OutgoingSecurity()
