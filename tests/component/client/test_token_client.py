"""Tokens from an issuer: what it may answer, and how long a token is kept."""

from __future__ import annotations

import socket
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
    body: bytes,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    held: threading.Event | None = None,
    troubles: int = 0,
) -> Iterator[dict[str, str]]:
    """Settings of a client whose issuer answers each request with this, once `held` is set, after some with 503; the
    number of requests is under `asked`."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            settings["asked"] = str(int(settings["asked"]) + 1)
            if held is not None:
                held.wait(60)
            self.send_response(503 if int(settings["asked"]) <= troubles else status)
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


def test_an_issuer_that_has_trouble_is_asked_again() -> None:
    with issuer(b'{"access_token": "t"}', troubles=2) as settings:
        settings |= {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "100000"}
        assert tokens.current_token(settings) == "t"
        assert settings["asked"] == "3"


def test_an_issuer_that_refuses_is_asked_once() -> None:
    with issuer(b"", 401) as settings:
        with pytest.raises(SaslSettingError, match="answered 401"):
            tokens.current_token(settings)
        assert settings["asked"] == "1"


@pytest.mark.parametrize("setting", ["sasl.login.read.timeout.ms", "sasl.login.connect.timeout.ms"])
def test_an_issuer_that_is_silent_is_not_waited_for(setting: str) -> None:
    held = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent, issuer(b"", held=held) as settings:
        if "connect" in setting:  # the connection is there, and no handshake follows
            settings[ENDPOINT_KEY] = f"https://127.0.0.1:{silent.getsockname()[1]}/token"
        settings |= {setting: "50", "sasl.login.retry.backoff.max.ms": "0"}
        try:
            with pytest.raises(SaslSettingError, match="timed out"):
                tokens.current_token(settings)
        finally:
            held.set()


@pytest.mark.parametrize(
    ("lives_s", "given", "least_s", "most_s"),
    [
        (1000, {}, 700, 700.1),  # by the buffer
        (10_000, {}, 8000, 8500),
        (400, {"min.period.seconds": "100"}, 100, 100.1),  # which the buffer gives way to
        (100, {}, 80, 85),
        (10_000, {"window.factor": "0.5", "window.jitter": "0"}, 5000, 5000.1),
    ],
)
def test_when_another_token_is_due(lives_s: int, given: dict[str, str], least_s: float, most_s: float) -> None:
    with issuer(b'{"access_token": "t", "expires_in": %d}' % lives_s) as settings:
        settings |= {f"sasl.login.refresh.{name}": text for name, text in given.items()}
        before_s = time.monotonic()
        tokens.current_token(settings)
        (kept,) = (kept for grant, kept in tokens._granted.items() if grant.url == settings[ENDPOINT_KEY])
        assert before_s + least_s <= kept.refresh_at_s <= time.monotonic() + most_s


def test_a_setting_of_tokens_that_cannot_be() -> None:
    with issuer(b"{}") as settings:
        settings["sasl.login.retry.backoff.ms"] = "soon"
        with pytest.raises(SaslSettingError, match=r"sasl.login.retry.backoff.ms: "):
            tokens.current_token(settings)
