"""librdkafka's own tests over TLS and by each login: the suites of its `sasl_test.py`, and its tests about logins.

That script starts a cluster of Apache Kafka for each suite, with a right or a wrong login, and runs all tests or a few.
Here the suites run on one node in plain text, on one of Kerberos, and on three brokers over TLS; where the script runs
all tests, those of SMOKE are run. Subtests of share groups are left out, as Odradek has no share groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from odradek.security.tls.development import pkcs12_of
from odradek.testing import SecuredCluster
from odradek.testing.secured import Login
from tests.interop.brokers import LIBRDKAFKA_SETTINGS
from tests.interop.librdkafka_suite import Outcome, run_test, runner
from tests.interop.packages import MissingError
from tests.interop.test_librdkafka import SMOKE
from tests.support.nodes.kerberos import KerberosNode, Realm, require_kerberos
from tests.support.nodes.node import Node, free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.only_ours, pytest.mark.timeout(900)]

ALL = tuple(SMOKE.split())
MODULES = "org.apache.kafka.common.security"
UNSECURED = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
USER, PASSWORD = "myuser", "mypassword"
# Clients log in again after it, on their connections; the tests of 0142 last a little longer than that.
REAUTHENTICATION_MS = 4000
TRIES = 3
_numbers = itertools.count()


class PlainNode(Node):
    """A node without TLS: its listener LOGINS is for passwords, TOKENS for unsigned tokens with a scope."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, LIBRDKAFKA_SETTINGS)
        self.ports = {name: free_port() for name in ("LOGINS", "TOKENS")}
        added = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        scope = 'unsecuredValidatorRequiredScope="requiredScope"'
        self.overrides |= {
            "listeners": f"{added},{self.overrides['listeners']}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGINS:SASL_PLAINTEXT,TOKENS:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.logins.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            "listener.name.logins.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
            "listener.name.tokens.oauthbearer.sasl.jaas.config": (
                f"{MODULES}.oauthbearer.OAuthBearerLoginModule required {scope};"
            ),
        }

    def add_users(self) -> None:
        kinds = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        secret = PASSWORD.encode()
        wanted = [UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), secret) for kind in kinds]
        for future in client.alter_user_scram_credentials(wanted).values():  # type: ignore[arg-type]  # its hints want the base class
            future.result(60)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    try:
        runner()
    except MissingError as error:
        pytest.skip(f"librdkafka's tests cannot be built: {error}")


@pytest.fixture(scope="module")
def plain_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainNode]:
    with PlainNode(tmp_path_factory.mktemp("plain")).start() as node:
        node.add_users()
        yield node


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecuredCluster]:
    settings = {**LIBRDKAFKA_SETTINGS, "connections.max.reauth.ms": REAUTHENTICATION_MS}
    with SecuredCluster(brokers=3, settings=settings) as cluster:
        yield cluster


@dataclass(frozen=True)
class Suite:
    """Tests by one login.

    Attributes:
        name: its name in `sasl_test.py`, if it is there.
        client: settings of the clients, above those of the login.
        refused: the output of the test that fails because its login is refused; "" if all tests must pass.
    """

    name: str
    login: str
    tests: tuple[str, ...] = ("0001",)
    client: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""


