"""Clients reach an issuer of tokens and its keys over TLS by the `ssl.*` options of a JAAS entry, as with Kafka."""

from __future__ import annotations

import datetime
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from odradek.client.sasl import ENDPOINT_KEY, SaslSettingError
from odradek.security.client import tokens
from odradek.security.client.documents import read_document
from odradek.security.tls.development import make_authority, pkcs12_of
from odradek.testing.issuer import TokenIssuer

PASSWORD = "geheim"
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and a client's certificate, as PEM and as PKCS12."""
    folder = tmp_path_factory.mktemp("issuer")
    authority = make_authority("Test authority", now=NOW)
    (folder / "ca.pem").write_text(authority.pem)
    for name in ("issuer", "robot"):
        identity = authority.issue(name, ("127.0.0.1",), now=NOW)
        (folder / f"{name}.pem").write_bytes(identity.to_pem())
        (folder / f"{name}.p12").write_bytes(pkcs12_of(identity, PASSWORD))
    return folder


@pytest.fixture(scope="module")
def issuer(folder: Path) -> Iterator[TokenIssuer]:
    """One that wants its clients' certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "issuer.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    issuer = TokenIssuer({"robot": "secret"}, context, audience="kafka").start()
    yield issuer
    issuer.stop()


def stores(folder: Path, kind: str) -> dict[str, str]:
    if kind == "PEM":
        return {"ssl.truststore.location": f"{folder}/ca.pem", "ssl.keystore.location": f"{folder}/robot.pem"}
    found: dict[str, str] = {}
    for store in ("keystore", "truststore"):
        found |= {f"ssl.{store}.type": "PKCS12", f"ssl.{store}.location": f"{folder}/robot.p12"}
        found |= {f"ssl.{store}.password": PASSWORD}
    return found


def token(issuer: TokenIssuer, options: Mapping[str, str]) -> str:
    given = {"clientId": "robot", "clientSecret": "secret", **options}
    entry = " ".join(f'{name}="{text}"' for name, text in given.items())
    settings = {ENDPOINT_KEY: issuer.token_url, "sasl.jaas.config": f"a.OAuthBearerLoginModule required {entry};"}
    tokens._granted.clear()
    tokens._failed.clear()
    try:
        return tokens.current_token(settings | {"sasl.login.retry.backoff.max.ms": "0"})
    finally:
        tokens.end_renewals()


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_an_issuer_is_reached_with_both_certificates(issuer: TokenIssuer, folder: Path, kind: str) -> None:
    options = stores(folder, kind)
    assert token(issuer, options).count(".") == 2
    assert "keys" in json.loads(read_document(issuer.keys_url, options))


def test_an_issuer_is_not_reached_without_them(issuer: TokenIssuer, folder: Path) -> None:
    without = {"ssl.truststore.location": f"{folder}/ca.pem"}
    with pytest.raises(OSError):
        read_document(issuer.keys_url, without)
    with pytest.raises(SaslSettingError, match="gives no token"):
        token(issuer, without)
    wrong = stores(folder, "PKCS12") | {"ssl.truststore.password": "another"}
    with pytest.raises(OSError, match=r"is ssl.truststore.password right\?"):
        read_document(issuer.keys_url, wrong)
    with pytest.raises(SaslSettingError, match=r"is ssl.truststore.password right\?"):
        token(issuer, wrong)
    with pytest.raises(OSError, match="certificate verify failed"):
        read_document(issuer.keys_url, {})
