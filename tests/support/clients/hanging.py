"""A transaction that hangs in a partition, and the page of the console that finds and aborts it."""

from __future__ import annotations

import time

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from odradek.protocol.messages.produce_response import PartitionProduceResponse
from tests.support.clients.api_calls import batch
from tests.support.clients.chromium import click, shows
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.clients.transactions import TransactionalProducer
from tests.support.models.exactly_once import committed_values
from tests.support.nodes.server_process import ServerProcess
from tests.support.waiting import eventually

# Beyond Kafka's default of transaction.max.timeout.ms: no coordinator would still end it.
SILENT_MS = 20 * 60 * 1000
FIND, ABORT, CANCEL, CONFIRM = (
    f"//button[contains(., '{label}')]" for label in ("Look for them", "Abort", "Cancel", "Do it")
)


def leave_hanging(port: int, topic: str) -> int:
    """Open a transaction in partition 0 that no coordinator knows; returns its first offset.

    A client from before KIP-890 sends a batch after its transaction was aborted. The broker accepts it with
    transaction.partition.verification.enable=false. The time of the batch is in the past.
    """
    with TransactionalProducer(port, version=0) as producer:
        assert producer.init() == producer.add(topic, 0) == producer.write(topic, b"aborted") == "NONE"
        assert producer.abort() == producer.abort() == "NONE", "the second one returns when the first is complete"
        late = batch(
            b"late",
            timestamp_ms=time.time_ns() // 1_000_000 - SILENT_MS,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=1,
            transactional=True,
        )

        def accepted() -> PartitionProduceResponse | None:
            answer = producer.produce(topic, late, transactional_id=producer.transactional_id)
            return None if answer.error_code else answer

        return eventually(accepted, "the broker verifies no more, and accepts the batch").base_offset


def abort_hanging(driver: Chrome, cluster_url: str, broker: ServerProcess, topic: str) -> None:
    """The journey: a hanging transaction is listed, its abort is cancelled, then confirmed; readers go on."""
    create_topic(broker.bootstrap, topic)
    first = leave_hanging(broker.port, topic)
    produce_all(broker.bootstrap, topic, [(b"key", b"behind it")])
    assert committed_values(broker.bootstrap, topic, 1) == {0: []}, "readers wait at the transaction"
    driver.get(f"{cluster_url}/topics")
    assert shows(driver, topic), "the console searches the topics of its last snapshot"

    driver.get(f"{cluster_url}/transactions")
    click(driver, FIND)
    listed = f"{topic}-0 from offset {first}, producer "
    assert shows(driver, listed)
    click(driver, ABORT)
    assert shows(driver, f"Abort the transaction in {topic}-0")
    assert shows(driver, "Its records there are aborted: readers of committed records go on without them.")
    click(driver, CANCEL)
    eventually(lambda: not driver.find_elements(By.XPATH, CONFIRM), "the preview is closed")
    assert committed_values(broker.bootstrap, topic, 1) == {0: []}, "a preview aborts nothing"

    click(driver, ABORT)
    click(driver, CONFIRM)
    assert shows(driver, f"Abort the transaction in {topic}-0: done.")
    behind = {0: [b"behind it"]}
    eventually(lambda: committed_values(broker.bootstrap, topic, 1) == behind, "readers go on behind it")
    assert shows(driver, "No transaction hangs.")
    assert listed not in driver.find_element(By.TAG_NAME, "body").text, "the page lists it no more"
