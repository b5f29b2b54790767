"""Reads one document over HTTPS; blocks. For what a node looks up now and then, as the keys of who issues tokens."""

from __future__ import annotations

import ssl
import time
import urllib.request
from typing import Any

TIMEOUT_S = 10.0
MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Where the document is, is said by who runs the node, and by no one else."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def read_https(url: str, authorities: str | None = None) -> bytes:
    """A document of at most MOST_BYTES.

    Args:
        authorities: file with the certificates that are trusted (PEM); the system's without.
    Raises:
        OSError: it is not served to us: no connection, no trust, no status 200, too long, or too slow.
        ValueError: the address is no https:// one.
    """
    if not url.lower().startswith("https://"):
        raise ValueError("the address must begin with https://")
    context = ssl.create_default_context(cafile=authorities)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )
    deadline = time.monotonic() + TIMEOUT_S
    data = bytearray()
    with opener.open(url, timeout=TIMEOUT_S) as answer:
        while piece := answer.read1(_CHUNK_BYTES):
            data += piece
            if len(data) > MOST_BYTES:
                raise OSError(f"the document has more than {MOST_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the document did not come within {TIMEOUT_S:g} s")
    return bytes(data)
