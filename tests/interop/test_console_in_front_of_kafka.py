"""The console in front of one node of Apache Kafka: pages in a browser show what stock clients did there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, ShareConsumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.support.clients.chromium import MISSING, PAUSE_S, WIDE, chromium, click, errors, field, is_connected, shows
from tests.support.clients.confluent import admin, commit_alone, create_topic, produce_all
from tests.support.clients.hanging import abort_hanging
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.nodes.console import ConsoleProcess
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.only_ours,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "broker.rack": "north",
    "transaction.partition.verification.enable": "false",
}
# The page of the console of its only cluster, if it has no file of clusters.
CLUSTER = "/c/cluster"
RECORDS = 40
# The longest transaction of a producer, and pause of a consumer: pages are visited meanwhile.
LONGEST_MS = 15 * 60 * 1000
NO_TLS = "Not looked at: certificates of brokers: the console connects to this cluster without TLS"
# Texts of each page; those of records, groups, settings and rights come from Kafka.
SHOWN: dict[str, tuple[str, ...]] = {
    "": ("1 of 1\nbrokers", "35\nlargest lag", "the quorum has 1 voter", "topics have one replica", NO_TLS),
    "topics": ("orders 1 1 ", "paid 3 1 "),
    "topics/orders": (
        "\n0 1 1 1 0 40 ",  # partition, leader, replicas, in-sync replicas, first offset, end
        "readers 35",
        "retention.ms 123456789 this topic",
        "local.retention.bytes -2 default",
        "Change the topic",
    ),
    "topics/orders/records": (f"{RECORDS} shown of {RECORDS} records", '0 39 customer-4 {"id": 39}'),
    "groups": ("readers Empty classic 1 35 ", "watchers Stable consumer 1 0 ", "sharers Stable share 0 - "),
    "groups/one?name=readers": (
        "classic, Empty; assignor -; coordinated by broker 1",
        "orders-0 5 40 35 -",
        "It has no members.",
        "Its coordinator keeps no timeline: it is not a broker of Odradek.",
        "Reset offsets",
    ),
    "groups/one?name=watchers": (
        "consumer, Stable; assignor uniform; coordinated by broker 1",
        "orders-0 40 40 0 ",
        "the-watcher",
        "Its coordinator keeps no timeline: it is not a broker of Odradek.",
    ),
    "groups/one?name=sharers": ("Group sharers is a share group",),
    "brokers": ("1 serves north 127.0.0.1:",),
    "brokers/settings?broker=1": (
        "node.id 1 the file of its broker",
        "super.users (not shown) the file of its broker",
        "add.partitions.to.txn.retry.backoff.ms 20 default",
    ),
    "brokers/settings": ("min.insync.replicas 1 all brokers",),
    "replication": ("All replicas are in sync.",),
    "quorum": ("Node 1 leads, epoch ", "1 leader "),
    "moves": ("Nothing moves.", "Move a partition"),
    "transactions": ("payments Ongoing ", "Hanging transactions"),
    "access": (
        "User:alice ALLOW READ TOPIC LITERAL orders 10.0.0.1",
        "dave SCRAM-SHA-256",
        "user alice producer_byte_rate 1,048,576",
        "New quota",
    ),
    "links": (
        "No link: no topic here mirrors one of another cluster.",
        "Brokers of Odradek mirror topics of other clusters",
    ),
    "pipelines": (
        "No pipeline writes its progress to this cluster: `odradek pipeline run --progress-to` does.",
        "No flow has said how far it is.",
    ),
}
# What pages say if something could not be read.
PROBLEM = re.compile(
    r".*(?:Traceback|Error|cannot be shown|not be asked|The last look at|not reached|is not known|Not looked at|"
    r"Nothing was read|does not answer).*"
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    require_kafka()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), SETTINGS) as running:
        create_topic(running.bootstrap, "orders", 1, retention_ms=123456789)
        create_topic(running.bootstrap, "paid", 3)
        records = [(b"customer-%d" % (at % 7), b'{"id": %d}' % at) for at in range(RECORDS)]
        produce_all(running.bootstrap, "orders", records)
        for group, at in (("readers", 5), ("late", 30)):
            commit_alone(running.bootstrap, group, {("orders", 0): at})
        grant_rights(running.bootstrap)
        yield running


@pytest.fixture(scope="module")
def stock(kafka: ApacheKafka) -> AdminClient:
    return admin(kafka.bootstrap)


def grant_rights(bootstrap: str) -> None:
    """An ACL, a user of SCRAM and a quota."""
    client = admin(bootstrap)
    topic = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL)
    acl = AclBinding(*topic, "User:alice", "10.0.0.1", AclOperation.READ, AclPermissionType.ALLOW)
    password = UserScramCredentialUpsertion(
        "dave", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"a password"
    )
    for made in (*client.create_acls([acl]).values(), *client.alter_user_scram_credentials([password]).values()):
        made.result(PATIENCE_S)
    quota = ("--entity-type", "users", "--entity-name", "alice", "--add-config", "producer_byte_rate=1048576")
    run_tool("kafka.admin.ConfigCommand", ("--bootstrap-server", bootstrap, "--alter", *quota))


@pytest.fixture(scope="module")
def clients(kafka: ApacheKafka) -> Iterator[None]:
    """A producer with an open transaction, and a member of a group of each new protocol."""
    at = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer(at | {"transactional.id": "payments", "transaction.timeout.ms": LONGEST_MS})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("paid", b"not yet")
    assert producer.flush(PATIENCE_S) == 0
    reading = at | {"client.id": "the-watcher", "max.poll.interval.ms": LONGEST_MS}
    consumer = Consumer(
        reading | {"group.id": "watchers", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    )
    sharer = ShareConsumer(reading | {"group.id": "sharers"})
    try:
        consumer.subscribe(["orders"])
        eventually(lambda: (message := consumer.poll(1)) is not None and message.offset() == RECORDS - 1)
        consumer.commit(asynchronous=False)
        sharer.subscribe(["orders"])
        sharer.poll(1)
        yield
        producer.abort_transaction(PATIENCE_S)
    finally:
        sharer.close()
        consumer.close()


@pytest.fixture(scope="module")
def console(kafka: ApacheKafka, clients: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    arguments = ("--bootstrap-server", kafka.bootstrap, "--allow-changes")
    with ConsoleProcess(tmp_path_factory.mktemp("console"), *arguments) as process:
        yield process
        assert "Traceback" not in process.log_text(), process.log_text()[:6000]


@pytest.fixture(scope="module")
def driver(console: ConsoleProcess) -> Iterator[Chrome]:
    with chromium(WIDE) as driver:
        yield driver
        assert errors(driver) == []


def has_no_problem(driver: Chrome) -> bool:
    """Check that the page notifies of no error, and wait until no part of it could not be read."""
    assert not [each.text for each in driver.find_elements(By.CSS_SELECTOR, ".q-notification.bg-negative")]
    # A snapshot on a busy machine may lack a part, which the next one has.
    return eventually(lambda: problems(driver) == [], lambda: problems(driver), pause_s=PAUSE_S)


def problems(driver: Chrome) -> list[str]:
    """The lines about what could not be read."""
    return [line for line in PROBLEM.findall(driver.find_element(By.TAG_NAME, "body").text) if line != NO_TLS]


@pytest.mark.parametrize("path", SHOWN)
def test_pages_show_the_data_of_kafka(console: ConsoleProcess, driver: Chrome, path: str) -> None:
    driver.get(f"{console.url}{CLUSTER}/{path}".rstrip("/"))
    for text in SHOWN[path]:
        assert shows(driver, text)
    assert has_no_problem(driver)
    assert "settings are unknown" not in driver.find_element(By.TAG_NAME, "body").text


def test_a_group_is_reset_in_kafka_after_a_preview(console: ConsoleProcess, driver: Chrome, stock: AdminClient) -> None:
    driver.get(f"{console.url}{CLUSTER}/groups")
    click(driver, "//td/a[text()='late']")
    assert shows(driver, "Reset offsets")
    click(driver, "//button[contains(., 'Preview')]")
    assert shows(driver, "orders-0: 30 → 40 (10 records are skipped)")
    click(driver, "//button[contains(., 'Cancel')]")
    assert committed(stock, "late") == 30
    click(driver, "//button[contains(., 'Preview')]")
    assert shows(driver, "orders-0: 30 → 40 (10 records are skipped)")
    click(driver, "//button[contains(., 'Do it')]")
    eventually(lambda: committed(stock, "late") == 40, "the group is reset")
    assert shows(driver, "orders-0 40 40 0 -")
    assert has_no_problem(driver)


def committed(stock: AdminClient, group: str) -> int:
    asked = [ConsumerGroupTopicPartitions(group)]
    (found,) = stock.list_consumer_group_offsets(asked)[group].result(PATIENCE_S).topic_partitions
    return int(found.offset)


def test_a_topic_is_made_and_set_in_kafka_after_a_question(
    console: ConsoleProcess, driver: Chrome, stock: AdminClient
) -> None:
    driver.get(f"{console.url}{CLUSTER}/topics")
    is_connected(driver)
    field(driver, "Name of the topic").send_keys("made-here")
    field(driver, "Partitions").send_keys("3")
    click(driver, "//button[contains(., 'Preview')]")
    assert shows(driver, "Topic made-here is made, with 3 partitions and 1 replica of each.")
    assert partitions(stock, "made-here") == 0, "a preview makes nothing"
    click(driver, "//button[contains(., 'Do it')]")
    eventually(lambda: partitions(stock, "made-here") == 3, "the topic is made")
    eventually(lambda: driver.current_url.endswith("/topics/made-here"), "the page of the topic is opened")
    driver.get(driver.current_url)  # the broker may have the topic later than the controller, which answered
    assert shows(driver, "Change the topic")
    field(driver, "Setting").send_keys("retention.ms")
    field(driver, "Value").send_keys("1000")
    click(driver, "//button[contains(., 'Set')]")
    assert shows(driver, "It becomes 1000.")
    click(driver, "//button[contains(., 'Do it')]")
    eventually(lambda: retention_ms(stock, "made-here") == "1000", "the setting is changed")
    assert shows(driver, "retention.ms 1000 this topic")
    assert has_no_problem(driver)


def partitions(stock: AdminClient, topic: str) -> int:
    """The number of partitions of a topic; 0 if there is none."""
    found = stock.list_topics(timeout=PATIENCE_S).topics
    return len(found[topic].partitions) if topic in found else 0


def retention_ms(stock: AdminClient, topic: str) -> str | None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: str | None = stock.describe_configs([resource])[resource].result(PATIENCE_S)["retention.ms"].value
    return found


def test_a_hanging_transaction_is_aborted_in_kafka(console: ConsoleProcess, driver: Chrome, kafka: ApacheKafka) -> None:
    abort_hanging(driver, f"{console.url}{CLUSTER}", kafka, "hung")
    assert has_no_problem(driver)
