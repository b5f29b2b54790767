"""Tokens from an issuer: its possible answers, and the time for which a token is cached."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from odradek.client.sasl import ENDPOINT_KEY, SaslSettingError
from odradek.security.client import tokens
from odradek.security.sasl.config import OwnTokenConfig
from tests.support.waiting import PATIENCE_S, eventually

_numbers = count()


def kept_of(settings: Mapping[str, str]) -> tuple[tokens._Grant, tokens.Token]:
    """The cached grant and token of the issuer that these settings name."""
    (kept,) = (each for each in tokens._granted.items() if each[0].url == settings[ENDPOINT_KEY])
    return kept


def make_due(settings: Mapping[str, str]) -> None:
    """Another token is due, while the one at hand has not ended; it is asked for at the next login."""
    tokens.end_renewals()
    grant, kept = kept_of(settings)
    tokens._granted[grant] = replace(kept, refresh_at_s=0.0)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    tokens.end_renewals()
    assert not tokens._renewals


@contextmanager
def issuer(
    body: bytes,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    good: int = 0,
    held: threading.Event | None = None,
    troubles: int = 0,
) -> Iterator[dict[str, str]]:
    """Settings of a client whose issuer answers each request with this, once `held` is set, after some with 503 or with
    a good token; the number of requests is under `asked`."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            settings["asked"] = str(int(settings["asked"]) + 1)
            settings["authorization"] = self.headers.get("Authorization", "")
            is_good = int(settings["asked"]) <= good
            if held is not None and not is_good:
                held.wait(60)
            said = b'{"access_token": "good", "expires_in": 3600}' if is_good else body
            self.send_response(200 if is_good else 503 if int(settings["asked"]) <= troubles else status)
            for name, value in {**(headers or {}), "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *arguments: object) -> None:
            """Print nothing into the test's output."""

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


@pytest.mark.parametrize(("encode", "sent"), [("false", "a b:s/c%"), ("true", "a+b:s%2Fc%25"), (None, "a b:s/c%")])
def test_id_and_secret_go_as_kafkas_clients_send_them(encode: str | None, sent: str) -> None:
    with issuer(b'{"access_token": "t"}') as settings:
        settings |= {"sasl.oauthbearer.client.id": "a b", "sasl.oauthbearer.client.secret": "s/c%"}
        settings |= {} if encode is None else {"sasl.oauthbearer.header.urlencode": encode}
        assert tokens.current_token(settings) == "t"
        assert base64.b64decode(settings["authorization"].removeprefix("Basic ")).decode() == sent


def test_a_slow_issuer_does_not_delay_other_issuers() -> None:
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
def test_an_invalid_lifetime_counts_as_unknown(lifetime: bytes) -> None:
    with issuer(b'{"access_token": "t", "expires_in": %s}' % lifetime) as settings:
        assert tokens.current_token(settings) == "t"
        _, kept = kept_of(settings)
        assert kept.refresh_at_s <= time.monotonic() + tokens.UNKNOWN_LIFETIME_S


@pytest.mark.parametrize(
    ("body", "status", "headers", "says"),
    [
        (b"{}", 200, {}, "answered without an access_token in JSON"),
        (b"[]", 200, {}, "answered without an access_token in JSON"),
        (b"", 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": null}', 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": ""}', 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": 7}', 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": "t\\u00fc"}', 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": "t\\u0001"}', 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": "t", "expires_in": null}', 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": "t", "expires_in": %s}' % (b"9" * 400), 200, {}, "answered without an access_token"),
        (b'{"access_token": %s' % (b"[" * 100_000), 200, {}, "answered without an access_token in JSON"),
        (b'{"access_token": "t"}', 401, {}, "answered 401"),
        (b"", 302, {"Location": "http://127.0.0.1:1/"}, "answered 302"),
        (b" " * (2 << 20), 200, {}, "gives no token: the document has more than"),
    ],
    ids=[
        *("none", "a list", "nothing", "null", "empty", "a number", "no ASCII", "a control character"),
        *("no lifetime", "a long lifetime", "deep", "refused", "elsewhere", "too long"),
    ],
)
def test_an_answer_without_a_token(body: bytes, status: int, headers: dict[str, str], says: str) -> None:
    with issuer(body, status, headers) as settings:
        with pytest.raises(SaslSettingError, match=says) as raised:
            tokens.current_token(settings)
        assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(("body", "status"), [(b"", 503), (b"", 401), (b"{}", 200)])
