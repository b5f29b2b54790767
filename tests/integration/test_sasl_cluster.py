"""Three nodes that log in to each other: to controllers by PLAIN, to brokers by SCRAM, or by tokens."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.testing.issuer import TokenIssuer
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import eventually

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SHA_256 = ScramMechanism.SCRAM_SHA_256
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{_PLAIN} user_admin="admin-secret";',
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f'{_SCRAM} username="broker" password="between";',
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{_PLAIN} username="node" password="to-controllers" user_node="to-controllers";'
    ),
    "sasl.mechanism.controller.protocol": "PLAIN",
    "connections.max.reauth.ms": 1500,
}
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": "admin-secret",
}


def settings(**given: Any) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in given.items()}


def in_sync(client: AdminClient, topic: str) -> bool:
    found = client.list_topics(topic, timeout=60).topics[topic].partitions
    return len(found) == 3 and all(len(each.isrs) == 3 for each in found.values())


def test_nodes_log_in_to_each_other_and_replicate(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **ADMIN})
        change = UserScramCredentialUpsertion("broker", ScramCredentialInfo(SHA_256, 4096), b"between")
        client.alter_user_scram_credentials([change])["broker"].result(60)
        client.create_topics([NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})])["t"].result(60)
        eventually(lambda: in_sync(client, "t"))
        given = settings(**ADMIN)
        produce_all(cluster.bootstrap_servers, "t", [(None, b"%d" % n) for n in range(30)], acks="all", **given)
        cluster[1].restart()
        eventually(lambda: in_sync(client, "t"))
        eventually(lambda: len(read_all(cluster.bootstrap_servers, "t", 3, **given)) == 30)


class CountingIssuer(TokenIssuer):
    """Knows who got tokens."""

    granted: ClassVar[list[str]] = []

    def grant(self, client_id: str, secret: str) -> dict[str, object] | None:
        found = super().grant(client_id, secret)
        if found is not None:
            self.granted.append(client_id)
        return found


@contextmanager
def counting_issuer(certificates: Certificates) -> Iterator[CountingIssuer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("issuer"))
    issuer = CountingIssuer({"node": "between", "admin": "secret"}, context, audience="kafka", lifetime_s=4)
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.stop()


def test_nodes_log_in_to_each_other_by_tokens(tmp_path: Path) -> None:
    """They log in to brokers with tokens of an issuer, which expire meanwhile; to controllers with one in a file."""
    certificates = Certificates(tmp_path / "certificates")
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.ca}"'
    with counting_issuer(certificates) as issuer:
        token = tmp_path / "token"
        token.write_text(issuer.token("node", exp=int(time.time()) + 3600))
        tokens = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "listener.name.plaintext.oauthbearer.sasl.jaas.config": (
                f'{_OAUTHBEARER} clientId="node" clientSecret="between" {trust};'
            ),
            "listener.name.controller.oauthbearer.sasl.jaas.config": f"{_OAUTHBEARER} {trust};",
            "listener.name.controller.sasl.oauthbearer.token.endpoint.url": f"file://{token}",
            "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
            "sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url,
            "sasl.oauthbearer.expected.issuer": issuer.url,
            "sasl.oauthbearer.expected.audience": "kafka",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:admin",
        }
        admin = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "admin",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
            "https.ca.location": str(certificates.ca),
        }
        with Cluster(tmp_path, settings=tokens) as cluster:
            client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **admin})
            client.create_topics([NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})])["t"].result(60)
            eventually(lambda: in_sync(client, "t"))
            count = len([each for each in issuer.granted if each == "node"])
            eventually(lambda: len([each for each in issuer.granted if each == "node"]) >= count + 6)
            given = settings(**admin)
            produce_all(cluster.bootstrap_servers, "t", [(None, b"%d" % n) for n in range(30)], acks="all", **given)
            assert in_sync(client, "t")
