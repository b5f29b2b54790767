"""The transaction APIs over the wire, in both generations: ends, fencing, late requests, and the records of readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.record.control import control_type
from odradek.record.reader import read_batches, read_records
from tests.support.clients.api_calls import Calls, batch, bytes_of, fresh_name, name_of, one, values_in
from tests.support.clients.transactions import TransactionalProducer
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

VERSIONS = pytest.mark.parametrize("version", [0, 2], ids=["before KIP-890", "KIP-890"])


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


@pytest.fixture
def topic(calls: Calls) -> str:
    return calls.create_topic()


@pytest.fixture
def producers(node: Node) -> Iterator[list[TransactionalProducer]]:
    made: list[TransactionalProducer] = []
    yield made
    for each in made:
        each.close()


class Committed:
    """The records of partition 0 for a read_committed consumer."""

    def __init__(self, calls: Calls, topic: str) -> None:
        self.calls = calls
        self.topic = topic

    def stable(self) -> int:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])]
        )
        offset: int = self.calls.request(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset
        return offset

    def wait_until_stable(self, offset: int) -> None:
        eventually(lambda: self.stable() >= offset, lambda: f"stable up to {self.stable()}, not {offset}")

    def values(self) -> list[bytes]:
        """The values that a client returns: it drops markers and the records of aborted transactions."""
        answer = self.calls.read(self.topic, isolation_level=1)
        assert answer.last_stable_offset == self.stable()
        data = bytes_of(answer.records)
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or [])
        dropping: set[int] = set()
        seen = []
        for position, header in read_batches(data):
            assert header.last_offset < answer.last_stable_offset
            while aborted and aborted[0][0] <= header.last_offset:
                dropping.add(aborted.pop(0)[1])
            records = read_records(data[position : position + header.size_bytes], header)
            if header.is_control:
                if control_type(records[0]) == 0:
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                seen += [record.value or b"" for record in records]
        return seen


def producer(
    node: Node, made: list[TransactionalProducer], version: int = 2, transactional_id: str | None = None
) -> TransactionalProducer:
    made.append(TransactionalProducer(node.port, transactional_id, version=version))
    return made[-1]


def begin(each: TransactionalProducer, topic: str, *values: bytes) -> None:
    if each.version == 0:
        assert each.add(topic) == "NONE"
    assert each.write(topic, *values) == "NONE"


class TestEnds:
    @VERSIONS
    def test_read_committed_sees_records_after_the_marker_and_no_aborted_ones(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer], version: int
    ) -> None:
        each, seen = producer(node, producers, version), Committed(calls, topic)
        assert each.init() == "NONE" and each.epoch == 0
        begin(each, topic, b"a", b"b")
        assert (seen.stable(), seen.values()) == (0, [])
        assert values_in(calls.read(topic).records) == [b"a", b"b"], "read_uncommitted sees it"
        assert each.commit() == "NONE"
        seen.wait_until_stable(3)
        assert seen.values() == [b"a", b"b"]
        begin(each, topic, b"lost")
        assert each.abort() == "NONE"
        seen.wait_until_stable(5)
        begin(each, topic, b"c")
        assert each.commit() == "NONE"
        seen.wait_until_stable(7)
        assert seen.values() == [b"a", b"b", b"c"]
        assert each.epoch == (3 if version == 2 else 0)

    @VERSIONS
    def test_an_end_that_comes_again_gets_the_same_answer_and_writes_nothing(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer], version: int
    ) -> None:
        each = producer(node, producers, version)
        each.init()
        for commit, end in ((True, 2), (False, 4)):
            begin(each, topic, b"x")
            identity = (each.producer_id, each.epoch)
            assert each.end(commit=commit) == "NONE"
            after = (each.producer_id, each.epoch)
            # While its marker is under way, and when it is there.
            for _ in range(2):
                for _ in range(3):
                    assert each.end(commit=commit, identity=identity) == "NONE"
                    assert (each.producer_id, each.epoch) == after
                assert each.end(commit=not commit, identity=identity) == "INVALID_TXN_STATE"
                Committed(calls, topic).wait_until_stable(end)
            assert calls.list_end(topic) == end
        assert calls.list_end(topic) == 4

    @pytest.mark.parametrize("version", range(6))
    def test_every_version_of_the_end(
        self, node: Node, topic: str, producers: list[TransactionalProducer], version: int
    ) -> None:
        each = producer(node, producers, 0)
        each.init()
        each.add(topic)
        request = EndTxnRequest(
            transactional_id=each.transactional_id, producer_id=each.producer_id, producer_epoch=0, committed=True
        )
        answer = each.request(ApiKey.END_TXN, version, request)
        assert name_of(answer.error_code) == "NONE"
        reported = (each.producer_id, 1) if version == 5 else (-1, -1)
        assert (answer.producer_id, answer.producer_epoch) == reported
        request.producer_epoch = 7
        fenced = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
        assert name_of(each.request_until_done(ApiKey.END_TXN, version, request).error_code) == fenced

    def test_an_abort_without_writes_uses_up_the_epoch_all_the_same(
        self, node: Node, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers)
        each.init()
        assert each.commit() == "INVALID_TXN_STATE"
        assert (each.abort(), each.epoch) == ("NONE", 1)
        assert (each.abort(), each.epoch) == ("NONE", 2)

    def test_an_older_client_has_nothing_to_end(self, node: Node, producers: list[TransactionalProducer]) -> None:
        each = producer(node, producers, 0)
        each.init()
        assert each.commit() == each.abort() == "INVALID_TXN_STATE"


class TestFencing:
    @VERSIONS
    def test_a_second_producer_aborts_what_the_first_has_open(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer], version: int
    ) -> None:
        first = producer(node, producers, version)
        first.init()
        begin(first, topic, b"of the first")
        second = producer(node, producers, version, first.transactional_id)
        assert second.init(until_done=False) == "CONCURRENT_TRANSACTIONS"
        assert second.init() == "NONE"
        assert (second.producer_id, second.epoch) == (first.producer_id, 2)
        assert first.write(topic, b"late") == "INVALID_PRODUCER_EPOCH"
        assert first.commit() == "PRODUCER_FENCED"
        assert first.abort() == "PRODUCER_FENCED"
        assert first.add(topic) == "PRODUCER_FENCED"
        assert first.add(topic, version=1) == "INVALID_PRODUCER_EPOCH"
        begin(second, topic, b"of the second")
        assert second.commit() == "NONE"
        Committed(calls, topic).wait_until_stable(4)
        assert Committed(calls, topic).values() == [b"of the second"]

    def test_fifty_swaps_leave_one_producer(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        one_of = [producer(node, producers, 2, "fought-over") for _ in range(2)]
        for number in range(50):
            mine, other = one_of[number % 2], one_of[1 - number % 2]
            assert mine.init() == "NONE"
            assert mine.write(topic, b"%d" % number) == "NONE"
            if number:
                assert other.write(topic, b"zombie") in ("INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER")
                assert other.commit() == "PRODUCER_FENCED"
        assert one_of[1].commit() == "NONE"
        Committed(calls, topic).wait_until_stable(100)
        assert Committed(calls, topic).values() == [b"49"]

    def test_a_producer_goes_on_after_an_error_of_its_own(
        self, node: Node, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers, 0)
        each.init()
        identity = (each.producer_id, 0)
        assert (each.init(expected=identity), each.epoch) == ("NONE", 1)
        assert (each.init(expected=identity), each.epoch) == ("NONE", 1), "its answer was lost"
        assert (each.init(expected=(each.producer_id, 1)), each.epoch) == ("NONE", 2)
        assert each.init(expected=identity) == "PRODUCER_FENCED"
        assert each.init(expected=(each.producer_id + 1000, 0)) == "PRODUCER_FENCED"

    def test_a_transaction_that_takes_too_long_is_aborted(
        self, own_node: Node, producers: list[TransactionalProducer]
    ) -> None:
        own_node.stop()
        own_node.overrides["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = 50
        own_node.start()
        with Calls(own_node.port) as calls:
            topic = calls.create_topic()
            each = producer(own_node, producers)
            each.init(timeout_ms=2_000)  # for each of the two: their first batch is written in it
            begin(each, topic, b"slow")
            Committed(calls, topic).wait_until_stable(2)
            assert Committed(calls, topic).values() == []
            assert each.write(topic, b"late") == "INVALID_PRODUCER_EPOCH"
            assert each.commit() == "INVALID_TXN_STATE"
            assert (each.abort(), each.epoch) == ("NONE", 1)
            begin(each, topic, b"again")


class TestWhatComesLate:
    def test_a_batch_behind_its_marker_opens_nothing(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers, 0)
        each.init()
        begin(each, topic, b"in time")
        assert each.commit() == "NONE"
        Committed(calls, topic).wait_until_stable(2)
        assert each.write(topic, b"late") == "TRANSACTION_ABORTABLE"
        newer = producer(node, producers, 2)
        newer.init()
        begin(newer, topic, b"in time")
        old_epoch = newer.epoch
        assert newer.commit() == "NONE"
        Committed(calls, topic).wait_until_stable(4)
        newer.epoch = old_epoch
        assert newer.write(topic, b"late", sequence=1) == "INVALID_PRODUCER_EPOCH"
        assert (Committed(calls, topic).stable(), calls.list_end(topic)) == (4, 4)

    def test_a_batch_of_a_partition_that_was_not_added_is_refused(
        self, node: Node, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers, 0)
        each.init()
        assert each.write(topic, b"x") == "TRANSACTION_ABORTABLE"

    def test_an_end_over_a_connection_that_was_given_up_ends_nothing(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        """In the older protocol one epoch serves many transactions: only the connection distinguishes them."""
        old = producer(node, producers, 0)
        old.init()
        begin(old, topic, b"first")
        new = producer(node, producers, 0, old.transactional_id)
        new.producer_id, new.epoch, new.sequences = old.producer_id, old.epoch, dict(old.sequences)
        assert new.commit() == "NONE"
        begin(new, topic, b"second")
        assert old.commit() == "INVALID_TXN_STATE"
        assert old.abort() == "INVALID_TXN_STATE"
        assert old.add(topic) == "INVALID_TXN_STATE"
        assert Committed(calls, topic).stable() == 2
        assert new.abort() == "NONE"
        Committed(calls, topic).wait_until_stable(4)
        assert Committed(calls, topic).values() == [b"first"]

    def test_an_end_of_an_earlier_epoch_ends_nothing(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers)
        each.init()
        begin(each, topic, b"first")
        earlier = (each.producer_id, each.epoch)
        assert each.commit() == "NONE"
        begin(each, topic, b"second")
        assert each.end(commit=True, identity=earlier) == "PRODUCER_FENCED"
        assert each.end(commit=False, identity=earlier) == "PRODUCER_FENCED"
        assert Committed(calls, topic).stable() == 2

    def test_a_transaction_and_writes_beside_it_do_not_mix(
        self, node: Node, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers)
        each.init()
        begin(each, topic, b"x")
        data = batch(b"beside", producer_id=each.producer_id, producer_epoch=each.epoch, sequence=1)
        assert name_of(each.produce(topic, data).error_code) == "INVALID_TXN_STATE"
        data = batch(b"x", producer_id=each.producer_id, producer_epoch=0, sequence=1, transactional=True)
        assert name_of(each.produce(topic, data).error_code) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class TestOffsets:
    def fetched(self, calls: Calls, group: str, topic: str, *, stable: bool = True) -> tuple[str, int]:
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=stable)
        found = calls.request_until_loaded(ApiKey.OFFSET_FETCH, 8, request).groups[0].topics[0].partitions[0]
        return name_of(found.error_code), found.committed_offset

    def wait_for_markers(self, calls: Calls, group: str, topic: str) -> None:
        """An end is answered before its marker is at the group's coordinator."""
        eventually(lambda: self.fetched(calls, group, topic)[0] == "NONE")

    @VERSIONS
    def test_offsets_count_with_the_commit(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer], version: int
    ) -> None:
        group = fresh_name("group")
        calls.find_coordinator(group)
        each = producer(node, producers, version)
        each.init()
        for commit, offset, expected in ((True, 5, 5), (False, 9, 5), (True, 11, 11)):
            before = self.fetched(calls, group, topic)[1]
            if version == 0:
                assert each.commit_offset(group, topic, offset) == "INVALID_TXN_STATE", "its group was not added"
                assert each.add_offsets(group) == "NONE"
            assert each.commit_offset(group, topic, offset) == "NONE"
            assert self.fetched(calls, group, topic) == ("UNSTABLE_OFFSET_COMMIT", -1)
            assert self.fetched(calls, group, topic, stable=False) == ("NONE", before)
            assert each.end(commit=commit) == "NONE"
            self.wait_for_markers(calls, group, topic)
            assert self.fetched(calls, group, topic) == ("NONE", expected)

    def test_a_producer_is_the_first_to_name_a_group(
        self, own_node: Node, producers: list[TransactionalProducer]
    ) -> None:
        """It looks for the group's coordinator only after the group was added: the topic must come to be before."""
        with Calls(own_node.port) as calls:
            topic = calls.create_topic()
        each = producer(own_node, producers, 0)
        each.init()
        assert each.add_offsets("first") == "NONE"
        assert each.commit_offset("first", topic, 5) == "NONE"
        assert each.commit() == "NONE"

    def test_offsets_that_come_late_hold_nothing_back(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        group = fresh_name("group")
        calls.find_coordinator(group)
        each = producer(node, producers, 2)
        each.init()
        assert each.commit_offset(group, topic, 5) == "NONE"
        epoch = each.epoch
        assert each.commit() == "NONE"
        self.wait_for_markers(calls, group, topic)
        after, each.epoch = each.epoch, epoch
        assert each.commit_offset(group, topic, 4) == "INVALID_PRODUCER_EPOCH"
        each.epoch = after
        assert each.commit_offset(group, "no-such-topic", 4) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert each.commit_offset(group, topic, 4, metadata="x" * 5000) == "OFFSET_METADATA_TOO_LARGE"
        assert each.commit_offset(group, topic, 4, generation_id_or_member_epoch=3, member_id="m") in (
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
        )
        assert self.fetched(calls, group, topic) == ("NONE", 5)

    @pytest.mark.parametrize("version", range(6))
    def test_every_version_of_a_commit_by_no_one(self, node: Node, calls: Calls, topic: str, version: int) -> None:
        calls.find_coordinator("g")
        request = TxnOffsetCommitRequest(transactional_id="unknown", group_id="g", producer_id=1 << 40)
        assert calls.request(ApiKey.TXN_OFFSET_COMMIT, version, request).topics == []

    @pytest.mark.parametrize("version", range(5))
    def test_every_version_of_adding_a_group_for_no_one(self, calls: Calls, version: int) -> None:
        calls.find_coordinator("g")
        request = AddOffsetsToTxnRequest(transactional_id="unknown", group_id="g", producer_id=1 << 40)
        answer = calls.request_until_loaded(ApiKey.ADD_OFFSETS_TO_TXN, version, request)
        assert name_of(answer.error_code) == "INVALID_PRODUCER_ID_MAPPING"


class TestBrokersAsk:
    def verify(self, calls: Calls, each: TransactionalProducer, topic: str, version: int, *, only: bool) -> str:
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            verify_only=only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        request = AddPartitionsToTxnRequest(transactions=[wanted])
        answer = each.request_until_done(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        result = one(answer.results_by_transaction)
        assert result.transactional_id == each.transactional_id
        return name_of(result.topic_results[0].results_by_partition[0].partition_error_code)

    def test_partitions_are_verified_and_added(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers)
        each.init()
        assert self.verify(calls, each, topic, 4, only=True) == "INVALID_TXN_STATE"
        assert self.verify(calls, each, topic, 5, only=True) == "TRANSACTION_ABORTABLE"
        assert self.verify(calls, each, topic, 5, only=False) == "NONE"
        assert self.verify(calls, each, topic, 5, only=True) == "NONE"
        assert self.verify(calls, each, "no-such-topic", 5, only=False) == "UNKNOWN_TOPIC_OR_PARTITION"
        each.epoch += 1
        assert self.verify(calls, each, topic, 5, only=True) == "PRODUCER_FENCED"

    def test_all_partitions_of_a_request_or_none(
        self, node: Node, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers, 0)
        each.init()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=each.transactional_id,
            v3_and_below_producer_id=each.producer_id,
            v3_and_below_producer_epoch=each.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 7])],
        )
        answer = each.request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        codes = [name_of(each.partition_error_code) for each in results]
        assert codes == ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]
        assert each.write(topic, b"x") == "TRANSACTION_ABORTABLE"


