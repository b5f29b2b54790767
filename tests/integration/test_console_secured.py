"""`odradek console` on a cluster with TLS, SCRAM and ACLs beside a public one: it is seen whole, and no page has its
password."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation

from odradek.testing import SecuredCluster
from tests.integration.test_links_secured import WITH_PERMISSIONS, allow, create_topic
from tests.support.clients.confluent import create_topic as create_public_topic
from tests.support.clients.live_page import live_page
from tests.support.nodes.console import ConsoleProcess, browser, write_clusters, write_users
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S

PASSWORD = "alice-secret"
# A text of each page that the cluster itself must have answered.
PAGES = {
    "": "1 of 1",
    "topics": "salaries",
    "topics/salaries": "Settings, those of the topic itself first",
    "topics/salaries/records": "1 shown of 1 records",
    "brokers": "serves",
    "brokers/settings?broker=1": "ssl.keystore.location",
    "quorum": "Node 1 leads",
    "replication": "All replicas are in sync.",
    "groups": "No group.",
    "moves": "Nothing moves.",
    "transactions": "No transactional id is known.",
    "access": "User:bob",
    "pipelines": "No pipeline writes its progress to this cluster",
    "links": "No link",
}


@pytest.fixture(scope="module")
def private() -> Iterator[SecuredCluster]:
    with SecuredCluster(settings=WITH_PERMISSIONS) as cluster:
        create_topic(cluster, "salaries")
        producer = Producer(cluster.client("SCRAM-SHA-512", "alice"))
        producer.produce("salaries", b"1000")
        assert producer.flush(PATIENCE_S) == 0
        allow(cluster, "salaries", AclOperation.READ)
        yield cluster


@pytest.fixture(scope="module")
def console(private: SecuredCluster, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    directory = tmp_path_factory.mktemp("console")
    for name, user in (("alice", "alice"), ("wrong", "bob")):
        settings = private.java_client("SCRAM-SHA-512", user)
        address = settings.pop("bootstrap.servers")
        if name == "wrong":
            settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace("bob-secret", PASSWORD)
        (directory / f"{name}.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    create_public_topic(node.bootstrap, "weather")
    clusters = write_clusters(
        directory / "console.toml",
        [
            ("private", address, 'properties = "alice.properties"\nread = ["*"]\nchange = ["*"]'),
            ("wrong", address, 'properties = "wrong.properties"'),
            ("public", node.bootstrap, ""),
        ],
    )
    users = write_users(directory, "alice")
    with ConsoleProcess(directory, "--config", clusters, "--users", users) as process:
        yield process
        said = process.log_text()
        assert "Traceback" not in said and PASSWORD not in said, said[:6000]


@pytest.mark.parametrize("path", PAGES)
def test_each_page_shows_the_cluster_and_no_password(console: ConsoleProcess, path: str) -> None:
    with browser(console.url, user="alice") as client, live_page(client, f"/c/private/{path}".rstrip("/")) as live:
        assert live.says(PAGES[path])
        assert PASSWORD not in live.text


def test_the_public_cluster_is_shown_beside_it(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as client, live_page(client, "/c/public/topics") as live:
        assert live.says("weather")
        assert "salaries" not in live.text


def test_a_wrong_password_is_a_line_of_its_cluster_alone(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as client, live_page(client, "/c/wrong") as live:
        assert live.says("The last look at wrong failed: ")
        assert re.search(r"The last look at wrong failed: [^\"]*uthenticat", live.text)
        assert PASSWORD not in live.text
