"""Settings of SASL: a listener that could not be served as they say keeps the node down, and no secret is said."""

from __future__ import annotations

import base64
import json
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from joserfc.jwk import ECKey

from odradek.client.sasl import sasl_exchange
from odradek.common.errors import ConfigError
from odradek.common.ports import NO_LIMITS
from odradek.common.real_io import RealClock, RealDisk, RealNetwork
from odradek.metadata.image import MetadataImage
from odradek.security.sasl.exchange import AuthenticationError
from odradek.security.sasl.tokens import TokenChecks
from odradek.server.network.login_gate import LoginGate
from odradek.server.parts.logins import Logins, own_credentials
from odradek.server.parts.ports import Ports
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources

PORTS = Ports(clock=RealClock(), disk=RealDisk(), network=RealNetwork(), random=Random(1), machine=NO_LIMITS)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
UNSECURED = f"{_PACKAGE}.OAuthBearerUnsecuredValidatorCallbackHandler"
OAUTH = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "file:///keys"}
KERBEROS = (
    'com.sun.security.auth.module.Krb5LoginModule required keyTab="/none.keytab" principal="kafka/localhost@REALM";'
)
CLAIMS = {"sasl.oauthbearer.expected.issuer": "i", "sasl.oauthbearer.expected.audience": "a,b"}


def settings(**given: str) -> BrokerSettings:
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "EXTERNAL://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": "EXTERNAL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "EXTERNAL",
    } | given
    return resolve(properties, Sources({}, lambda path: ""))


def logins(**given: str) -> list[str]:
    return list(Logins(settings(**given), MetadataImage, PORTS, ()).listeners["EXTERNAL"].mechanisms)


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ({"sasl.enabled.mechanisms": "scram-sha-512,SCRAM-SHA-256"}, ["SCRAM-SHA-512", "SCRAM-SHA-256"]),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f"{PLAIN} user_a=b;"}, ["PLAIN"]),
        (
            {
                "listener.name.external.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.external.plain.sasl.jaas.config": f"{PLAIN} user_a=b;",
                "sasl.jaas.config": f"{SCRAM};",
            },
            ["PLAIN"],
        ),
        (OAUTH | CLAIMS, ["OAUTHBEARER"]),
        (
            OAUTH
            | {
                "sasl.oauthbearer.allow.unverified.issuer": "true",
                "sasl.oauthbearer.allow.unverified.audience": "true",
            },
            ["OAUTHBEARER"],
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": UNSECURED}, ["OAUTHBEARER"]),
    ],
)
def test_mechanisms_are_offered_in_their_order(given: dict[str, str], offered: list[str]) -> None:
    assert logins(**given) == offered


@pytest.mark.parametrize(("secret", "blocking"), [({}, False), ({"delegation.token.secret.key": "of all"}, True)])
def test_hashes_of_delegation_tokens_are_made_beside_the_loop(secret: dict[str, str], blocking: bool) -> None:
    given = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", "sasl.jaas.config": f"{PLAIN} user_a=b;"} | secret
    listener = Logins(settings(**given), MetadataImage, PORTS, ()).listeners["EXTERNAL"]
    blocks = {}
    for mechanism in listener.mechanisms:
        gate = LoginGate(listener, now_ms=0)
        gate.begin(mechanism, 1, 0)
        blocks[mechanism] = gate.blocks
    assert blocks == {"SCRAM-SHA-256": blocking, "PLAIN": False}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "gssapi.sasl.jaas.config: GSSAPI needs it, as in: com.sun.security.auth.module.Krb5LoginModule"),
        ({"sasl.enabled.mechanisms": "NTLM"}, "NTLM is not served; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTH"),
        ({"sasl.jaas.config": KERBEROS}, "sasl.kerberos.service.name: is not set, nor is serviceName"),
        (
            {"sasl.jaas.config": f'{KERBEROS[:-1]} serviceName="a";', "sasl.kerberos.service.name": "b"},
            "sasl.kerberos.service.name: is another one than serviceName",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "plain.sasl.jaas.config: PLAIN needs it"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f"{SCRAM};"}, "PLAIN needs it"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f"{PLAIN} user_a=geheim"}, "must be one entry"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs it"),
        (OAUTH | CLAIMS | {"sasl.oauthbearer.jwks.endpoint.url": "http://keys"}, "file:///path or https://"),
        (OAUTH | {"sasl.oauthbearer.expected.issuer": "i"}, "sasl.oauthbearer.expected.audience: is not set"),
        (OAUTH | {"sasl.oauthbearer.expected.audience": "a"}, "sasl.oauthbearer.expected.issuer: is not set"),
        (
            OAUTH | CLAIMS | {"sasl.oauthbearer.jwt.validator.class": "com.example.Mine"},
            "sasl.oauthbearer.jwt.validator.class: there is no Mine here, and tokens would be taken without it",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.jaas.config": 'x.JndiLoginModule required a="geheim";'},
            "scram-sha-256.sasl.jaas.config: the login module must be one of PlainLoginModule, ScramLoginModule, OA",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.server.callback.handler.class": "com.example.Mine"},
            "there is no Mine here",
        ),
    ],
)
def test_unsupported_sasl_settings_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        logins(**given)
    (problem,) = error.value.problems
    assert problem.startswith("listener EXTERNAL: ")
    assert said in problem
    assert "geheim" not in problem


