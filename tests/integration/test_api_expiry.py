"""State that expires, features that are not offered yet, and the metrics of producers and transactions."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.common.errors import ApiError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.clients.api_calls import Calls, batch, fresh_name, name_of
from tests.support.clients.cli import odradek
from tests.support.clients.transactions import TransactionalProducer
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import PATIENCE_S, eventually

EXPIRATION_MS = 1_500
# Long enough for a batch to be written in it on a machine that is busy with others.
TRANSACTION_MS = 2_000


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, int]]:
    """A node that looks often for what is to be forgotten, and the port of its metrics."""
    port = free_port()
    settings: dict[str, object] = {
        "log.retention.check.interval.ms": 200,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        "odradek.metrics.listener": f"127.0.0.1:{port}",
    }
    with Node(tmp_path_factory.mktemp("watched"), settings) as node:
        yield node, port


def producers_of(calls: Calls, topic: str) -> list[int]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    found = calls.request(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0].active_producers
    return [each.producer_id for each in found]


def set_producer_expiration(node: Node, expiration_ms: int) -> None:
    change = f"producer.id.expiration.ms={expiration_ms}"
    odradek(node.bootstrap, "configs", "alter", "--entity-type", "brokers", "--entity-default", "--add-config", change)


def state_of(calls: Calls, transactional_id: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = calls.request(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    return name_of(found.error_code) if found.error_code else found.transaction_state


def metrics(port: int) -> dict[str, float]:
    """Each metric by its name and, where it has some, its labels' values."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            " ".join((sample.name, *sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }


