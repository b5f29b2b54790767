"""Invalid requests of transactions: each gets the error that Kafka gives, and leaves no state behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.clients.api_calls import Calls, batch, fresh_name, name_of
from tests.support.clients.transactions import TransactionalProducer
from tests.support.nodes.node import Node

INT64_MAX = 2**63 - 1


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


@pytest.fixture(params=[0, 2], ids=["before KIP-890", "KIP-890"])
def producer(node: Node, request: pytest.FixtureRequest) -> Iterator[TransactionalProducer]:
    with TransactionalProducer(node.port, version=request.param) as made:
        assert made.init() == "NONE"
        yield made


def stored_offset(calls: Calls, group: str, topic: str) -> int:
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = calls.request_until_loaded(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[asked]))
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def commit(producer: TransactionalProducer, group: str, *topics: TxnOffsetCommitRequestTopic) -> list[str]:
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=list(topics),
    )
    answer = producer.request_until_loaded(ApiKey.TXN_OFFSET_COMMIT, 5 if producer.version == 2 else 3, request)
    codes = {
        (topic.name, each.partition_index): name_of(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }
    return [codes[topic.name, each.partition_index] for topic in topics for each in topic.partitions]


def offsets(topic: str, *, offset: int = 1, metadata: str = "", partition: int = 0) -> TxnOffsetCommitRequestTopic:
    wanted = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return TxnOffsetCommitRequestTopic(name=topic, partitions=[wanted])


def begin_group(producer: TransactionalProducer) -> str:
    group = fresh_name("group")
    producer.find_coordinator(group)
    if producer.version == 0:
        assert producer.add_offsets(group) == "NONE"
    return group


def test_each_partition_of_a_commit_is_checked_alone(calls: Calls, producer: TransactionalProducer) -> None:
    """Ten megabytes of metadata and missing topics are refused, and the valid offsets are still committed."""
    topic, group = calls.create_topic(), begin_group(producer)
    long = "m" * 4097
    codes = commit(producer, group, offsets(topic, offset=5), offsets(fresh_name("gone")), offsets(topic, partition=9))
    assert codes == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert commit(producer, group, offsets(topic, offset=7, metadata=long)) == ["OFFSET_METADATA_TOO_LARGE"]
    assert commit(producer, group, offsets(topic, offset=6, metadata=long[1:])) == ["NONE"]
    assert producer.commit() == "NONE"
    while (found := stored_offset(calls, group, topic)) == -1:
        pass
    assert found == 6


@pytest.mark.parametrize("offset", [-1, -(2**63), INT64_MAX])
def test_any_offset_is_taken(calls: Calls, producer: TransactionalProducer, offset: int) -> None:
    """Beyond the end or negative: the coordinator of a group knows nothing of the log."""
    topic, group = calls.create_topic(), begin_group(producer)
    assert commit(producer, group, offsets(topic, offset=offset)) == ["NONE"]
    assert producer.commit() == "NONE"


def test_a_topic_that_is_deleted_inside_a_transaction_keeps_no_one_waiting(
    calls: Calls, node: Node, producer: TransactionalProducer
) -> None:
    from tests.support.clients.confluent import admin

    kept, gone = calls.create_topic(), calls.create_topic()
    if producer.version == 0:
        assert producer.add(kept) == producer.add(gone) == "NONE"
    assert producer.write(kept, b"x") == producer.write(gone, b"x") == "NONE"
    client = admin(node.bootstrap)
    client.delete_topics([gone])[gone].result(timeout=30)
    assert producer.commit() == "NONE"
    if producer.version == 0:
        assert producer.add(kept) == "NONE", "the one before is complete"
    assert producer.write(kept, b"y") == producer.commit() == "NONE"


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (-1, -1, "INVALID_PRODUCER_ID_MAPPING"),
        (INT64_MAX, 0, "INVALID_PRODUCER_ID_MAPPING"),
        (None, -1, "PRODUCER_FENCED"),
        (None, 32767, "PRODUCER_FENCED"),
        (None, 1, "PRODUCER_FENCED"),
    ],
)
def test_identities_that_were_invented(
    calls: Calls, producer: TransactionalProducer, producer_id: int | None, epoch: int, expected: str
) -> None:
    topic = calls.create_topic()
    if producer.version == 0:
        assert producer.add(topic) == "NONE"
    assert producer.write(topic, b"mine") == "NONE"
    identity = (producer.producer_id if producer_id is None else producer_id, epoch)
    assert producer.end(commit=False, identity=identity) == expected
    assert producer.commit() == "NONE", "its owner's transaction is untouched"


def test_ids_of_every_length(calls: Calls, node: Node) -> None:
    longest = "x" * 32_767
    for name, expected in (("", "INVALID_REQUEST"), ("é ☃\x00\n", "NONE"), (longest, "NONE")):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        answer = calls.request_until_loaded(ApiKey.INIT_PRODUCER_ID, 5, request)
        assert name_of(answer.error_code) == expected, name[:10]


def test_refused_requests_leave_no_state(calls: Calls, node: Node) -> None:
    """Producers that add, write, commit and end under ids that were never initialized."""
    topic = calls.create_topic()
    groups, names = [fresh_name("group") for _ in range(20)], [fresh_name("unknown") for _ in range(20)]
    for group in groups:
        calls.find_coordinator(group)
    for number, (group, name) in enumerate(zip(groups, names, strict=True)):
        with TransactionalProducer(node.port, name, version=2 * (number % 2)) as each:
            each.producer_id, each.epoch = 1 << 40, 0
            assert each.add(topic) == "INVALID_PRODUCER_ID_MAPPING"
            assert commit(each, group, offsets(topic)) == ["INVALID_PRODUCER_ID_MAPPING"]
            assert each.write(topic, b"x") == "INVALID_PRODUCER_ID_MAPPING"
            request = EndTxnRequest(transactional_id=name, producer_id=1 << 40, producer_epoch=0, committed=True)
            answer = each.request(ApiKey.END_TXN, 4, request)
            assert name_of(answer.error_code) == "INVALID_PRODUCER_ID_MAPPING"
    listed = calls.request(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest()).transaction_states
    assert not {each.transactional_id for each in listed} & set(names)
    known = calls.request(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups
    assert not {each.group_id for each in known} & set(groups)
    assert calls.list_end(topic) == 0


def test_one_partition_twice_for_two_producers(node: Node, calls: Calls, producer: TransactionalProducer) -> None:
    """A request that makes no sense; `node` has nothing of it in its log but lines."""
    topic = calls.create_topic()
    places = [
        PartitionProduceData(
            index=0, records=batch(b"x", producer_id=each, producer_epoch=7, sequence=0, transactional=True)
        )
        for each in (1 << 40, 1 << 41)
    ]
    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=places)],
    )
    answer = producer.request(ApiKey.PRODUCE, 12 if producer.version == 2 else 11, request)
    codes = [name_of(each.error_code) for part in answer.responses for each in part.partition_responses]
    assert set(codes) == {"INVALID_PRODUCER_ID_MAPPING"}
    assert calls.list_end(topic) == 0


def test_a_batch_of_a_transaction_without_its_id(calls: Calls, producer: TransactionalProducer) -> None:
    topic = calls.create_topic()
    if producer.version == 0:
        assert producer.add(topic) == "NONE"
    data = batch(b"x", producer_id=producer.producer_id, producer_epoch=producer.epoch, sequence=0, transactional=True)
    answer = calls.produce(topic, data, version=12 if producer.version == 2 else 11)
    assert answer.error_code, "whose transaction it is cannot be asked"
    assert calls.list_end(topic) == 0
