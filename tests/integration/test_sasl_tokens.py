"""OAUTHBEARER: a stock client shows a token that an issuer signed; the node reads the issuer's keys, and again."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from joserfc import jwt
from joserfc.jwk import RSAKey

from odradek.cli import errors
from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.login import RefusedLoginError
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealClock, RealNetwork
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.security.client.settings import credentials
from tests.integration.test_sasl import SaslNode
from tests.support.clients.cli import odradek, odradek_process
from tests.support.clients.wire import Wire
from tests.support.nodes.certificates import Certificates
from tests.support.waiting import eventually

FIRST, SECOND = (RSAKey.generate_key(2048, {"kid": name}) for name in ("first", "second"))


def document(*keys: RSAKey) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


def token(key: RSAKey = FIRST, header: dict[str, Any] | None = None, **claims: Any) -> str:
    now = int(time.time())
    said = {"sub": "robot", "iss": "https://issuer", "aud": "odradek", "iat": now, "exp": now + 300} | claims
    return jwt.encode({"alg": "RS256", "kid": key.kid} | (header or {}), said, key)


def node_with(directory: Path, url: str, **settings: object) -> SaslNode:
    return SaslNode(
        directory,
        listener__name__external__sasl__enabled__mechanisms="OAUTHBEARER",
        sasl__oauthbearer__jwks__endpoint__url=url,
        sasl__oauthbearer__expected__issuer="https://issuer",
        sasl__oauthbearer__expected__audience="odradek",
        **settings,
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(document(FIRST))
    return path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[SaslNode]:
    with node_with(tmp_path_factory.mktemp("tokens"), f"file://{keys}").start() as node:
        eventually(lambda: "keys of tokens loaded" in node.log_text())
        yield node


def show(wire: Wire, text: str) -> Any:
    """Log in with a token; returns the last answer."""
    wire.request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    first = f"n,,\1auth=Bearer {text}\1\1".encode()
    answer = wire.request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=first))
    if not answer.error_code and answer.auth_bytes:
        answer = wire.request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\1"))
    return answer


def is_let_in(node: SaslNode, text: str) -> bool:
    with Wire(node.sasl_port) as wire:
        return bool(show(wire, text).error_code == ErrorCode.NONE)


def stock_client(node: SaslNode, give: Any, heard: list[KafkaError]) -> AdminClient:
    given: dict[str, Any] = {
        "bootstrap.servers": node.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": give,
        "error_cb": heard.append,
        "log_level": 0,
    }
    return AdminClient(given)


def test_a_stock_client_logs_in_with_a_token(node: SaslNode) -> None:
    client = stock_client(node, lambda _: (token(), time.time() + 300), [])
    client.poll(0)
    assert client.list_topics(timeout=60).brokers


def test_a_stock_client_with_a_foreign_token_is_refused(node: SaslNode) -> None:
    heard: list[KafkaError] = []
    client = stock_client(node, lambda _: (token(aud="other"), time.time() + 300), heard)
    eventually(lambda: client.poll(0.1) or [each for each in heard if each.code() == KafkaError._AUTHENTICATION])


def test_our_own_commands_log_in_with_a_token(node: SaslNode, tmp_path: Path) -> None:
    file, config = tmp_path / "token", tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
    )
    odradek(node.sasl_bootstrap, "cluster", "id", "--command-config", config, code=errors.BAD_CONFIG)
    file.write_text(token(aud="other"))
    refused = odradek(node.sasl_bootstrap, "cluster", "id", "--command-config", config, code=None)
    assert refused.code != errors.OK
    assert "another audience" in refused.err
    file.write_text(token())
    odradek(node.sasl_bootstrap, "topics", "create", "by-token", "--command-config", config)
    words = ("by-token", "--command-config", config)
    odradek_process(node.sasl_bootstrap, "produce", *words, stdin=b"one\n")
    read = odradek_process(node.sasl_bootstrap, "consume", *words, "--from-beginning", "--max-messages", 1)
    assert read.stdout == b"one\n"


async def test_a_client_that_lasts_has_the_newest_token_at_each_login(node: SaslNode, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token())
    who = credentials(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"file://{file}",
        }
    )

    async def asked() -> int:
        addresses = parse_bootstrap(node.sasl_bootstrap)
        async with Cluster(RealNetwork(), RealClock(), addresses, sasl=who) as cluster:
            return len((await cluster.metadata([])).brokers)

    assert await asked() == 1
    file.write_text(token(aud="other"))
    with pytest.raises(RefusedLoginError, match="another audience"):
        await asked()
    file.write_text(token())
    assert await asked() == 1


def test_a_session_ends_with_its_token(node: SaslNode) -> None:
    with Wire(node.sasl_port) as wire:
        answer = show(wire, token(exp=int(time.time()) + 120))
        assert 60_000 < answer.session_lifetime_ms <= 120_000
        assert wire.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).error_code == 0


def foreign_tokens() -> dict[str, str]:
    return {
        "another issuer": token(iss="https://other"),
        "expired": token(exp=int(time.time()) - 60),
        "another key of that name": token(RSAKey.generate_key(2048, {"kid": "first"})),
        "brings its key": token(header={"jku": "https://evil/keys"}),
        "unknown key": token(header={"kid": "unknown"}),
        "empty": "e30.e30.",
        "none": "abcdef",
    }


@pytest.mark.parametrize("what", foreign_tokens())
def test_tokens_that_lead_nowhere(node: SaslNode, what: str) -> None:
    text = foreign_tokens()[what]
    with Wire(node.sasl_port) as wire:
        assert show(wire, text).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_peer()
    assert text not in node.log_text()


def test_a_key_that_the_issuer_has_since_is_read(node: SaslNode, keys: Path) -> None:
    assert not is_let_in(node, token(SECOND))
    keys.write_text(document(SECOND))
    eventually(lambda: is_let_in(node, token(SECOND)))
    assert not is_let_in(node, token(FIRST))
    keys.write_text(document(FIRST))
    eventually(lambda: is_let_in(node, token(FIRST)))


def test_keys_over_https_are_read_from_trusted_issuers_only(tmp_path: Path) -> None:
    """A node serves once it has read them, so that it refuses no good token of a client that was waiting for it."""
    certificates = Certificates(tmp_path / "issuer")
    with serve(certificates, document(FIRST)) as port:
        url = f"https://localhost:{port}/keys"
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        trusted = {
            "listener__name__external__oauthbearer__sasl__jaas__config": (
                f'{module} ssl.truststore.location="{certificates.ca}";'
            )
        }
        with node_with(tmp_path / "trusting", url, **trusted).start() as node:
            assert is_let_in(node, token())
        with node_with(tmp_path / "wary", url).start() as node:
            eventually(lambda: "keys of tokens cannot be read" in node.log_text())
            assert not is_let_in(node, token())


def test_tokens_that_no_one_signed_are_taken_only_where_kafka_takes_them(node: SaslNode, tmp_path: Path) -> None:
    now = int(time.time())
    unsigned = f"{_part({'alg': 'none'})}.{_part({'sub': 'robot', 'iat': now, 'exp': now + 60})}."
    assert not is_let_in(node, unsigned)
    package = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    handler = f"{package}.OAuthBearerUnsecuredValidatorCallbackHandler"
    given = {"listener__name__external__oauthbearer__sasl__server__callback__handler__class": handler}
    given["listener__name__external__sasl__enabled__mechanisms"] = "OAUTHBEARER"
    with SaslNode(tmp_path, **given).start() as loose:
        assert is_let_in(loose, unsigned)
        assert not is_let_in(loose, token())
        assert "unsigned tokens are accepted" in loose.log_text()


def _part(value: Any) -> str:
    import base64

    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@contextmanager
def serve(certificates: Certificates, text: str) -> Iterator[int]:
    """A web server on this machine with one document, which takes its time."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.5)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("issuer", ("localhost",)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