WRONG_USER = {"sasl.username": "wrongjoe"}
WRONG_PASSWORD = {"sasl.password": "wrong"}
NO_CERTIFICATE = {"ssl.certificate.location": "", "ssl.key.location": ""}
NO_LOGIN = "SASL authentication error"
IN_PLAIN_TEXT = (
    Suite("PLAINTEXT (no SASL)", "PLAINTEXT"),
    Suite("SASL PLAIN", "PLAIN"),
    Suite("SASL PLAIN with wrong username", "PLAIN", client=WRONG_USER, refused=NO_LOGIN),
    Suite("SASL PLAIN with a wrong password", "PLAIN", client=WRONG_PASSWORD, refused=NO_LOGIN),
    Suite("SASL SCRAM", "SCRAM-SHA-512", ALL),
    Suite("SASL SCRAM-SHA-256", "SCRAM-SHA-256"),
    Suite("SASL SCRAM with wrong username", "SCRAM-SHA-512", client=WRONG_USER, refused=NO_LOGIN),
    Suite("SASL SCRAM with a wrong password", "SCRAM-SHA-256", client=WRONG_PASSWORD, refused=NO_LOGIN),
    Suite("SASL OAUTHBEARER", "OAUTHBEARER"),
    Suite(
        "SASL OAUTHBEARER with wrong scope",
        "OAUTHBEARER",
        client={"sasl.oauthbearer.config": "scope=wrongScope principal=admin"},
        refused=NO_LOGIN,
    ),
)
OVER_TLS = (
    Suite("SSL (no SASL)", "MUTUAL-TLS", ALL),
    Suite("SSL without a certificate", "MUTUAL-TLS", client=NO_CERTIFICATE, refused="certificate required"),
    Suite("SASL_SSL PLAIN", "PLAIN", ALL),
    Suite("SASL_SSL SCRAM-SHA-256", "SCRAM-SHA-256"),
    Suite("SASL_SSL SCRAM-SHA-512", "SCRAM-SHA-512"),
    Suite("SASL_SSL PLAIN with a wrong password", "PLAIN", client=WRONG_PASSWORD, refused=NO_LOGIN),
    Suite("SASL_SSL SCRAM with a wrong password", "SCRAM-SHA-512", client=WRONG_PASSWORD, refused=NO_LOGIN),
    Suite("OAuth/OIDC", "OAUTHBEARER"),
    Suite(
        "OAuth/OIDC with a wrong secret",
        "OAUTHBEARER",
        client={"sasl.oauthbearer.client.secret": "wrong"},
        refused="Failed to acquire SASL OAUTHBEARER token",
    ),
)


def every(suites: tuple[Suite, ...]) -> pytest.MarkDecorator:
    cases = [pytest.param(suite, test, id=f"{suite.name}-{test}") for suite in suites for test in suite.tests]
    return pytest.mark.parametrize(("suite", "test"), cases)


def run(test: str, client: Mapping[str, str], folder: Path, environment: Mapping[str, str] | None = None) -> Outcome:
    """One try; a test with `/` is a subtest, which quick mode may leave out."""
    return run_test(
        test,
        client["bootstrap.servers"],
        folder / f"try-{next(_numbers)}",
        quick="/" not in test and not environment,
        client={name: value for name, value in client.items() if value},
        environment=dict(environment or {}),
        timeout_s=240,
    )


def run_and_check(suite: Suite, test: str, client: Mapping[str, str], folder: Path) -> None:
    client = {**client, **suite.client}
    if not suite.refused:
        must_pass(test, client, folder)
        return
    assert run(test, client, folder).status == "FAILED"
    assert suite.refused in printed(folder)


def printed(folder: Path) -> str:
    """The output of all tests of a folder."""
    return "".join(each.read_text(errors="replace") for each in folder.glob("try-*/output.txt"))


