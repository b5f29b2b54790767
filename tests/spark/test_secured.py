"""A cluster behind TLS and SASL/PLAIN, with settings as Kafka's Java client has them. Apache Kafka is that cluster."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from odradek.cli.errors import FAILED, UNREACHABLE
from odradek.client import sasl
from odradek.common.scram import SCRAM_SHA_256
from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.client.connection import security_from
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.standby.commit import create_lease, current_lease
from tests.spark.queries import values
from tests.support.clients.cli import Ran, odradek
from tests.support.clients.confluent import admin, await_ends, create_topic, produce_all
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def jaas(password: str) -> str:
    return f'{PLAIN} username="ann" password="{password}";'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with key.pem and cert.pem, which names localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    done = subprocess.run(
        [*command, "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[tuple[ApacheKafka, str]]:
    """A node with a listener in the clear, for the tests themselves, and one with SASL_SSL; also its address."""
    from tests.support.nodes.node import free_port

    require_kafka()
    kafka = ApacheKafka(tmp_path_factory.mktemp("secured"), heap="300m")
    port = free_port()
    kafka.settings |= {
        "listeners": f"{kafka.settings['listeners']},SAFE://localhost:{port}",
        "advertised.listeners": f"{kafka.settings['advertised.listeners']},SAFE://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.safe.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.safe.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.safe.plain.sasl.jaas.config": f'{PLAIN} user_ann="s3cret";',
        "listener.name.safe.ssl.keystore.type": "PEM",
        "listener.name.safe.ssl.keystore.location": certificate / "both.pem",
    }
    with kafka:
        create_topic(kafka.bootstrap, "safe")
        client = admin(kafka.bootstrap)  # one that is collected before it is answered gives up
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wished = UserScramCredentialUpsertion("ann", ScramCredentialInfo(kind, 4096), b"s3cret")
            (future,) = client.alter_user_scram_credentials([wished]).values()
            future.result(30)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            await_login(options(f"localhost:{port}", certificate) | {"sasl.mechanism": mechanism})
        yield kafka, f"localhost:{port}"


def await_login(settings: dict[str, str]) -> None:
    """Wait until a login is taken and the topic is seen: the controller answers before the broker has heard of them."""
    deadline = time.monotonic() + 60
    while True:
        cluster = Cluster(ClientSettings.parse(settings))
        try:
            if "safe" in cluster.partitions(None):
                return
        except ClusterError as error:
            assert "Authentication failed" in str(error), error
        finally:
            cluster.close()
        assert time.monotonic() < deadline, settings["sasl.mechanism"]
        time.sleep(0.1)


def options(address: str, certificate: Path, password: str = "s3cret") -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate / "cert.pem"),
        "default.api.timeout.ms": "60000",
    }


def test_written_and_read(spark: Any, secured: tuple[ApacheKafka, str], certificate: Path) -> None:
    settings = {f"kafka.{name}": value for name, value in options(secured[1], certificate).items()}
    producing = {name: value for name, value in settings.items() if "api.timeout" not in name}
    frame = spark.createDataFrame([("a",), ("b",)], "value string").coalesce(1)
    frame.write.format("odradek").options(**producing, topic="safe").mode("append").save()
    await_ends(secured[0].bootstrap, "safe")
    assert sorted(values(spark.read.format("odradek").options(**settings, subscribe="safe").load())) == [b"a", b"b"]


@pytest.fixture
def reported(tmp_path: Path, certificate: Path, secured: tuple[ApacheKafka, str]) -> Callable[..., Ran]:
    """Runs `odradek` with the settings of a client, changed by what is given, as its --command-config."""

    def run(*words: object, bootstrap: str = secured[1], code: int = 0, **changed: str) -> Ran:
        named = {name.replace("_", "."): value for name, value in changed.items()}
        settings = options(secured[1], certificate) | named
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if value))
        return odradek(bootstrap, *words, "--command-config", file, code=code)

    return run


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_commands_log_in(reported: Callable[..., Ran], mechanism: str) -> None:
    assert "safe" in reported("topics", "list", sasl_mechanism=mechanism).out.split()
    by_name = {"sasl_jaas_config": "", "sasl_username": "ann", "sasl_password": "s3cret"}
    assert "safe" in reported("topics", "list", sasl_mechanism=mechanism, **by_name).out.split()
    refused = reported("topics", "list", sasl_mechanism=mechanism, sasl_jaas_config=jaas("guess"), code=FAILED)
    assert "refused ann: Authentication failed" in refused.err and refused.err.count("\n") == 1
    assert "guess" not in refused.err


def test_records_by_commands_that_log_in(
    reported: Callable[..., Ran], secured: tuple[ApacheKafka, str], tmp_path: Path
) -> None:
    """They go through the C client, which reads no JAAS entry by itself."""
    create_topic(secured[0].bootstrap, "clear")
    produce_all(secured[0].bootstrap, "clear", [(None, b"in the clear")])
    read = ("consume", "--topic", "clear", "--from-beginning", "--to-end", "--output", tmp_path / "read")
    reported(*read, sasl_mechanism="SCRAM-SHA-256")
    assert (tmp_path / "read").read_bytes() == b"in the clear\n"


def test_a_command_that_logs_in_switches_a_gate(reported: Callable[..., Ran], secured: tuple[ApacheKafka, str]) -> None:
    topic, cluster = "gated", Cluster(ClientSettings.parse({"bootstrap.servers": secured[0].bootstrap}))
    create_topic(secured[0].bootstrap, topic)
    produce_all(secured[0].bootstrap, topic, [(None, b"%d" % number) for number in range(3)])
    create_lease(cluster, "balances", "a", {TopicPartition(topic, 0): 1})
    while current_lease(cluster, "balances") is None:  # its transaction is answered before it is seen
        time.sleep(0.01)
    cluster.close()
    shown = reported("groups", "describe", "--group", "odradek-gate.balances", "--rate-over", 0, "--json").json
    assert [(row["topic"], row["current_offset"], row["lag"]) for row in shown[0]["offsets"]] == [(topic, 1, 2)]
    turned = reported("groups", "switch", "a", "b", "--force", "--timeout", 0, "--json", sasl_mechanism="SCRAM-SHA-512")
    assert (turned.json["gate"], turned.json["turn"], turned.json["switched"]) == ("balances", 1, True)


def test_commands_say_what_a_listener_wants(reported: Callable[..., Ran], secured: tuple[ApacheKafka, str]) -> None:
    refused = reported("topics", "list", security_protocol="SSL", code=UNREACHABLE)
    assert "expect SASL? Set security.protocol=SASL_SSL in --command-config, with sasl.mechanism" in refused.err
    clear = reported("topics", "list", bootstrap=secured[0].bootstrap, security_protocol="SASL_PLAINTEXT", code=FAILED)
    assert "has no SASL: check security.protocol" in clear.err


def test_a_wrong_password_is_reported_at_once(secured: tuple[ApacheKafka, str], certificate: Path) -> None:
    cluster = Cluster(ClientSettings.parse(options(secured[1], certificate, "guess")))
    with pytest.raises(ClusterError, match="refused ann: Authentication failed") as raised:
        cluster.partitions(None)
    assert "guess" not in str(raised.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(secured: tuple[ApacheKafka, str], certificate: Path, mechanism: str) -> None:
    settings = options(secured[1], certificate) | {"sasl.mechanism": mechanism}
    cluster = Cluster(ClientSettings.parse(settings))
    assert cluster.partitions(["safe"]) == {"safe": [0]}
    cluster.close()
    wrong = Cluster(ClientSettings.parse(settings | {"sasl.jaas.config": jaas("guess")}))
    with pytest.raises(ClusterError, match="refused ann: Authentication failed"):
        wrong.partitions(None)
    wrong.close()


def test_scram_speaks_as_its_standard_does() -> None:
    """The example of RFC 7677, and a broker that does not know the password."""
    nonce, server_nonce = "rOprNGfwEbeRWgbNEkqO", "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = f"r={server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = f"c=biws,r={server_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()

    def speaking() -> sasl.Dialogue:
        client = sasl._scram(SCRAM_SHA_256, "user", "pencil", nonce)
        assert next(client) == f"n,,n=user,r={nonce}".encode()
        return client

    good = speaking()
    assert good.send(challenge) == proof
    with pytest.raises(StopIteration):
        good.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    for verdict in (b"v=AAAA", b"e=other-error", b"\xff"):
        false = speaking()
        false.send(challenge)
        with pytest.raises(sasl.ServerAuthenticationError):
            false.send(verdict)
    for weak in (challenge.replace(b"4096", b"1"), challenge.replace(b"r=rO", b"r=xO"), b"r=1", b""):
        with pytest.raises(sasl.ServerAuthenticationError, match="challenge"):
            speaking().send(weak)


def test_an_unknown_authority_is_refused(secured: tuple[ApacheKafka, str], certificate: Path) -> None:
    settings = options(secured[1], certificate)
    del settings["ssl.truststore.location"]
    with pytest.raises(ClusterError, match=r"is not trusted: self.signed certificate.*ssl\.truststore\.location"):
        Cluster(ClientSettings.parse(settings)).partitions(None)


def test_a_name_that_the_certificate_has_not(secured: tuple[ApacheKafka, str], certificate: Path) -> None:
    address = secured[1].replace("localhost", "127.0.0.1")
    settings = options(address, certificate)
    with pytest.raises(ClusterError, match=r"is not trusted: IP address mismatch.*'127\.0\.0\.1'"):
        Cluster(ClientSettings.parse(settings)).partitions(None)
    unchecked = settings | {"ssl.endpoint.identification.algorithm": ""}
    cluster = Cluster(ClientSettings.parse(unchecked))
    assert cluster.partitions(["safe"]) == {"safe": [0]}
    cluster.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is unknown"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "CRAM"}, "CRAM is not supported; PLAIN, SCRAM"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas("s3cret")}, "has another login module"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "must hold username and password"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such.jks"}, "no/such.jks: No such file"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "BKS", "ssl.truststore.location": __file__}, "BKS is unk"),
        ({"security.protocol": "SSL", "ssl.truststore.location": __file__}, "is ssl.truststore.password right"),
        ({"security.protocol": "SSL", "ssl.certificate.location": __file__}, "holds no certificate in PEM"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, r"SSLv3 is not served; TLSv1\.2 and"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        security_from(settings)


@pytest.mark.parametrize(
    "entry",
    [
        'PlainLoginModule required username="alice" password="a\\"b;c";',
        """PlainLoginModule required  username = 'alice'\n password='a"b;c' ;""",
        'PlainLoginModule required password="a\\"b;c" username=alice;',
    ],
)
def test_a_jaas_entry_is_read_as_java_reads_it(entry: str) -> None:
    """Quotes of both kinds, escapes within them, and words without quotes."""
    found = security_from({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": entry})
    assert found.sasl() == sasl.Credentials("PLAIN", "alice", 'a"b;c', SystemRandom())
    assert "b;c" not in repr(found)


def test_a_password_is_not_shown() -> None:
    settings = ClientSettings.parse({"bootstrap.servers": "h:1", "sasl.jaas.config": jaas("s3cret")})
    assert "s3cret" not in repr(settings)