def test_each_mechanism_of_a_listener_may_have_settings_of_its_own() -> None:
    own = "listener.name.external.oauthbearer."
    given = (
        OAUTH
        | CLAIMS
        | {
            "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN,SCRAM-SHA-256",
            "sasl.jaas.config": f"{PLAIN} user_a=b;",
            f"{own}sasl.jaas.config": f"{BEARER};",
            f"{own}sasl.oauthbearer.expected.audience": "of-mechanism",
            f"{own}sasl.oauthbearer.clock.skew.seconds": "7",
            f"{own}connections.max.reauth.ms": "1000",
            "listener.name.external.sasl.oauthbearer.clock.skew.seconds": "8",
            "listener.name.external.connections.max.reauth.ms": "2000",
            "listener.name.external.plain.connections.max.reauth.ms": "0",
            "connections.max.reauth.ms": "3000",
        }
    )
    listener = Logins(settings(**given), MetadataImage, PORTS, ()).listeners["EXTERNAL"]
    assert listener.tokens is not None
    assert (listener.tokens.settings.audience, listener.tokens.settings.skew_s) == (("of-mechanism",), 7)
    assert listener.max_reauth_ms == {"OAUTHBEARER": 1000, "PLAIN": 0, "SCRAM-SHA-256": 2000}
    (line,) = settings(**given, **{f"{own}ssl.client.auth": "required"}).warnings
    assert line.endswith("ssl.client.auth is not a setting that the mechanism OAUTHBEARER of a listener can have")


def unsigned_checks(options: str) -> TokenChecks:
    """The checks of unsigned tokens on a listener whose JAAS entry has these options."""
    given = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": UNSECURED}
    given |= {"sasl.jaas.config": f"{BEARER} {options};"}
    checks = Logins(settings(**given), MetadataImage, PORTS, ()).listeners["EXTERNAL"].tokens
    assert checks is not None
    return checks


def unsigned(**claims: object) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims))
    return ".".join((*parts, ""))


@pytest.mark.parametrize(("skew_ms", "beyond_ms"), [("", 0), ("0", 0), (" 3000 ", 3000)])
def test_the_clock_of_unsigned_tokens_may_be_off_by_an_option(skew_ms: str, beyond_ms: int) -> None:
    checks = unsigned_checks(f'unsecuredValidatorAllowableClockSkewMs="{skew_ms}"')
    assert checks.check(unsigned(sub="alice", exp=1000), 999_999 + beyond_ms).name == "alice"
    with pytest.raises(AuthenticationError, match="has expired"):
        checks.check(unsigned(sub="alice", exp=1000), 1_000_000 + beyond_ms)
    early = unsigned(sub="alice", iat=1000, exp=2000)
    assert checks.check(early, 1_000_000 - beyond_ms).name == "alice"
    with pytest.raises(AuthenticationError, match="is not valid yet"):
        checks.check(early, 999_999 - beyond_ms)


@pytest.mark.parametrize("skew_ms", ["-1", "soon", "1.5", "4294967296"])
def test_a_skew_that_cannot_be_is_refused(skew_ms: str) -> None:
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs must be a number of milliseconds"):
        unsigned_checks(f'unsecuredValidatorAllowableClockSkewMs="{skew_ms}"')


def test_options_of_kafkas_validator_of_unsigned_tokens() -> None:
    checks = unsigned_checks(
        'unsecuredValidatorPrincipalClaimName="name" unsecuredValidatorScopeClaimName="scp"'
        ' unsecuredValidatorRequiredScope="read write"'
    )
    assert (checks.settings.subject_claim, checks.settings.scope_claim) == ("name", "scp")
    assert checks.scopes == ("read", "write")


def test_kerberos_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)  # as where it is not installed
    given = {"sasl.jaas.config": KERBEROS, "sasl.kerberos.service.name": "kafka"}
    with pytest.raises(ConfigError, match=r'GSSAPI needs the extra: pip install "odradek\[kerberos\]"'):
        logins(**given)
    with pytest.raises(ConfigError, match="GSSAPI needs the extra"):
        own_credentials(settings(**given), "EXTERNAL", Random(1))


def test_a_keytab_without_the_key_is_refused() -> None:
    pytest.importorskip("gssapi", reason="needs odradek[kerberos]")
    given = {"sasl.jaas.config": KERBEROS, "sasl.kerberos.service.name": "kafka"}
    with pytest.raises(ConfigError, match=r"gssapi.sasl.jaas.config: the key of the node cannot be used: "):
        logins(**given)
    with pytest.raises(ConfigError, match=r"to.local.rules: a rule is DEFAULT or RULE:"):
        logins(**given, **{"sasl.kerberos.principal.to.local.rules": "DEFAULT,RULE"})


