"""Transactions over three brokers: the coordinator on one, the partitions and the group's coordinator on others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.testing import Cluster
from tests.support.clients.api_calls import Calls, error_codes, fresh_name, name_of
from tests.support.clients.transactions import TransactionalProducer
from tests.support.models.exactly_once import committed_values, ended_values
from tests.support.waiting import eventually

ROUNDS = 60
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"transaction.state.log.num.partitions": 1}) as running:
        yield running


def port_of(cluster: Cluster, node_id: int) -> int:
    return int(cluster.address(node_id).rsplit(":", 1)[1])


def knows_leaders(calls: Calls, topic: str, partitions: int) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = calls.request(ApiKey.METADATA, 12, request).topics[0].partitions
    return [each.leader_id >= 0 for each in found] == [True] * partitions


def create(cluster: Cluster, partitions: int, *, copies: int = 3) -> str:
    name = fresh_name("paid")
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.create_topics([NewTopic(name, partitions, copies)], operation_timeout=90, request_timeout=100)[name].result(
        timeout=120
    )
    # Nodes hear of it one after the other, and one that leads refuses what comes before that.
    for node_id in cluster.node_ids:
        with Calls(port_of(cluster, node_id)) as calls:
            eventually(lambda: knows_leaders(calls, name, partitions))
    return name


class Spread:
    """One producer with a connection to its coordinator and one to every leader that it writes to."""

    def __init__(self, cluster: Cluster, stack: ExitStack, topic: str) -> None:
        self.topic = topic
        first = stack.enter_context(TransactionalProducer(port_of(cluster, 1)))  # the first question makes the topic
        coordinator = int(eventually(lambda: max(cluster.leader("__transaction_state"), 0)))
        name = first.transactional_id
        self.owner = stack.enter_context(TransactionalProducer(port_of(cluster, coordinator), name))
        self.at = {
            node_id: self.owner
            if node_id == coordinator
            else stack.enter_context(TransactionalProducer(port_of(cluster, node_id), name))
            for node_id in cluster.node_ids
        }
        self.coordinator = coordinator
        self.leaders = [cluster.leader(topic, number) for number in range(PARTITIONS)]
        assert self.owner.init() == "NONE"

    def spread_identity(self) -> None:
        """Requests bear the producer id and epoch of the coordinator's last response, over every connection."""
        for each in self.at.values():
            each.producer_id, each.epoch = self.owner.producer_id, self.owner.epoch
            each.sequences.clear()

    def write(self, value: bytes, partition: int) -> str:
        return self.at[self.leaders[partition]].write(self.topic, value, partition=partition)


def test_transactions_one_right_after_the_other_are_not_refused(cluster: Cluster) -> None:
    """EndTxn is answered before its markers are written: the next batch may reach a leader before them (KIP-890)."""
    topic = create(cluster, PARTITIONS)
    expected: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    with ExitStack() as stack:
        spread = Spread(cluster, stack, topic)
        for number in range(ROUNDS):
            spread.spread_identity()
            commit = number % 3 != 1
            value = b"%d" % number
            for partition in [(number + each) % PARTITIONS for each in range(PARTITIONS)]:
                assert spread.write(value, partition) == "NONE", (number, partition)
                if commit:
                    expected[partition].append(value)
            assert spread.owner.end(commit=commit) == "NONE"
        assert any(leader != spread.coordinator for leader in spread.leaders)
    assert ended_values(cluster.bootstrap_servers, topic, PARTITIONS) == expected


def test_every_replica_says_of_its_producers(cluster: Cluster) -> None:
    """`kafka-transactions find-hanging --broker-id` asks each broker for all partitions that it has (KIP-664)."""
    topic = create(cluster, PARTITIONS)
    with ExitStack() as stack:
        spread = Spread(cluster, stack, topic)
        spread.spread_identity()
        assert spread.write(b"open", 0) == "NONE"
        known = (spread.owner.producer_id, spread.owner.epoch, 0)
        ports = [port_of(cluster, node_id) for node_id in cluster.node_ids]
        for port in ports:
            eventually(lambda port=port: producers_at(port, topic) == ("NONE", [known]))
        assert spread.owner.abort() == "NONE"
        over = (known[0], known[1] + 1, -1)
        for port in ports:
            eventually(lambda port=port: producers_at(port, topic) == ("NONE", [over]))
    single = create(cluster, 1, copies=1)
    elsewhere = next(each for each in cluster.node_ids if each != cluster.leader(single))
    assert producers_at(port_of(cluster, elsewhere), single) == ("NOT_LEADER_OR_FOLLOWER", [])


def producers_at(port: int, topic: str) -> tuple[str, list[tuple[int, int, int]]]:
    """The producers of partition 0, as one broker knows them: (id, epoch, first offset of the open transaction)."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    with Calls(port) as calls:
        answer = calls.request(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0]
    producers = [
        (each.producer_id, each.producer_epoch, each.current_txn_start_offset) for each in answer.active_producers
    ]
    return name_of(answer.error_code), producers


def test_offsets_of_transactions_one_right_after_the_other_are_not_refused(cluster: Cluster) -> None:
    """The same for the group's coordinator, which takes offsets into the transaction."""
    topic, group = create(cluster, PARTITIONS), fresh_name("group")
    with ExitStack() as stack:
        spread = Spread(cluster, stack, topic)
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        found = spread.owner.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, asked)
        assert not any(error_codes(found)), found
        keeper = spread.at[found.coordinators[0].node_id]
        for number in range(ROUNDS):
            spread.spread_identity()
            assert keeper.commit_offset(group, topic, number) == "NONE", number
            assert spread.owner.commit() == "NONE"


def test_a_kill_of_the_coordinator_leaves_no_transaction_open(cluster: Cluster) -> None:
    """Killed the moment after it has promised a commit: another one finds the end decided, and delivers it, once."""
    topic = create(cluster, PARTITIONS)
    with ExitStack() as stack:
        spread = Spread(cluster, stack, topic)
        spread.spread_identity()
        for partition in range(PARTITIONS):
            assert spread.write(b"promised", partition) == "NONE"
        assert spread.owner.end(commit=True) == "NONE"
        cluster.kill(spread.coordinator)
    try:
        found = committed_values(cluster.bootstrap_servers, topic, PARTITIONS)
        assert all(values in ([], [b"promised"]) for values in found.values())
        while found != {number: [b"promised"] for number in range(PARTITIONS)}:
            found = committed_values(cluster.bootstrap_servers, topic, PARTITIONS)
    finally:
        cluster.restore()
    for partition in range(PARTITIONS):
        eventually(lambda number=partition: end_of(cluster, topic, number) == 2)  # one record, one marker


def end_of(cluster: Cluster, topic: str, partition: int) -> int:
    """The end offset, as the leader reports it; -1 while the presumed leader is not the leader."""
    leader = cluster.leader(topic, partition)
    if leader < 0:
        return -1
    with Calls(port_of(cluster, leader)) as calls:
        return calls.list_end(topic, partition)
