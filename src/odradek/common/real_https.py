"""One request over HTTPS; blocks. For what is looked up now and then: keys of an issuer of tokens, and its tokens."""

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
    request = urllib.request.Request(url)  # noqa: S310 - https alone, as was just seen
    return exchange(request, ssl.create_default_context(cafile=authorities))


def exchange(request: urllib.request.Request, context: ssl.SSLContext) -> bytes:
    """The answer to a request, of at most MOST_BYTES. No redirect is followed, which would take secrets elsewhere.

    Raises:
        OSError: as `read_https`; an HTTPError, which must be closed, where the status is not 200 to 299.
    """
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )
    deadline = time.monotonic() + TIMEOUT_S
    data = bytearray()
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        while piece := answer.read1(_CHUNK_BYTES):
            data += piece
            if len(data) > MOST_BYTES:
                raise OSError(f"the document has more than {MOST_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the document did not come within {TIMEOUT_S:g} s")
    return bytes(data)