def test_as_what_a_node_logs_in_to_others() -> None:
    entry = f'{SCRAM} username="broker" password="secret";'
    own = settings(
        **{
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.external.scram-sha-512.sasl.jaas.config": entry,
        }
    )
    who = own_credentials(own, "EXTERNAL", Random(1))
    assert who is not None
    assert (who.mechanism, who.username, who.password) == ("SCRAM-SHA-512", "broker", "secret")
    assert "secret" not in repr(who)
    assert own_credentials(own, "ELSEWHERE", Random(1)) is None


@pytest.mark.parametrize(
    ("listener", "given", "said"),
    [
        (
            "EXTERNAL",
            {"sasl.mechanism.inter.broker.protocol": "NTLM"},
            "sasl.mechanism.inter.broker.protocol=NTLM: must be PLAIN or SCRAM-SHA-256 or",
        ),
        ("EXTERNAL", {}, "gssapi.sasl.jaas.config: GSSAPI needs it"),
        ("EXTERNAL", {"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "needs username and password"),
        (
            "CONTROLLER",
            {
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
                "listener.security.protocol.map": "EXTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            },
            "must be PLAIN or OAUTHBEARER or GSSAPI for listener CONTROLLER: the users of SCRAM are known only once",
        ),
    ],
)
def test_a_node_without_a_name_for_others_is_refused(listener: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        own_credentials(settings(**given), listener, Random(1))


BETWEEN = {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"{ENDPOINT} must name the issuer of tokens"),
        ({ENDPOINT: "ftp://issuer"}, f"{ENDPOINT} must name the issuer of tokens"),
        ({ENDPOINT: "https://issuer/token"}, "clientId and clientSecret in the JAAS entry"),
        (
            {ENDPOINT: "https://issuer/token", "sasl.oauthbearer.jwt.retriever.class": "a.JwtBearerJwtRetriever"},
            "sasl.oauthbearer.assertion.private.key.file must name the key that signs assertions",
        ),
        (
            {ENDPOINT: "https://issuer/token", "sasl.jaas.config": f'{BEARER} clientId="geheim";'},
            "clientId and clientSecret in the JAAS entry",
        ),
    ],
)
def test_a_node_that_could_get_no_token_does_not_start(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        own_credentials(settings(**BETWEEN, **given), "EXTERNAL", Random(1))
    (problem,) = error.value.problems
    assert problem.startswith("listener EXTERNAL: ")
    assert said in problem
    assert "geheim" not in problem


@pytest.mark.parametrize(
    "given",
    [
        {"listener.name.external.oauthbearer.sasl.jaas.config": f'{BEARER} clientId="node" clientSecret="geheim";'},
        {
            "sasl.oauthbearer.client.credentials.client.id": "node",
            "listener.name.external.sasl.oauthbearer.client.credentials.client.secret": "geheim",
        },
    ],
)
def test_a_node_asks_an_issuer_for_its_tokens(given: dict[str, str]) -> None:
    who = own_credentials(settings(**BETWEEN, **given, **{ENDPOINT: "https://issuer/token"}), "EXTERNAL", Random(1))
    assert who is not None
    assert who.token is not None
    assert "geheim" not in repr(who)


SIGNS = {
    ENDPOINT: "https://issuer/token",
    "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
}


def test_a_node_signs_for_its_tokens(tmp_path: Path) -> None:
    """KIP-1139, by settings of its listener."""
    file = tmp_path / "key"
    file.write_text(ECKey.generate_key("P-256").as_pem(private=True).decode())
    own = {
        "listener.name.external.sasl.oauthbearer.assertion.private.key.file": str(file),
        "listener.name.external.oauthbearer.sasl.oauthbearer.assertion.algorithm": "ES256",
    }
    who = own_credentials(settings(**BETWEEN, **SIGNS, **own), "EXTERNAL", Random(1))
    assert who is not None
    assert who.token is not None
    file.write_text("no key")
    with pytest.raises(ConfigError, match=rf"private.key.file={file}: holds no private key in PKCS#8"):
        own_credentials(settings(**BETWEEN, **SIGNS, **own), "EXTERNAL", Random(1))


def test_a_node_reads_its_token_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {"listener.name.external.oauthbearer.sasl.oauthbearer.token.endpoint.url": f"file://{file}"}
    who = own_credentials(settings(**BETWEEN, **given), "EXTERNAL", Random(1))
    assert who is not None
    for text in ("first", "second"):
        file.write_text(text)
        assert next(sasl_exchange(who)) == f"n,,\1auth=Bearer {text}\1\1".encode()


def test_when_a_token_is_due_changes_at_run_time() -> None:
    given = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": UNSECURED, **BETWEEN}
    given |= {ENDPOINT: "https://issuer/token", "sasl.jaas.config": f'{BEARER} clientId="a" clientSecret="b";'}
    logins = Logins(settings(**given), MetadataImage, PORTS, ("EXTERNAL",))
    logins.change(settings(**given, **{"sasl.login.refresh.window.factor": "0.5"}))
    who = logins.credentials("EXTERNAL")
    assert who is not None
    assert isinstance(who.token, partial)
    assert who.token.args[0]["sasl.login.refresh.window.factor"] == "0.5"
