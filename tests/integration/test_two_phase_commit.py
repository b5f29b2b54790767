"""Two-phase commit (KIP-939): transactions that only their outside coordinator ends, also after every death."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import TransactionState
from odradek.record.reader import read_batches, read_records
from tests.support.clients.api_calls import Calls, bytes_of
from tests.support.clients.cli import odradek
from tests.support.clients.transactions import TransactionalProducer
from tests.support.nodes.node import Node
from tests.support.nodes.permissions import allow_rules, node_in_process, port_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

NO_TIMEOUT_MS = 2**31 - 1
SETTINGS: dict[str, object] = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("two-phase"), SETTINGS) as node:
        yield node


def described(calls: Calls, transactional_id: str) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = calls.request_until_loaded(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    found: TransactionState = answer.transaction_states[0]
    return found


def committed(calls: Calls, topic: str) -> list[bytes]:
    """The values of the committed records of a topic; the answer must list no aborted transaction."""
    answer = calls.read(topic, isolation_level=1)
    assert not answer.aborted_transactions
    data = bytes_of(answer.records)
    seen = []
    for position, header in read_batches(data):
        if not header.is_control:
            records = read_records(data[position : position + header.size_bytes], header)
            seen += [each.value or b"" for each in records]
    return seen


def test_two_phase_commit_is_advertised_where_it_is_enabled(serving: Node) -> None:
    with Calls(serving.port) as calls:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = calls.request(ApiKey.API_VERSIONS, 3, request)
        assert [each.max_version for each in answer.api_keys if each.api_key == ApiKey.INIT_PRODUCER_ID] == [6]


def test_a_prepared_transaction_outlives_everything_but_its_end(tmp_path: Path) -> None:
    with Node(tmp_path, SETTINGS) as node:
        with Calls(node.port) as calls, TransactionalProducer(node.port) as writer:
            topic = calls.create_topic()
            assert writer.init(two_phase=True) == writer.write(topic, b"1", b"2") == "NONE"
            name, prepared = writer.transactional_id, (writer.producer_id, writer.epoch)
            found = described(calls, name)
            assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", NO_TIMEOUT_MS)
            with TransactionalProducer(node.port) as plain:
                assert plain.init(timeout_ms=2000) == plain.write(calls.create_topic(), b"x") == "NONE"
                eventually(
                    lambda: described(calls, plain.transactional_id).transaction_state == "CompleteAbort",
                    "the one with a timeout is aborted",
                )
            assert described(calls, name).transaction_state == "Ongoing"
            with TransactionalProducer(node.port, name) as first:
                assert first.init(two_phase=True, keep=True) == "NONE"
                assert first.writer == prepared and (first.producer_id, first.epoch) > prepared
                assert writer.commit() == "PRODUCER_FENCED"
                assert first.write(topic, b"more") == "INVALID_TXN_STATE", "what is kept takes nothing more"
                kept = first.producer_id, first.epoch
        node.kill()
        node.start()
        with Calls(node.port) as calls, TransactionalProducer(node.port, name) as second:
            assert second.init(two_phase=True, keep=True) == "NONE"
            assert second.writer == prepared, (
                "an outside coordinator knows it by this identity for as long as it is open"
            )
            assert second.end(commit=True, identity=kept) == "PRODUCER_FENCED"
            assert committed(calls, topic) == []
            asked = second.producer_id, second.epoch
            assert second.commit() == "NONE"
            eventually(lambda: committed(calls, topic) == [b"1", b"2"], "what was prepared is there")
            assert second.end(commit=True, identity=asked) == "NONE", "the same end again is answered as before"
            assert second.write(topic, b"3") == second.commit() == "NONE"
            eventually(lambda: committed(calls, topic) == [b"1", b"2", b"3"], "the next transaction follows")
            assert second.init(two_phase=True, keep=True) == "NONE"
            assert second.writer == (-1, -1), "nothing is open"


def test_a_kept_transaction_is_closed_for_what_asks_the_coordinator(serving: Node) -> None:
    """Its writer goes on where it had written before: such a partition asks for the first batch alone."""
    with Calls(serving.port) as calls, TransactionalProducer(serving.port) as writer:
        topic, other = calls.create_topic(), calls.create_topic()
        assert writer.init(two_phase=True) == writer.write(topic, b"1") == "NONE"
        with TransactionalProducer(serving.port, writer.transactional_id) as keeper:
            assert keeper.init(two_phase=True, keep=True) == "NONE"
            assert writer.write(other, b"2") == "INVALID_PRODUCER_EPOCH"
            assert writer.commit() == "PRODUCER_FENCED"
            assert writer.write(topic, b"3") == "NONE"
            assert keeper.commit() == "NONE"
            eventually(lambda: committed(calls, topic) == [b"1", b"3"], "it ends with what it has")
            assert writer.write(topic, b"4") == "INVALID_PRODUCER_EPOCH", "its markers fence the writer there"
            assert committed(calls, other) == []


def test_a_forced_end_aborts_what_is_prepared(serving: Node) -> None:
    """`transactions terminate` does what `kafka-transactions forceTerminateTransaction` of Kafka does."""
    with Calls(serving.port) as calls, TransactionalProducer(serving.port) as writer:
        topic = calls.create_topic()
        assert writer.init(two_phase=True) == writer.write(topic, b"1") == "NONE"
        assert writer.init(two_phase=True, keep=True) == "NONE"
        name = writer.transactional_id
        odradek(serving.bootstrap, "transactions", "terminate", "--transactional-id", name)
        eventually(lambda: described(calls, name).transaction_state in ("CompleteAbort", "Empty"), "it is aborted")
        assert writer.commit() == "PRODUCER_FENCED"
        answer = calls.read(topic, isolation_level=1)
        assert [each.first_offset for each in answer.aborted_transactions or []] == [0]


def test_a_writer_can_end_its_own_as_ever(serving: Node) -> None:
    with Calls(serving.port) as calls, TransactionalProducer(serving.port) as writer:
        topic = calls.create_topic()
        assert writer.init(two_phase=True, timeout_ms=0) == "NONE", "the timeout of the request counts for nothing"
        assert writer.write(topic, b"1") == writer.commit() == "NONE"
        eventually(lambda: committed(calls, topic) == [b"1"], "it is committed")


def test_two_phase_commit_is_an_operation_of_its_own(tmp_path: Path) -> None:
    two_phase, write, id_ = AclOperation.TWO_PHASE_COMMIT, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID
    with node_in_process(tmp_path, SETTINGS) as node, TransactionalProducer(port_of(node)) as writer:
        name, refused = writer.transactional_id, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        allow_rules(node, (write, id_, name))
        assert writer.init(two_phase=True) == writer.init(two_phase=True, keep=True) == refused
        assert writer.init(keep=True) == writer.init() == "NONE", "these have a timeout"
        allow_rules(node, (two_phase, id_, name))
        assert writer.init(two_phase=True) == refused, "it does not include Write"
        topic = (write, AclResourceType.TOPIC, "t")
        create = (AclOperation.CREATE, AclResourceType.TOPIC, "t")
        describe = (AclOperation.DESCRIBE, AclResourceType.TOPIC, "t")
        allow_rules(node, (two_phase, id_, name), (write, id_, name), topic, create, describe)
        with Calls(port_of(node)) as calls:
            calls.create_topic(name="t")
        assert writer.init(two_phase=True) == writer.write("t", b"1") == "NONE"
        allow_rules(node, (write, id_, name), topic)
        assert writer.init(keep=True) == refused, "the timeout of none would be that of an id without the permission"
        assert writer.commit() == "NONE", "it changed nothing"
