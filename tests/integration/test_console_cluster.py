"""Pages of `odradek console` about a cluster of three brokers in which something happens: a follower dies, a group
reads, a replica moves, a transaction is open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from odradek.testing.processes import ProcessCluster
from tests.support.clients.chromium import MISSING, WIDE, chromium, click, errors, field, shows
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import produce_all
from tests.support.clients.live_page import live_page
from tests.support.nodes.console import PASSWORDS, ConsoleProcess, browser, write_clusters, write_users
from tests.support.waiting import PATIENCE_S, eventually

THROTTLE_BYTES_PER_S = 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"auto.leader.rebalance.enable": "false"}
    directory = tmp_path_factory.mktemp("cluster")
    with ProcessCluster(directory, brokers=3, racks=["north", "south", "west"], settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def console(cluster: ProcessCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    directory = tmp_path_factory.mktemp("console")
    rights = 'read = ["*"]\nchange = ["*"]'
    clusters = write_clusters(directory / "console.toml", [("here", cluster.bootstrap_servers, rights)])
    users = write_users(directory, "alice")
    with ConsoleProcess(directory, "--config", clusters, "--users", users) as process:
        yield process
        assert "Traceback" not in process.log_text(), process.log_text()[:6000]


@pytest.fixture
def client(console: ConsoleProcess) -> Iterator[httpx.Client]:
    with browser(console.url, user="alice") as opened:
        yield opened


def create(cluster: ProcessCluster, topic: str, assignment: str) -> None:
    odradek(cluster.bootstrap_servers, "topics", "create", "--topic", topic, "--replica-assignment", assignment)


def holds(client: httpx.Client, path: str, *texts: str) -> None:
    """Wait until a page has all of these texts: the console looks at the cluster twice a second."""

    def shown() -> bool:
        with live_page(client, path) as live:
            assert live.says(texts[0])
            return all(text in live.text for text in texts)

    eventually(shown, lambda: f"{path} shows {texts}")


def isr(cluster: ProcessCluster, topic: str) -> list[int]:
    (shown,) = odradek(cluster.bootstrap_servers, "topics", "describe", "--topic", topic, "--json").json
    return sorted(shown["partitions"][0]["isr"])


def throttled_move(cluster: ProcessCluster, topic: str, tmp_path: Path) -> None:
    """Begin to move a partition of 10 MB from brokers 1 and 2 to 3 and 1, at a rate that needs hours after 1 MB."""
    create(cluster, topic, "1:2")
    produce_all(cluster.bootstrap_servers, topic, [(b"key", os.urandom(50_000)) for _ in range(200)], acks="all")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 1]}]}))
    arguments = ("--plan", plan, "--yes", "--throttle", THROTTLE_BYTES_PER_S)
    odradek(cluster.bootstrap_servers, "partitions", "move", *arguments)


def test_brokers_have_their_racks_and_the_quorum_its_voters(client: httpx.Client) -> None:
    holds(client, "/c/here", "3 of 3")
    holds(client, "/c/here/brokers", "west", "north", "south")
    holds(client, "/c/here/quorum", "leads, epoch", "voter")


def test_a_follower_that_dies_is_on_the_page_of_replicas(cluster: ProcessCluster, client: httpx.Client) -> None:
    create(cluster, "followed", "1:3")
    with live_page(client, "/c/here/replication") as live:
        assert live.says("All replicas are in sync.")
        cluster[3].kill()
        try:
            assert live.says("followed-0")
            eventually(lambda: isr(cluster, "followed") == [1])
        finally:
            cluster[3].start()
        eventually(lambda: isr(cluster, "followed") == [1, 3])
    # Who fell out and came back is kept, for as long as the console runs.
    holds(client, "/c/here/replication", "followed-0", "All replicas are in sync.")


def test_a_group_has_its_members_and_its_timeline(cluster: ProcessCluster, client: httpx.Client) -> None:
    create(cluster, "read", "2:1")
    produce_all(cluster.bootstrap_servers, "read", [(b"key", b"value")] * 5)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "readers",
        "client.id": "the-reader",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["read"])
        eventually(lambda: consumer.poll(1) is not None)
        consumer.commit(asynchronous=False)
        holds(client, "/c/here/groups", "readers")
        holds(client, "/c/here/groups/one?name=readers", "the-reader", "read-0", "What happened lately", "joined")
    finally:
        consumer.close()


def test_an_open_transaction_is_listed(cluster: ProcessCluster, client: httpx.Client) -> None:
    create(cluster, "paid", "2:1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("paid", b"1")
    assert producer.flush(PATIENCE_S) == 0
    holds(client, "/c/here/transactions", "payments", "Ongoing")
    producer.abort_transaction(PATIENCE_S)


def test_a_move_is_shown_until_it_is_given_up(cluster: ProcessCluster, client: httpx.Client, tmp_path: Path) -> None:
    throttled_move(cluster, "moved", tmp_path)
    try:
        holds(client, "/c/here/moves", "moved-0", "% of 9")
    finally:
        odradek(cluster.bootstrap_servers, "partitions", "cancel", "--all")
    holds(client, "/c/here/moves", "Nothing moves.")


@pytest.mark.slow  # test_a_move_is_shown_until_it_is_given_up has the page without a browser
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_moves_are_made_and_given_up_and_a_lagging_replica_is_explained(
    cluster: ProcessCluster, console: ConsoleProcess, tmp_path: Path
) -> None:
    create(cluster, "carried", "1:2")
    with chromium(WIDE) as driver:
        driver.get(f"{console.url}/c/here/moves")
        driver.find_element(By.ID, "name").send_keys("alice")
        driver.find_element(By.ID, "password").send_keys(PASSWORDS["alice"], Keys.ENTER)
        assert shows(driver, "Move a partition")
        field(driver, "Topic").send_keys("carried")
        field(driver, "Partition").send_keys("0")
        field(driver, "To brokers").send_keys("3,1")
        click(driver, "//button[contains(., 'Preview')]")
        assert shows(driver, "carried-0 is on brokers 1, 2, and will be on 3, 1; the first leads.")
        click(driver, "//button[contains(., 'Do it')]")
        eventually(lambda: isr(cluster, "carried") == [1, 3])

        throttled_move(cluster, "stuck", tmp_path)
        assert shows(driver, "stuck-0")
        click(driver, "//button[contains(., 'Give up all moves')]")
        assert shows(driver, "stuck-0 stays where it was.")
        click(driver, "//button[contains(., 'Do it')]")
        eventually(lambda: isr(cluster, "stuck") == [1, 2])

        cluster[3].kill()
        try:
            driver.get(f"{console.url}/c/here/replication")
            assert shows(driver, "carried-0")
            click(driver, "//button[contains(., 'Explain')]")
            assert shows(driver, "carried-0, broker 3: its broker is away")
        finally:
            cluster[3].start()
        assert errors(driver) == []
