"""Stock clients log in by GSSAPI beside MIT's KDC: Java, librdkafka as Debian builds it, kafka-python."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.test_secured_clients import COUNT
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, read_all
from tests.support.nodes.apache_kafka import TOOL_JVM_OPTIONS, ApacheKafka, java_command, require_kafka
from tests.support.nodes.kerberos import REALM, KerberosNode, Realm, in_realm, jaas, require_kerberos

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent


@dataclass
class Place:
    realm: Realm
    node: KerberosNode
    alice: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    require_kerberos()
    directory = tmp_path_factory.mktemp("kerberos")
    with Realm(directory / "realm") as realm:
        realm.add("kafka/localhost", "alice")
        with KerberosNode(directory / "node", realm, realm.keytab("kafka/localhost")).start() as node:
            yield Place(realm, node, realm.keytab("alice"))


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("by", ["keytab", "ticket"])
def test_java(place: Place, by: str, tmp_path: Path) -> None:
    require_kafka()
    cache = place.realm.tickets("alice", place.alice)
    entry = jaas(f"alice@{REALM}", place.alice)
    if by == "ticket":
        of_cache = f'useTicketCache=true ticketCache="{cache}" principal="alice@{REALM}"'
        entry = f"com.sun.security.auth.module.Krb5LoginModule required {of_cache};"
    settings = {
        "bootstrap.servers": place.node.kerberos_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": entry,
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    options = [*TOOL_JVM_OPTIONS, f"-Djava.security.krb5.conf={place.realm.config}"]
    command = java_command(str(HERE / "java" / "Secured.java"), [file, f"java-{by}"], options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.stdout.split()[-2:] == ["ok", str(COUNT)], done.stdout[-2000:] + done.stderr[-3000:]


class KerberosKafka(ApacheKafka):
    """Apache Kafka, whose clients log in by GSSAPI."""

    def __init__(self, directory: Path, realm: Realm, keytab: Path) -> None:
        super().__init__(directory)
        self._realm = realm
        self.settings |= {
            "listeners": f"PLAINTEXT://localhost:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://localhost:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.plaintext.gssapi.sasl.jaas.config": jaas(f"kafka/localhost@{REALM}", keytab),
        }

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"-Djava.security.krb5.conf={self._realm.config}", *rest]


@pytest.mark.slow
@pytest.mark.java
def test_our_commands_log_in_to_apache_kafka(place: Place, tmp_path: Path) -> None:
    require_kafka()
    config = tmp_path / "client.properties"
    entry = jaas(f"alice@{REALM}", place.alice)
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.jaas.config={entry}\n")
    keytab = place.realm.directory / "kafka-localhost.keytab"
    with KerberosKafka(tmp_path / "kafka", place.realm, keytab) as kafka, in_realm(place.realm.variables):
        address = f"localhost:{kafka.port}"
        odradek(address, "topics", "create", "t", "--command-config", config)
        assert "t" in odradek(address, "topics", "list", "--command-config", config).out


def test_librdkafka_of_debian(place: Place) -> None:
    """The one in the wheel of confluent-kafka is built without Kerberos."""
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("needs librdkafka with Kerberos: apt-get install kcat libsasl2-modules-gssapi-mit")
    create_topic(place.node.bootstrap, "kcat")
    cache = place.realm.tickets("alice", place.alice)
    environment = os.environ | place.realm.variables | {"KRB5CCNAME": f"FILE:{cache}"}
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        # The ticket is there: nothing has to be run to get one.
        "sasl.kerberos.kinit.cmd": "true",
    }
    given = [word for key, text in settings.items() for word in ("-X", f"{key}={text}")]
    command = [kcat, "-b", place.node.kerberos_bootstrap, "-t", "kcat", *given]
    done = subprocess.run(
        [*command, "-P"], input="1\n2\n", capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*command, "-C", "-e"], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "1\n2\n", done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python(place: Place) -> None:
    from kafka import KafkaProducer

    create_topic(place.node.bootstrap, "kafka-python")
    cache = place.realm.tickets("alice", place.alice)
    with in_realm(place.realm.variables | {"KRB5CCNAME": f"FILE:{cache}"}):
        producer = KafkaProducer(
            bootstrap_servers=place.node.kerberos_bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
        )
        producer.send("kafka-python", b"1").get(60)
        producer.close()
    assert [each.value() for each in read_all(place.node.bootstrap, "kafka-python")] == [b"1"]
