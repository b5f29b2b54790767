"""Each way into a secured cluster, for all three ways of the connector: its readers, and both deliveries of its sink.

Settings are those of Kafka's Java client; readers and the exactly-once sink have a client of our own, the other
delivery has librdkafka.
"""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.security.tls.development import make_authority, pkcs12_of
from odradek.testing import SecuredCluster
from odradek.testing.secured import LOGINS, Login
from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.client.connection import security_from
from pyspark_odradek.client.librdkafka import client_config, producer_config
from pyspark_odradek.errors import OptionError
from tests.spark.queries import values
from tests.support.clients.signing import signing
from tests.support.nodes.apache_kafka import find_java


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCluster]:
    """One broker without a listener in plain text."""
    with SecuredCluster() as cluster:
        yield cluster


def written_and_read(spark: Any, settings: dict[str, str], topic: str, folder: Path) -> list[bytes]:
    options = {f"kafka.{name}": value for name, value in settings.items()}
    for delivery, value in (("at_least_once", "a"), ("exactly_once", "b")):
        writer = spark.createDataFrame([(value,)], "value string").coalesce(1).write.format("odradek")
        writer = writer.options(**options, topic=topic, delivery=delivery, createTopic="true")
        writer.option("stagingLocation", str(folder / "staging")).mode("append").save()
    return sorted(values(spark.read.format("odradek").options(**options, subscribe=topic).load()))


@pytest.mark.parametrize("login", LOGINS)
def test_a_login_reads_and_writes(
    spark: Any, secured: SecuredCluster, topic: str, login: Login, tmp_path: Path
) -> None:
    assert written_and_read(spark, secured.java_client(login), topic, tmp_path) == [b"a", b"b"]


def test_stores_of_java(spark: Any, secured: SecuredCluster, topic: str, tmp_path: Path) -> None:
    """A PKCS12 key store, as `keytool` makes it, by the names of the Java client."""
    store = tmp_path / "alice.p12"
    store.write_bytes(pkcs12_of(secured.identity("alice"), "secret"))
    settings = secured.java_client("MUTUAL-TLS") | {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "secret",
    }
    assert written_and_read(spark, settings, topic, tmp_path) == [b"a", b"b"]


@pytest.mark.slow
def test_stores_that_keytool_made(spark: Any, secured: SecuredCluster, topic: str, tmp_path: Path) -> None:
    """JKS by Java's own hand, the type set or found: the authority alone, and a key with its certificates."""
    given, trusted, own = tmp_path / "alice.p12", tmp_path / "ca.jks", tmp_path / "alice.jks"
    given.write_bytes(pkcs12_of(secured.identity("alice"), "secret"))
    authority = ("-noprompt", "-alias", "ca", "-file", secured.ca, "-keystore", trusted, "-storepass", "trusted")
    keytool("-importcert", "-storetype", "JKS", *authority)
    source = ("-srckeystore", given, "-srcstoretype", "PKCS12", "-srcstorepass", "secret")
    keytool("-importkeystore", *source, "-destkeystore", own, "-deststoretype", "JKS", "-deststorepass", "changeit")
    for store in (trusted, own):
        assert store.read_bytes()[:4] == bytes.fromhex("feedfeed"), "no JKS"
    settings = secured.java_client("MUTUAL-TLS") | {
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": "trusted",
        "ssl.keystore.location": str(own),
        "ssl.keystore.password": "changeit",
        "ssl.key.password": "secret",  # the key keeps the password that it came with
    }
    del settings["ssl.keystore.type"]
    assert written_and_read(spark, settings, topic, tmp_path) == [b"a", b"b"]


def keytool(*arguments: object) -> None:
    command = [str(find_java().with_name("keytool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_certificates_as_text_need_no_file(secured: SecuredCluster) -> None:
    pem = secured.certificate("bob").read_text()
    settings = secured.java_client("MUTUAL-TLS") | {
        "ssl.truststore.certificates": secured.ca.read_text(),
        "ssl.keystore.certificate.chain": pem,
        "ssl.keystore.key": pem,
    }
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        del settings[name]
    cluster = Cluster(ClientSettings.parse(settings))
    assert cluster.partitions(["no-topic"]) == {}
    cluster.close()


def test_an_issuer_that_refuses_is_named_and_the_secret_is_not(secured: SecuredCluster) -> None:
    settings = secured.java_client("OAUTHBEARER", "alice")
    wrong = settings | {"sasl.jaas.config": settings["sasl.jaas.config"].replace("alice-secret", "guess")}
    for refusing in (security_from, producer_config, client_config):
        with pytest.raises(OptionError, match=f"{secured.issuer.token_url} answered 401") as raised:
            refusing(wrong)
        assert "guess" not in str(raised.value)


def test_an_issuer_is_trusted_by_the_names_of_librdkafka(secured: SecuredCluster) -> None:
    """Dead letters and members of groups need only the settings by which a client connects."""
    settings = secured.client("OAUTHBEARER", "alice")
    del settings["sasl.oauthbearer.method"]  # by which librdkafka would fetch the token itself
    token, _ = client_config(settings)["oauth_cb"]("")
    assert token.count(".") == 2


def test_a_client_signs_for_its_tokens(secured: SecuredCluster, tmp_path: Path) -> None:
    settings = signing(secured, "signer", tmp_path)
    cluster = Cluster(ClientSettings.parse(settings))
    assert cluster.partitions(["no-topic"]) == {}
    cluster.close()
    token, _ = client_config(settings)["oauth_cb"]("")
    assert token.count(".") == 2
    (tmp_path / "key").write_text("no key")
    with pytest.raises(OptionError, match=r"private.key.file=\S+: holds no private key in PKCS#8"):
        security_from(settings | {"sasl.oauthbearer.scope": "another"})


def test_an_issuer_that_is_not_trusted_or_not_there(secured: SecuredCluster, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(make_authority("other", now=datetime.datetime.now(datetime.UTC)).pem)
    settings = secured.client("OAUTHBEARER", "alice") | {"https.ca.location": str(other)}
    with pytest.raises(OptionError, match=r"gives no token: .*certificate verify failed"):
        security_from(settings)
    once = {"sasl.login.retry.backoff.max.ms": "0"}
    nowhere = settings | once | {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    with pytest.raises(OptionError, match=r"127\.0\.0\.1:1/token gives no token: "):
        security_from(nowhere)
    without = {name: value for name, value in settings.items() if not name.endswith("client.secret")}
    with pytest.raises(OptionError, match=r"client\.secret must be set, or clientId and clientSecret"):
        security_from(without)