class TestFromOutside:
    def test_list_and_describe(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers)
        each.init(timeout_ms=123_456)
        begin(each, topic, b"x")

        def listed(version: int = 1, **filters: Any) -> list[tuple[str, str]]:
            answer = calls.request(ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters))
            return [
                (found.transactional_id, found.transaction_state)
                for found in answer.transaction_states
                if found.transactional_id == each.transactional_id
            ]

        mine = [(each.transactional_id, "Ongoing")]
        assert listed() == listed(0) == listed(state_filters=["Ongoing", "Empty"]) == mine
        assert listed(producer_id_filters=[each.producer_id]) == listed(duration_filter=0) == mine
        assert listed(state_filters=["Empty"]) == listed(producer_id_filters=[1 << 40]) == []
        assert listed(duration_filter=1 << 40) == listed(state_filters=["Nonsense"]) == []
        pattern = each.transactional_id[:-1] + "."
        assert listed(2, transactional_id_pattern=pattern) == listed(2, transactional_id_pattern=None) == mine
        assert listed(2, transactional_id_pattern="txn") == []
        for bad in ("(", "(a{1000}){1000}"):
            refused = calls.request(ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest(transactional_id_pattern=bad))
            assert name_of(refused.error_code) == "INVALID_REGULAR_EXPRESSION"
        unknown = calls.request(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest(state_filters=["Nonsense"]))
        assert unknown.unknown_state_filters == ["Nonsense"]
        request = DescribeTransactionsRequest(transactional_ids=[each.transactional_id, "no-such-id", ""])
        found, missing, empty = calls.request(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 123_456)
        assert (found.producer_id, found.producer_epoch) == (each.producer_id, each.epoch)
        assert [(part.topic, part.partitions) for part in found.topics] == [(topic, [0])]
        assert name_of(missing.error_code) == "TRANSACTIONAL_ID_NOT_FOUND"
        assert name_of(empty.error_code) == "INVALID_REQUEST"

    def marker(self, calls: Calls, topic: str, producer_id: int, epoch: int, **fields: Any) -> str:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=fields.pop("coordinator_epoch", 0),
            **fields,
        )
        answer = calls.request(ApiKey.WRITE_TXN_MARKERS, 2, WriteTxnMarkersRequest(markers=[marker]))
        return name_of(one(one(answer.markers).topics).partitions[0].error_code)

    def test_a_marker_ends_a_transaction_that_hangs_and_is_written_once(
        self, node: Node, calls: Calls, topic: str, producers: list[TransactionalProducer]
    ) -> None:
        each = producer(node, producers)
        each.init()
        begin(each, topic, b"hangs")
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (active,) = calls.request(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0].active_producers
        assert (active.current_txn_start_offset, active.producer_id) == (0, each.producer_id)
        assert self.marker(calls, topic, each.producer_id, 0, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
        assert self.marker(calls, topic, each.producer_id, active.producer_epoch) == "NONE"
        assert Committed(calls, topic).stable() == 2
        assert self.marker(calls, topic, each.producer_id, active.producer_epoch) == "NONE"
        assert self.marker(calls, topic, each.producer_id, 1, transaction_version=2) == "NONE"
        assert self.marker(calls, topic, each.producer_id, 1, transaction_version=2) == "NONE"
        assert calls.list_end(topic) == 3, "one marker of each epoch"
        assert self.marker(calls, topic, each.producer_id, 0) == "INVALID_PRODUCER_EPOCH"
        assert self.marker(calls, topic, each.producer_id, 1, coordinator_epoch=9) == "NONE"
        late = self.marker(calls, topic, each.producer_id, 1, coordinator_epoch=8)
        assert late == "TRANSACTION_COORDINATOR_FENCED"
        assert self.marker(calls, "no-such-topic", 1, 1) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_bad_ids_and_times(calls: Calls) -> None:
    def init(transactional_id: str, timeout_ms: int) -> str:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        return name_of(calls.request_until_loaded(ApiKey.INIT_PRODUCER_ID, 5, request).error_code)

    with TransactionalProducer(calls.socket.getpeername()[1]) as each:
        name = each.transactional_id
    assert init("", 1000) == "INVALID_REQUEST"
    assert init(name, 0) == init(name, -1) == init(name, 900_001) == "INVALID_TRANSACTION_TIMEOUT"
    assert init(name, 900_000) == "NONE"


@VERSIONS
def test_a_killed_broker_owes_its_markers(own_node: Node, producers: list[TransactionalProducer], version: int) -> None:
    """Killed the moment after it has promised the commit, again and again: every partition gets its marker, once."""
    with Calls(own_node.port) as calls:
        topic = calls.create_topic(30)
    name = ""
    for round_number in range(4):
        each = producer(own_node, producers, version, name or None)
        name = each.transactional_id
        assert each.init() == "NONE"
        if version == 0:
            assert each.add(topic, *range(30)) == "NONE"
        for number in range(30):
            assert each.write(topic, b"%d" % round_number, partition=number) == "NONE"
        request = EndTxnRequest(
            transactional_id=name, producer_id=each.producer_id, producer_epoch=each.epoch, committed=True
        )
        each.request(ApiKey.END_TXN, 5 if version == 2 else 4, request)
        own_node.kill()
        own_node.start()
    with Calls(own_node.port) as calls:
        for number in range(30):
            eventually(lambda number=number: stable_end(calls, topic, number) >= 8, f"{topic}-{number}")
            assert calls.list_end(topic, number) >= 8
            if version == 2:
                assert calls.list_end(topic, number) == 8, "one marker for each transaction"


def stable_end(calls: Calls, topic: str, partition: int) -> int:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    offset: int = calls.request(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset
    return offset