def test_a_producer_id_expires_and_its_producer_goes_on(watched: tuple[Node, int]) -> None:
    node, port = watched
    with Calls(node.port) as calls:
        topic, producer = calls.create_topic(), calls.producer()

        def send(sequence: int) -> str:
            data = batch(b"x", producer_id=producer, producer_epoch=0, sequence=sequence)
            return name_of(calls.produce(topic, data).error_code)

        assert send(0) == send(1) == "NONE"
        assert producers_of(calls, topic) == [producer]
        assert metrics(port)["odradek_producer_ids"] >= 1
        set_producer_expiration(node, 1)
        eventually(lambda: not producers_of(calls, topic), "it is forgotten")
        set_producer_expiration(node, 86_400_000)
        assert send(2) == "NONE", "no UNKNOWN_PRODUCER_ID, which clients before KIP-360 took for lost data"
        assert send(4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert calls.list_end(topic) == 3


def begin(producer: TransactionalProducer, topic: str, value: bytes) -> None:
    """Open a transaction; an id that is forgotten before it has written anything is initialized again."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := producer.write(topic, value)) == "INVALID_PRODUCER_ID_MAPPING":
        assert time.monotonic() < deadline, "it is forgotten again and again"
        assert producer.init() == "NONE"
    assert answer == "NONE"


def test_an_unused_transactional_id_expires(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "transactional.id.expiration.ms": EXPIRATION_MS,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
    }
    with (
        Node(tmp_path, settings) as node,
        Calls(node.port) as calls,
        TransactionalProducer(node.port) as idle,
        TransactionalProducer(node.port) as busy,
    ):
        topic = calls.create_topic()
        assert idle.init() == busy.init() == "NONE"
        begin(busy, topic, b"open")
        eventually(lambda: state_of(calls, idle.transactional_id) == "TRANSACTIONAL_ID_NOT_FOUND", "it is forgotten")
        time.sleep(EXPIRATION_MS / 1000)
        assert state_of(calls, busy.transactional_id) == "Ongoing", "an open transaction keeps its id"
        assert idle.write(topic, b"late") == "INVALID_PRODUCER_ID_MAPPING"
        assert idle.commit() == "INVALID_PRODUCER_ID_MAPPING"
        before = idle.producer_id
        assert idle.init() == "NONE"
        assert idle.producer_id != before, "no producer may get the id of one that expired"
        begin(idle, topic, b"again")
        assert idle.commit() == busy.commit() == "NONE"


def test_expired_producers_stay_expired_after_a_kill(own_node: Node) -> None:
    own_node.stop()
    own_node.overrides |= {
        "transactional.id.expiration.ms": 500,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    }
    own_node.start()
    with Calls(own_node.port) as calls, TransactionalProducer(own_node.port) as each:
        assert each.init() == "NONE"
        eventually(lambda: state_of(calls, each.transactional_id) == "TRANSACTIONAL_ID_NOT_FOUND", "it is forgotten")
        name = each.transactional_id
    own_node.kill()
    own_node.overrides["transactional.id.expiration.ms"] = 604_800_000
    own_node.start()
    with Calls(own_node.port) as calls, TransactionalProducer(own_node.port, name) as again:
        eventually(lambda: state_of(calls, name) != "COORDINATOR_LOAD_IN_PROGRESS", "its coordinator has loaded")
        assert state_of(calls, name) == "TRANSACTIONAL_ID_NOT_FOUND"
        assert again.init() == "NONE"


def test_two_phase_commit_is_not_offered_by_default(node: Node) -> None:
    """KIP-939's flags need version 6, which a setting enables: a client that wants them says UNSUPPORTED_VERSION
    itself, and one that sends it all the same is not answered, as by Kafka 4.3."""
    with Calls(node.port) as calls:
        answer = calls.request(
            ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1")
        )
        (offered,) = [each for each in answer.api_keys if each.api_key == ApiKey.INIT_PRODUCER_ID]
        assert offered.max_version == 5
        name = fresh_name("two-phase")
        each_flag: tuple[dict[str, Any], ...] = ({"enable2_pc": True}, {"keep_prepared_txn": True}, {})
        for flags in each_flag:
            with Calls(node.port) as refused:
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000, **flags)
                refused.send(ApiKey.INIT_PRODUCER_ID, 6, request)
                assert refused.is_closed_by_peer()
            if flags:
                for version in range(offered.min_version, offered.max_version + 1):
                    with pytest.raises(ApiError, match="cannot carry"):
                        encode(request, version)
        assert state_of(calls, name) in ("NOT_COORDINATOR", "TRANSACTIONAL_ID_NOT_FOUND"), "nothing is left behind"


def test_transactions_are_counted(watched: tuple[Node, int]) -> None:
    node, port = watched
    with Calls(node.port) as calls, TransactionalProducer(node.port) as each, TransactionalProducer(node.port) as slow:
        topic, before = calls.create_topic(), metrics(port)
        assert each.init() == slow.init(timeout_ms=TRANSACTION_MS) == "NONE"
        assert each.write(topic, b"1") == "NONE"
        now = metrics(port)
        assert now["odradek_transactional_ids Ongoing"] >= 1
        assert now["odradek_transaction_verifications_total"] > before["odradek_transaction_verifications_total"]
        assert each.commit() == each.write(topic, b"2") == each.abort() == "NONE"
        assert slow.write(topic, b"3") == "NONE"
        eventually(
            lambda: (
                metrics(port)["odradek_transactions_timed_out_total"] > before["odradek_transactions_timed_out_total"]
            ),
            "it is aborted",
        )
        eventually(lambda: metrics(port)["odradek_transaction_pending_markers"] == 0, "all markers are written")

        def ended() -> list[float]:
            keys = [f"odradek_transactions_{what}_total" for what in ("committed", "aborted")]
            now = metrics(port)
            return [now[key] - before[key] for key in keys]

        eventually(lambda: sum(ended()) >= 3, "all three have ended")
        assert ended() == [1, 2]
        now = metrics(port)
        assert now["odradek_partitions_with_late_transactions"] == 0
        failed = now["odradek_transaction_verification_failures_total"]
        version_0 = TransactionalProducer(node.port, version=0)
        with version_0:
            assert version_0.init() == "NONE"
            assert version_0.write(topic, b"not added") == "TRANSACTION_ABORTABLE"
        assert metrics(port)["odradek_transaction_verification_failures_total"] == failed + 1
