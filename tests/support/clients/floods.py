"""A client that floods a broker with tiny requests, and how long the requests of another one take meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# A process of its own: a thread would hold up the one that measures. Two connections keep the broker supplied.
_PROGRAM = """
import sys
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.metadata_request import MetadataRequest
from tests.support.clients.api_calls import Calls
floods = [Calls(int(sys.argv[1]), client_id=sys.argv[2]) for _ in range(2)]
while True:
    for calls in floods:
        for _ in range(100):
            calls.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    for calls in floods:
        for _ in range(100):
            calls.receive(ApiKey.METADATA, 12)
"""


@contextmanager
def flood(port: int, client_id: str) -> Iterator[None]:
    """Requests without a pause, as fast as they are answered."""
    # The lowest priority: it shall keep the broker busy, and not take the processor from the client that measures.
    command = ["nice", "-n", "19", sys.executable, "-c", _PROGRAM, str(port), client_id]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield
        assert process.poll() is None, "the flood has ended"
    finally:
        process.kill()
        process.wait()


def latencies_ms(request: Callable[[], object], seconds: float) -> list[float]:
    """The latencies of requests that are sent for some seconds, each two milliseconds after the one before it."""
    latencies, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        request()
        latencies.append((time.monotonic() - began) * 1000)
        time.sleep(0.002)
    return latencies
