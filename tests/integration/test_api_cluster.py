"""DescribeCluster, DescribeLogDirs, DescribeQuorum and UpdateFeatures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import describe_quorum_request as quorum_request
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResult
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from tests.support.clients.api_calls import Calls, batch, batch_count, fetch_topic, fresh_name, name_of, one
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

BROKERS, CONTROLLERS = 1, 2
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
# An API that a feature is for, and the highest level that Kafka 4.4 has.
BEHIND_FEATURES = {
    "eligible.leader.replicas.version": (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 1),
    "group.version": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
    "kraft.version": (ApiKey.ADD_RAFT_VOTER, 1),
    "share.version": (ApiKey.SHARE_GROUP_HEARTBEAT, 2),
    "streams.version": (ApiKey.STREAMS_GROUP_HEARTBEAT, 1),
    "transaction.version": (ApiKey.ADD_PARTITIONS_TO_TXN, 2),
}


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


class TestDescribeCluster:
    def test_describe_cluster_agrees_with_metadata(self, calls: Calls, node: Node) -> None:
        known = calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
        for version in range(3):
            answer = calls.request(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest())
            assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, known.cluster_id, 1)
            broker = one(answer.brokers)
            assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", node.port)
            assert answer.cluster_authorized_operations == -(2**31)

    def test_authorized_operations_are_reported_on_request(self, calls: Calls) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = calls.request(ApiKey.DESCRIBE_CLUSTER, 1, request)
        assert answer.cluster_authorized_operations == 0b1111110100000

    def test_a_listener_speaks_of_its_own_kind(self, calls: Calls, node: Node) -> None:
        def requested(connection: Calls, kind: int) -> Any:
            return connection.request(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=kind))

        assert name_of(requested(calls, CONTROLLERS).error_code) == "MISMATCHED_ENDPOINT_TYPE"
        assert name_of(requested(calls, 7).error_code) == "UNSUPPORTED_ENDPOINT_TYPE"
        with Calls(node.controller_port) as controller:
            assert name_of(requested(controller, BROKERS).error_code) == "MISMATCHED_ENDPOINT_TYPE"
            answer = requested(controller, CONTROLLERS)
            assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, CONTROLLERS, 1)
            found = one(answer.brokers)
            assert (found.broker_id, found.host, found.port) == (1, "127.0.0.1", node.controller_port)


class TestDescribeLogDirs:
    @staticmethod
    def request(calls: Calls, topics: dict[str, list[int]] | None = None, version: int = 4) -> DescribeLogDirsResult:
        wanted = None
        if topics is not None:
            wanted = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
        answer = calls.request(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=wanted))
        assert not answer.error_code
        found: DescribeLogDirsResult = one(answer.results)
        return found

    def test_sizes_are_those_of_the_logs(self, calls: Calls, node: Node) -> None:
        topic = calls.create_topic(2)
        sent = sum(len(data) for data in calls.fill(topic, 10))
        found = self.request(calls, {topic: [0, 1]})
        assert found.log_dir == str(node.data_dir)
        assert {part.partition_index: part.partition_size for part in one(found.topics).partitions} == {0: sent, 1: 0}
        assert {part.offset_lag for part in one(found.topics).partitions} == {0}
        assert not any(part.is_future_key for part in one(found.topics).partitions)
        assert found.total_bytes > found.usable_bytes > 0

    def test_all_where_none_is_named(self, calls: Calls) -> None:
        topic = calls.create_topic(2)
        names = {each.name for each in self.request(calls).topics}
        assert topic in names

    def test_missing_partitions_are_omitted(self, calls: Calls) -> None:
        topic = calls.create_topic()
        found = self.request(calls, {topic: [0, 9], fresh_name(): [0]})
        assert [part.partition_index for part in one(found.topics).partitions] == [0]
        assert self.request(calls, {}).topics == []


class TestDescribeQuorum:
    @staticmethod
    def request(calls: Calls, topic: str = "__cluster_metadata", partition: int = 0, version: int = 2) -> Any:
        asked = quorum_request.TopicData(topic_name=topic)
        asked.partitions = [quorum_request.PartitionData(partition_index=partition)]
        answer: DescribeQuorumResponse = calls.request(
            ApiKey.DESCRIBE_QUORUM, version, quorum_request.DescribeQuorumRequest(topics=[asked])
        )
        assert not answer.error_code
        return answer

    def test_one_voter_that_leads(self, calls: Calls, node: Node) -> None:
        answer = self.request(calls)
        partition = one(one(answer.topics).partitions)
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert partition.leader_epoch >= 1
        voter = one(partition.current_voters)
        assert voter.replica_id == 1
        assert 0 < partition.high_watermark <= voter.log_end_offset
        assert voter.last_caught_up_timestamp > 1_600_000_000_000
        listener = one(one(answer.nodes).listeners)
        assert (listener.host, listener.port) == ("127.0.0.1", node.controller_port)

    def test_the_watermark_moves_with_changes(self, calls: Calls) -> None:
        before = one(one(self.request(calls).topics).partitions).high_watermark
        calls.create_topic()
        assert one(one(self.request(calls).topics).partitions).high_watermark > before

    def test_directory_ids_only_where_the_version_has_them(self, calls: Calls) -> None:
        for version in (0, 1):
            answer = self.request(calls, version=version)
            assert one(one(one(answer.topics).partitions).current_voters).replica_directory_id == UUID(int=0)

    @pytest.mark.parametrize(("topic", "partition"), [("other", 0), ("__cluster_metadata", 1)])
    def test_any_other_partition_is_unknown(self, calls: Calls, topic: str, partition: int) -> None:
        found = one(one(self.request(calls, topic, partition).topics).partitions)
        assert name_of(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


class TestUpdateFeatures:
    @staticmethod
    def request(
        calls: Calls, feature: str, level: int, kind: int = UPGRADE, *, validate_only: bool = False
    ) -> UpdateFeaturesResponse:
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=validate_only)
        answer: UpdateFeaturesResponse = calls.request(ApiKey.UPDATE_FEATURES, 2, request)
        return answer

    @staticmethod
    def levels(calls: Calls) -> dict[str, tuple[int, int, int]]:
        """(lowest, highest supported, finalized) by feature."""
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = calls.request(ApiKey.API_VERSIONS, 4, request)
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        return {
            each.name: (each.min_version, each.max_version, finalized.get(each.name, 0))
            for each in answer.supported_features
        }

    def wait_for_level(self, calls: Calls, level: int) -> None:
        """Wait until the broker has replayed the level that the controller has committed."""
        eventually(lambda: self.levels(calls)["transaction.version"][2] == level)

    def test_a_feature_goes_down_and_up(self, calls: Calls) -> None:
        lowest, _, level = self.levels(calls)["transaction.version"]
        assert level > lowest
        assert not self.request(calls, "transaction.version", level - 1, SAFE_DOWNGRADE).error_code
        self.wait_for_level(calls, level - 1)
        assert not self.request(calls, "transaction.version", level, UPGRADE).error_code
        self.wait_for_level(calls, level)

    @pytest.mark.parametrize(
        ("feature", "level", "kind", "expected"),
        [
            ("no.such.feature", 1, UPGRADE, "INVALID_UPDATE_VERSION"),
            ("metadata.version", 32000, UPGRADE, "INVALID_UPDATE_VERSION"),
            ("metadata.version", 1, SAFE_DOWNGRADE, "INVALID_UPDATE_VERSION"),
            ("metadata.version", 7, UPGRADE, "INVALID_UPDATE_VERSION"),
            ("transaction.version", -1, SAFE_DOWNGRADE, "INVALID_UPDATE_VERSION"),
            ("transaction.version", 0, UPGRADE, "INVALID_UPDATE_VERSION"),
            ("transaction.version", 1, 9, "INVALID_UPDATE_VERSION"),
        ],
    )
    def test_invalid_feature_updates_are_refused(
        self, calls: Calls, feature: str, level: int, kind: int, expected: str
    ) -> None:
        before = self.levels(calls)
        answer = self.request(calls, feature, level, kind)
        assert name_of(answer.error_code) == expected, answer.error_message
        assert answer.error_message
        assert self.levels(calls) == before

    @pytest.mark.only_ours  # Kafka serves them all
    @pytest.mark.parametrize("at_controller", [False, True])
    def test_features_go_as_far_as_there_is_an_api_behind_them(self, node: Node, at_controller: bool) -> None:
        with Calls(node.port) as broker, Calls(node.controller_port if at_controller else node.port) as calls:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            served = {each.api_key for each in broker.request(ApiKey.API_VERSIONS, 4, request).api_keys}
            before = self.levels(calls)
            last = 33 if ApiKey.UNREGISTER_CONTROLLER in served else 31
            assert before["metadata.version"][:2] == (7, last)
            assert name_of(self.request(calls, "metadata.version", last + 1).error_code) == "INVALID_UPDATE_VERSION"
            for feature, (api, highest) in BEHIND_FEATURES.items():
                offered = highest if api in served else 0
                assert before[feature][:2] == (0, offered), feature
                answer = self.request(calls, feature, offered + 1)
                assert name_of(answer.error_code) == "INVALID_UPDATE_VERSION", feature
                expected = (
                    f"Invalid update version {offered + 1} for feature {feature}. "
                    f"Local controller supports versions 0-{offered}."
                )
                assert answer.error_message == expected
            assert self.levels(calls) == before

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_the_first_error_is_the_answer(self, calls: Calls, version: int) -> None:
        before = self.levels(calls)
        updates = [
            FeatureUpdateKey(feature="transaction.version", max_version_level=before["transaction.version"][2]),
            FeatureUpdateKey(feature="no.such.feature", max_version_level=1),
        ]
        answer = calls.request(
            ApiKey.UPDATE_FEATURES, version, UpdateFeaturesRequest(timeout_ms=0, feature_updates=updates)
        )
        assert (name_of(answer.error_code), answer.results) == ("INVALID_UPDATE_VERSION", [])

    def test_only_checked_is_not_done(self, calls: Calls) -> None:
        before = self.levels(calls)
        level = before["transaction.version"][2]
        answer = self.request(calls, "transaction.version", level - 1, SAFE_DOWNGRADE, validate_only=True)
        assert not answer.error_code
        assert self.levels(calls) == before


@pytest.mark.only_ours
def test_a_directory_that_is_lost_takes_only_its_partitions(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("node")
    kept, lost = root / "kept", root / "lost"
    with Node(root, {"log.dirs": f"{kept},{lost}"}) as node, Calls(node.port) as calls:
        topic = calls.create_topic(4)
        for partition in range(4):
            calls.fill(topic, 2, partition=partition)
        here = [number for number in range(4) if (kept / f"{topic}-{number}").exists()]
        gone = [number for number in range(4) if number not in here]
        assert len(here) == len(gone) == 2

        lost.rename(root / "gone")  # in one step: the node writes its checkpoints meanwhile
        lost.write_text("no directory any more")
        request = CreateTopicsRequest(topics=[CreatableTopic(name="next", num_partitions=4, replication_factor=1)])
        assert not one(calls.request(ApiKey.CREATE_TOPICS, 5, request).topics).error_code

        for partition in gone:
            answer = calls.produce(topic, batch(b"x"), partition=partition)
            assert name_of(answer.error_code) == "KAFKA_STORAGE_ERROR"
            part = one(one(calls.fetch(fetch_topic(topic, {partition: 0})).responses).partitions)
            assert name_of(part.error_code) == "KAFKA_STORAGE_ERROR"
        for partition in here:
            calls.fill(topic, 1, partition=partition)
            part = one(one(calls.fetch(fetch_topic(topic, {partition: 0})).responses).partitions)
            assert batch_count(part.records) == 3
        reported = calls.request(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None)).results
        assert {each.log_dir: name_of(each.error_code) for each in reported} == {
            str(kept): "NONE",
            str(lost): "KAFKA_STORAGE_ERROR",
        }
        assert node.log_text().count("log directory offline") == 1
        assert "Traceback" not in node.log_text()
