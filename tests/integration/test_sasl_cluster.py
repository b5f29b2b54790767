"""Three nodes that log in to each other: to controllers by PLAIN, to brokers by SCRAM, in plain text nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import eventually

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
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
