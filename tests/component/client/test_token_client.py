"""Tokens from an issuer: what it may answer, and how long a token is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from odradek.client.sasl import ENDPOINT_KEY, SaslSettingError
from odradek.security.client import tokens
from tests.support.waiting import eventually

_numbers = count()


@contextmanager
def issuer(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, held: threading.Event | None = None
) -> Iterator[dict[str, str]]:
    """Settings of a client whose issuer answers each request with this, once `held` is set; the number of requests is
    under `asked`."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            settings["asked"] = str(int(settings["asked"]) + 1)
            if held is not None:
                held.wait(60)
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing is printed into the test's output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        settings = {
            ENDPOINT_KEY: f"http://127.0.0.1:{server.server_port}/token",
            "sasl.oauthbearer.client.id": f"client {next(_numbers)}",  # tokens are kept, and ports come again
            "sasl.oauthbearer.client.secret": "s3cret",
            "asked": "0",
        }
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield settings
        finally:
            server.shutdown()
            thread.join()


def test_a_token_is_kept_while_it_is_good() -> None:
    with issuer(b'{"access_token": "t", "expires_in": 3600}') as settings:
        assert [tokens.current_token(settings) for _ in range(3)] == ["t"] * 3
        assert settings["asked"] == "1"
    with issuer(b'{"access_token": "t", "expires_in": 1e-9}') as settings:
        assert [tokens.current_token(settings) for _ in range(3)] == ["t"] * 3
        assert settings["asked"] == "3"


def test_a_slow_issuer_keeps_no_other_waiting() -> None:
    held = threading.Event()
    with (
        issuer(b'{"access_token": "late", "expires_in": 3600}', held=held) as slow,
        issuer(b'{"access_token": "t"}') as quick,
    ):
        with ThreadPoolExecutor(2) as pool:
            late = [pool.submit(tokens.current_token, slow) for _ in range(2)]
            try:
                eventually(lambda: slow["asked"] == "1", "the slow issuer is asked")
                assert tokens.current_token(quick) == "t"
                assert not any(each.done() for each in late)
            finally:
                held.set()
            assert [each.result(60) for each in late] == ["late", "late"]
        assert slow["asked"] == "1"


@pytest.mark.parametrize("lifetime", [b"NaN", b"Infinity", b"-1", b"1e300"])
def test_a_lifetime_that_cannot_be_is_taken_for_unknown(lifetime: bytes) -> None:
    with issuer(b'{"access_token": "t", "expires_in": %s}' % lifetime) as settings:
        assert tokens.current_token(settings) == "t"
        (kept,) = (kept for grant, kept in tokens._granted.items() if grant.url == settings[ENDPOINT_KEY])
        assert kept.refresh_at_s <= time.monotonic() + tokens.UNKNOWN_LIFETIME_S


@pytest.mark.parametrize(
    ("body", "status", "headers", "says"),
    [
        (b"{}", 200, {}, "answered without an access_token in JSON"),
        (b"[]", 200, {}, "answered without an access_token in JSON"),
        (b"", 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": "t"}', 401, {}, "answered 401"),
        (b"", 302, {"Location": "http://127.0.0.1:1/"}, "answered 302"),
        (b" " * (2 << 20), 200, {}, "gives no token: the document has more than"),
    ],
    ids=["none", "a list", "nothing", "refused", "elsewhere", "too long"],
)
def test_an_answer_without_a_token(body: bytes, status: int, headers: dict[str, str], says: str) -> None:
    with issuer(body, status, headers) as settings:
        with pytest.raises(SaslSettingError, match=says) as raised:
            tokens.current_token(settings)
        assert "s3cret" not in str(raised.value)
