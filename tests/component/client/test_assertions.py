"""Tokens for an assertion that the client signs (KIP-1139, KIP-1258), from an issuer that verifies it."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from odradek.client.sasl import ENDPOINT_KEY, SaslSettingError
from odradek.security.client import tokens
from odradek.security.sasl.config import OwnTokenConfig
from odradek.security.tls.development import make_authority
from odradek.testing.issuer import TokenIssuer

PREFIX = "sasl.oauthbearer.assertion."
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
BEARER = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
PASSWORD = "geheim"
RSA, CURVE = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
ENCRYPTED = BestAvailableEncryption(PASSWORD.encode())
_numbers = count()


def stored(key: Any, encoding: Encoding = Encoding.PEM, encryption: Any = None) -> bytes:
    return bytes(key.private_bytes(encoding, PrivateFormat.PKCS8, encryption or NoEncryption()))


KEYS = {
    "PEM": (stored(RSA), {}),
    "base64": (base64.encodebytes(stored(RSA, Encoding.DER)), {}),
    "encrypted PEM": (stored(RSA, Encoding.PEM, ENCRYPTED), {f"{PREFIX}private.key.passphrase": PASSWORD}),
    "encrypted DER": (stored(RSA, Encoding.DER, ENCRYPTED), {f"{PREFIX}private.key.passphrase": PASSWORD}),
    "a curve": (stored(CURVE), {f"{PREFIX}algorithm": "es256"}),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TokenIssuer, Path]]:
    """An issuer, and the certificate of its authority."""
    folder, now = tmp_path_factory.mktemp("issuer"), datetime.datetime.now(datetime.UTC)
    authority = make_authority("Test authority", now=now)
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "own.pem").write_bytes(authority.issue("issuer", ("127.0.0.1",), now=now).to_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")
    issuer = TokenIssuer({}, context, audience="kafka").start()
    yield issuer, folder / "ca.pem"
    issuer.stop()


class Signer:
    """The settings of a client with a name of its own, whose key the issuer knows."""

    def __init__(self, served: tuple[TokenIssuer, Path], folder: Path, key: Any = RSA) -> None:
        self.issuer, authority = served
        self.name, self.folder = f"robot-{next(_numbers)}", folder
        self.issuer.trust(self.name, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        self.settings = {
            ENDPOINT_KEY: self.issuer.token_url,
            "https.ca.location": str(authority),
            f"{PREFIX}private.key.file": self.file("key", stored(key)),
            f"{PREFIX}claim.iss": self.name,
            f"{PREFIX}claim.sub": self.name,
            f"{PREFIX}claim.aud": self.issuer.token_url,
            "sasl.login.retry.backoff.max.ms": "0",
        }

    def file(self, name: str, content: bytes | str) -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def subject(self, **changed: str | None) -> str:
        """Whom the token is for that the issuer gives."""
        given = self.settings | {name: text for name, text in changed.items() if text is not None}
        settings = {name: text for name, text in given.items() if changed.get(name, "") is not None}
        tokens._granted.clear()
        tokens._failed.clear()
        try:
            return str(part(tokens.current_token(settings), 1)["sub"])
        finally:
            tokens.end_renewals()


def part(text: str, number: int) -> dict[str, Any]:
    found = text.split(".")[number]
    return dict(json.loads(base64.urlsafe_b64decode(found + "=" * (-len(found) % 4))))


@pytest.fixture
def signer(served: tuple[TokenIssuer, Path], tmp_path: Path) -> Signer:
    return Signer(served, tmp_path)


@pytest.mark.parametrize("retriever", [BEARER, None], ids=["as the grant", "in place of a secret"])
@pytest.mark.parametrize("kind", KEYS)
def test_an_assertion_gets_a_token(
    served: tuple[TokenIssuer, Path], tmp_path: Path, kind: str, retriever: str | None
) -> None:
    content, further = KEYS[kind]
    signer = Signer(served, tmp_path, CURVE if kind == "a curve" else RSA)
    key = signer.file("its key", content)
    assert signer.subject(**{f"{PREFIX}private.key.file": key, RETRIEVER: retriever}, **further) == signer.name


def test_the_names_of_librdkafka_ask_for_the_same_grant(signer: Signer) -> None:
    template = signer.file("template", json.dumps({"header": {"kid": "k"}, "payload": {"sub": signer.name}}))
    named = {
        "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        f"{PREFIX}jwt.template.file": template,
        f"{PREFIX}claim.sub": None,
        f"{PREFIX}claim.iss": None,
    }
    assert signer.subject(**named) == signer.name


def test_parts_of_an_assertion(signer: Signer) -> None:
    template = {"header": {"kid": "k", "alg": "none", "x-own": 1}, "payload": {"team": ["a"], "exp": 1, "sub": "x"}}
    grant = tokens._grant_of(
        signer.settings
        | {
            f"{PREFIX}template.file": signer.file("template", json.dumps(template)),
            f"{PREFIX}claim.exp.seconds": "600",
            f"{PREFIX}claim.nbf.seconds": "120",
            f"{PREFIX}claim.jti.include": "true",
        },
        OwnTokenConfig(),
    )
    assert grant.assertion is not None
    first, second = grant.assertion.text(), grant.assertion.text()
    assert part(first, 0) == {"kid": "k", "x-own": 1, "alg": "RS256", "typ": "JWT"}
    claims = part(first, 1)
    assert (claims["team"], claims["sub"]) == (["a"], signer.name)
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (600, 120)
    assert claims["jti"] != part(second, 1)["jti"]


def test_an_assertion_that_another_process_renews(signer: Signer) -> None:
    """It is read for each request: an issuer takes one with an id once."""
    own = signer.settings | {f"{PREFIX}claim.jti.include": "true"}
    grant = tokens._grant_of(own, OwnTokenConfig())
    assert grant.assertion is not None
    of_file = {f"{PREFIX}file": signer.file("assertion", grant.assertion.text()), f"{PREFIX}private.key.file": None}
    assert signer.subject(**of_file) == signer.name
    with pytest.raises(SaslSettingError, match="answered 401"):
        signer.subject(**of_file)
    signer.file("assertion", grant.assertion.text() + "\n")
    assert signer.subject(**of_file) == signer.name


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({f"{PREFIX}private.key.file": "/none"}, r"private.key.file=/none: No such file or directory"),
        ({f"{PREFIX}private.key.file": "key", f"{PREFIX}private.key.passphrase": PASSWORD}, "does not open it"),
        ({f"{PREFIX}private.key.file": "locked"}, "holds no private key in PKCS#8, or"),
        ({f"{PREFIX}private.key.file": "text"}, "holds no private key in PKCS#8, or"),
        ({f"{PREFIX}algorithm": "ES256"}, r"algorithm=ES256: the key of \S+ is of another kind"),
        ({f"{PREFIX}algorithm": "none"}, "algorithm: must be one of ES256, RS256"),
        ({f"{PREFIX}template.file": "text"}, "must be JSON with header and payload, both objects"),
        ({f"{PREFIX}file": "text"}, "the file holds no signed assertion"),
        ({f"{PREFIX}private.key.file": None}, "must name the key that signs assertions"),
        ({f"{PREFIX}private.key.file": None, f"{PREFIX}claim.iss": None}, "client.secret must be set"),
        (
            {f"{PREFIX}private.key.file": None, f"{PREFIX}claim.iss": None, RETRIEVER: BEARER},
            "must name the key that signs assertions",
        ),
        ({RETRIEVER: "com.example.Mine"}, "there is no Mine here; there are DefaultJwtRetriever, FileJwtRetriever,"),
        ({RETRIEVER: "a.FileJwtRetriever"}, r"must be file://… for FileJwtRetriever"),
        ({ENDPOINT_KEY: "file:///none", RETRIEVER: BEARER}, r"must be https://… or http://… for JwtBearer"),
        ({f"{PREFIX}claim.aud": "another"}, "answered 401"),
    ],
)
def test_invalid_assertions(signer: Signer, changed: dict[str, str | None], says: str) -> None:
    signer.file("locked", stored(RSA, Encoding.PEM, ENCRYPTED))
    signer.file("text", "root:geheim:0:0\n")
    placed = {
        name: str(signer.folder / text) if name.endswith("file") and text and "/" not in text else text
        for name, text in changed.items()
    }
    with pytest.raises(SaslSettingError, match=says) as raised:
        signer.subject(**placed)
    assert "geheim" not in str(raised.value)
    if "answered" not in says:
        with pytest.raises(SaslSettingError, match=says):  # so does a node at its start
            given = {**signer.settings, **{name: text for name, text in placed.items() if text is not None}}
            tokens.check_token_settings({name: given[name] for name in given if placed.get(name, "") is not None})


def test_a_file_that_holds_no_token_is_not_sent(tmp_path: Path) -> None:
    """A setting may name any file of the machine (CVE-2025-27817)."""
    file = tmp_path / "passwords"
    for content in ("root:geheim:0:0\nalice:geheim\n", "geheim x", "", "ä"):
        file.write_text(content)
        with pytest.raises(SaslSettingError, match="passwords holds no token") as raised:
            tokens.current_token({ENDPOINT_KEY: f"file://{file}"})
        assert "geheim" not in str(raised.value)
    file.write_text(" a.b-_~+/.c== \n")
    assert tokens.current_token({ENDPOINT_KEY: f"file://{file}"}) == "a.b-_~+/.c=="