def test_a_token_is_used_until_it_ends(body: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    with issuer(body, status, good=1) as settings:
        assert tokens.current_token(settings) == "good"
        before_s = time.monotonic()
        make_due(settings)
        assert tokens.current_token(settings) == "good"
        eventually(lambda: kept_of(settings)[1].refresh_at_s > before_s)
        grant, kept = kept_of(settings)
        assert settings["asked"] == "2"
        assert before_s + 10 <= kept.refresh_at_s <= time.monotonic() + 10
        (line,) = (record for record in caplog.records if record.name == "odradek.security.tokens")
        assert line.levelname == "WARNING"
        tokens._granted[grant] = replace(kept, expires_at_s=0.0)
        settings["sasl.login.retry.backoff.max.ms"] = "0"
        with pytest.raises(SaslSettingError, match="answered"):
            tokens.current_token(settings)


def test_a_slow_issuer_does_not_delay_clients_with_a_token() -> None:
    held = threading.Event()
    with issuer(b'{"access_token": "next"}', held=held, good=1) as settings:
        assert tokens.current_token(settings) == "good"
        make_due(settings)
        try:
            assert tokens.current_token(settings) == "good"
            eventually(lambda: settings["asked"] == "2", "the issuer is asked")
            assert tokens.current_token(settings) == "good"
        finally:
            held.set()
        eventually(lambda: tokens.current_token(settings) == "next")
        assert settings["asked"] == "2"


# Prints the token of a process that is forked while another one is asked for in the background.
FORKING = """
import json, os, sys, threading, time
from dataclasses import replace
from odradek.security.client import tokens

settings = json.loads(sys.argv[1])
assert tokens.current_token(settings) == "good"
tokens.end_renewals()
(grant,) = tokens._granted
tokens._granted[grant] = replace(tokens._granted[grant], refresh_at_s=0.0)
assert tokens.current_token(settings) == "good"  # another one is due, and a thread asks for it
print("asking", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    tokens._granted.clear()  # as if it had ended
    print(tokens.current_token(settings), flush=True)
    os._exit(0)
os.wait()
os._exit(0)
"""


def test_a_process_forked_amid_a_renewal_has_its_own_token() -> None:
    held = threading.Event()
    with issuer(b'{"access_token": "another", "expires_in": 3600}', good=1, held=held) as settings:
        command = [sys.executable, "-W", "ignore", "-c", FORKING, json.dumps(settings)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                assert process.stdout.readline() == "asking\n"
                eventually(lambda: settings["asked"] == "2", "the issuer is asked in the background")
                process.stdin.write("fork\n")
                process.stdin.flush()
                # The child asks, too; a lock that its parent's thread held would keep it waiting for ever.
                eventually(lambda: settings["asked"] == "3", "the issuer is asked by the fork")
                held.set()
                assert process.stdout.readline() == "another\n"
                assert process.wait(PATIENCE_S) == 0
            finally:
                held.set()
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def has_asked(settings: Mapping[str, str], count: str) -> bool:
    return settings["asked"] == count


def test_a_token_is_renewed_before_the_next_login() -> None:
    """A token that no login uses any more is not renewed."""
    with issuer(b'{"access_token": "next", "expires_in": 3600}', good=1) as settings:
        assert tokens.current_token(settings) == "good"
        for asked in ("2", "3"):
            make_due(settings)
            grant, due = kept_of(settings)
            tokens._unused[grant] = int(asked) - 2
            tokens._renew_in_time(grant, tokens._built(OwnTokenConfig, settings), due)
            eventually(partial(has_asked, settings, asked), "the issuer is asked")
            eventually(lambda: kept_of(settings)[1].text == "next")
        make_due(settings)
        grant, due = kept_of(settings)
        tokens._renew_in_time(grant, tokens._built(OwnTokenConfig, settings), due)
        eventually(lambda: not tokens._renewals)
        assert settings["asked"] == "3"
        assert tokens.current_token(settings) == "next", "which a login has at once"
        eventually(lambda: settings["asked"] == "4", "and has the next one asked for again")


@pytest.mark.parametrize(("status", "is_refused"), [(400, True), (401, True), (404, False), (503, False)])
def test_a_failure_is_cached_for_a_while(status: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pause_s = 600.0  # which is long for a slow machine
    monkeypatch.setattr(tokens, "_REFUSED_PAUSE_S" if is_refused else "_TROUBLE_PAUSE_S", pause_s)
    held = threading.Event()
    with issuer(b"", status, held=held) as settings, ThreadPoolExecutor(3) as pool:
        settings["sasl.login.retry.backoff.max.ms"] = "0"
        asking = [pool.submit(tokens.current_token, settings) for _ in range(3)]
        try:
            eventually(lambda: settings["asked"] == "1", "the issuer is asked")
        finally:
            held.set()
        for each in asking:
            with pytest.raises(SaslSettingError, match=f"answered {status}"):
                each.result(60)
        assert settings["asked"] == "1"
        (grant,) = (grant for grant in tokens._failed if grant.url == settings[ENDPOINT_KEY])
        tokens._failed[grant] = replace(tokens._failed[grant], ends_at_s=0.0)
        with pytest.raises(SaslSettingError, match=f"answered {status}"):
            tokens.current_token(settings)
        assert settings["asked"] == "2"


def test_requests_are_retried_after_errors_of_the_issuer() -> None:
    with issuer(b'{"access_token": "t"}', troubles=2) as settings:
        settings |= {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "100000"}
        assert tokens.current_token(settings) == "t"
        assert settings["asked"] == "3"


def test_a_refusal_of_the_issuer_is_not_retried() -> None:
    with issuer(b"", 401) as settings:
        with pytest.raises(SaslSettingError, match="answered 401"):
            tokens.current_token(settings)
        assert settings["asked"] == "1"


@pytest.mark.parametrize("setting", ["sasl.login.read.timeout.ms", "sasl.login.connect.timeout.ms"])
def test_a_silent_issuer_times_out(setting: str) -> None:
    held = threading.Event()
    says = "timed out" if "connect" in setting else r"did not come within 0\.05 s"
    with socket.create_server(("127.0.0.1", 0)) as silent, issuer(b"", held=held) as settings:
        if "connect" in setting:  # the connection is there, and no handshake follows
            settings[ENDPOINT_KEY] = f"https://127.0.0.1:{silent.getsockname()[1]}/token"
        settings |= {setting: "50", "sasl.login.retry.backoff.max.ms": "0"}
        try:
            with pytest.raises(SaslSettingError, match=says):
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
        (100, {"window.factor": "1", "window.jitter": "0.25"}, 100, 100.1),  # when it ends
        (10_000, {"window.factor": "0.5", "window.jitter": "0"}, 5000, 5000.1),
    ],
)
def test_when_another_token_is_due(lives_s: int, given: dict[str, str], least_s: float, most_s: float) -> None:
    with issuer(b'{"access_token": "t", "expires_in": %d}' % lives_s) as settings:
        settings |= {f"sasl.login.refresh.{name}": text for name, text in given.items()}
        before_s = time.monotonic()
        tokens.current_token(settings)
        _, kept = kept_of(settings)
        assert before_s + least_s <= kept.refresh_at_s <= time.monotonic() + most_s


def test_invalid_settings_of_tokens() -> None:
    with issuer(b"{}") as settings:
        settings["sasl.login.retry.backoff.ms"] = "soon"
        with pytest.raises(SaslSettingError, match=r"sasl.login.retry.backoff.ms: "):
            tokens.current_token(settings)


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["headers", "document"])
def test_an_issuer_that_sends_byte_by_byte_times_out(beginning: bytes) -> None:
    """Each byte comes soon after the one before, and the answer never."""
    ended = threading.Event()

    def drip() -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(beginning)
            while not ended.wait(0.01):
                peer.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip)
        thread.start()
        settings = {
            ENDPOINT_KEY: f"http://127.0.0.1:{server.getsockname()[1]}/token",
            "sasl.oauthbearer.client.id": f"client {next(_numbers)}",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.login.read.timeout.ms": "200",
            "sasl.login.retry.backoff.max.ms": "0",
        }
        try:
            with pytest.raises(SaslSettingError, match=r"did not come within 0\.2 s"):
                tokens.current_token(settings)
        finally:
            ended.set()
            thread.join()