def must_pass(
    test: str, client: Mapping[str, str], folder: Path, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run a test until it passes, three times at most, because some of these tests measure time."""
    for _ in range(TRIES):
        outcome = run(test, client, folder, environment)
        if outcome.status == "PASSED":
            return outcome
    pytest.fail(f"{outcome.status}: {outcome.reason}", pytrace=False)


@every(IN_PLAIN_TEXT)
def test_in_plain_text(plain_node: PlainNode, suite: Suite, test: str, tmp_path: Path) -> None:
    if suite.login == "PLAINTEXT":
        client = {"bootstrap.servers": plain_node.bootstrap}
    else:
        listener = "TOKENS" if suite.login == "OAUTHBEARER" else "LOGINS"
        address = f"127.0.0.1:{plain_node.ports[listener]}"
        client = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": suite.login}
        if listener == "TOKENS":
            client |= {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "scope=requiredScope principal=admin",
            }
        else:
            client |= {"sasl.username": USER, "sasl.password": PASSWORD}
    run_and_check(suite, test, client, tmp_path)


@every(OVER_TLS)
def test_over_tls(cluster: SecuredCluster, suite: Suite, test: str, tmp_path: Path) -> None:
    run_and_check(suite, test, cluster.client(suite.login), tmp_path)  # type: ignore[arg-type]  # has what the suite uses of a cluster


@pytest.mark.parametrize("test", ALL)
def test_kerberos(test: str, kerberos_client: Mapping[str, str], realm: Realm, tmp_path: Path) -> None:
    must_pass(test, kerberos_client, tmp_path, realm.variables)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    require_kerberos()
    with Realm(tmp_path_factory.mktemp("realm")) as realm:
        realm.add("kafka/localhost", "alice")
        yield realm


@pytest.fixture(scope="module")
def kerberos_client(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    settings = {key.replace(".", "__"): value for key, value in LIBRDKAFKA_SETTINGS.items()}
    node = KerberosNode(tmp_path_factory.mktemp("kerberos"), realm, realm.keytab("kafka/localhost"), **settings)
    with node.start():
        yield {
            "bootstrap.servers": node.kerberos_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.keytab": str(realm.keytab("alice")),
            "sasl.kerberos.principal": "alice",
        }


PASSWORD_LOGINS: tuple[Login, ...] = ("PLAIN", "SCRAM-SHA-512")
REAUTHENTICATION = ("do_test_consumer", "do_test_producer", "do_test_txn_producer")
AGAIN = [
    *((login, part) for login in PASSWORD_LOGINS for part in (*REAUTHENTICATION, "do_test_reauth_failure")),
    *(("OAUTHBEARER", part) for part in (*REAUTHENTICATION, "do_test_oauthbearer")),
]


@pytest.mark.parametrize("login", PASSWORD_LOGINS)
def test_credentials_change_while_a_client_runs(cluster: SecuredCluster, login: Login, tmp_path: Path) -> None:
    must_pass("0135/do_test", cluster.client(login), tmp_path)


@pytest.mark.parametrize(("login", "part"), AGAIN)
def test_reauthentication_loses_nothing(cluster: SecuredCluster, login: Login, part: str, tmp_path: Path) -> None:
    must_pass(f"0142/{part}", cluster.client(login), tmp_path)


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("and consumer with oidc configuration: client_credentials", 1),
        ("and consumer with oidc configuration: Sub claim variation", 4),
        ("Test authentication failure with oidc configuration: Sub claim variation", 1),
    ],
)
def test_tokens_of_an_issuer(cluster: SecuredCluster, part: str, count: int, tmp_path: Path) -> None:
    """The parts of test 0126 whose tokens come from an issuer, for a client's id and secret."""
    environment = {"VALID_OIDC_URL": cluster.issuer.token_url, "SUBTESTS": part}
    outcome = must_pass("0126", cluster.client("OAUTHBEARER"), tmp_path, environment)
    assert outcome.subtest_count == count


@pytest.mark.parametrize("login", ["PLAIN", "MUTUAL-TLS"])
def test_verification_of_certificates(cluster: SecuredCluster, login: Login, tmp_path: Path) -> None:
    """0097: keys and authorities in each form, and certificates of clients that brokers do not ask for, or refuse."""
    identity, password = cluster.identity("alice"), "12345678"
    own, encryption = identity.chain[0], BestAvailableEncryption(b"12345678")
    files = {
        "pkcs": pkcs12_of(identity, password),
        "pub_pem": identity.certificates_pem().encode(),
        "pub_der": own.public_bytes(Encoding.DER),
        "priv_pem": identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption),
        "priv_der": identity.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        "ca_der": identity.chain[-1].public_bytes(Encoding.DER),
        "ca_pem": cluster.ca.read_bytes(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    client = cluster.client(login) | {
        "ssl.certificate.location": str(tmp_path / "pub_pem"),
        "ssl.key.location": str(tmp_path / "priv_pem"),
        "ssl.key.password": password,
    }
    environment = {f"SSL_{name}": str(tmp_path / name) for name in files}
    environment |= {"SSL_all_cas_pem": str(cluster.ca), "SSL_password": password}
    must_pass("0097", client, tmp_path, environment)
