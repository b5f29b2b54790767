"""A cluster of one broker that a test plays, for the commits of the Spark connector."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from odradek.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.topic_sink import marker_topic, transaction
from tests.component.client.conftest import ScriptedPeer

TOPIC = "t"
PRODUCER = (0, 5)  # the first id is none that is not known


class PlayedCluster:
    """Answers what a commit asks, without an error where `codes` has none for it.

    Attributes:
        codes: the error codes of the next answers, by API.
        offsets: of every group, the entries (topic, partition, offset, metadata) of the next answers; the last stays.
        fetched: the next answers of Fetch.
        topic_id: None where topics have none, as before Kafka 2.8.
        log: where the topic's only partition begins and ends.
        unlisted: the timestamps for which ListOffsets does not answer for it.
    """

    def __init__(self) -> None:
        self.codes: dict[ApiKey, list[int]] = {}
        self.offsets: list[list[tuple[str, int, int, str]]] = [[]]
        self.fetched: list[PartitionData | FetchResponse] = []
        self.topic_id: UUID | None = UUID(int=3)
        self.log = (0, 0)
        self.unlisted: set[int] = set()
        self.peer = ScriptedPeer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._clusters: list[Cluster] = []

    def start(self) -> None:
        on = self.peer.on
        on(ApiKey.METADATA, self._metadata)
        on(ApiKey.FIND_COORDINATOR, self._coordinator)
        on(ApiKey.INIT_PRODUCER_ID, self._producer)
        on(ApiKey.ADD_PARTITIONS_TO_TXN, self._add_partitions)
        on(
            ApiKey.ADD_OFFSETS_TO_TXN,
            lambda *_: AddOffsetsToTxnResponse(error_code=self._code(ApiKey.ADD_OFFSETS_TO_TXN)),
        )
        on(ApiKey.END_TXN, lambda *_: EndTxnResponse(error_code=self._code(ApiKey.END_TXN)))
        on(ApiKey.TXN_OFFSET_COMMIT, self._commit_offsets)
        on(ApiKey.OFFSET_FETCH, self._fetch_offsets)
        on(ApiKey.PRODUCE, self._produce)
        on(ApiKey.LIST_OFFSETS, self._list_offsets)
        on(ApiKey.FETCH, self._fetch)
        self._thread.start()
        self._run(self.peer.start())

    def stop(self) -> None:
        for cluster in self._clusters:
            cluster.close()
        self._run(self.peer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def connected(self, **settings: str) -> Cluster:
        """A view of it, with settings whose dots are underscores here."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        made = Cluster(ClientSettings.parse({"bootstrap.servers": f"127.0.0.1:{self.peer.port}", **given}))
        self._clusters.append(made)
        return made

    def asked(self, *keys: ApiKey) -> list[Any]:
        """The requests of these APIs."""
        return [request for key, _, request in self.peer.asked if key in keys]

    def steps(self) -> list[str]:
        """The names of the APIs that were asked, without those that find brokers."""
        finding = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
        return [key.name for key, _, _ in self.peer.asked if key not in finding]

    def _code(self, key: ApiKey) -> int:
        codes = self.codes.get(key)
        return codes.pop(0) if codes else ErrorCode.NONE

    def _metadata(self, request: Any, version: int) -> MetadataResponse:
        part = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        topic_id = self.topic_id or UUID(int=0)
        asked = request.topics or ()
        topics = [MetadataResponseTopic(name=each.name, topic_id=topic_id, partitions=[part]) for each in asked]
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.peer.port)
        return MetadataResponse(brokers=[broker], topics=topics)

    def _coordinator(self, request: Any, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            error_code=self._code(ApiKey.FIND_COORDINATOR), node_id=1, host="127.0.0.1", port=self.peer.port
        )

    def _producer(self, request: Any, version: int) -> InitProducerIdResponse:
        producer_id, producer_epoch = PRODUCER
        code = self._code(ApiKey.INIT_PRODUCER_ID)
        return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=producer_epoch)

    def _add_partitions(self, request: Any, version: int) -> AddPartitionsToTxnResponse:
        code = self._code(ApiKey.ADD_PARTITIONS_TO_TXN)
        results = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _commit_offsets(self, request: Any, version: int) -> TxnOffsetCommitResponse:
        code = self._code(ApiKey.TXN_OFFSET_COMMIT)
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitResponse(topics=topics)

    def _fetch_offsets(self, request: Any, version: int) -> OffsetFetchResponse:
        entries = self.offsets.pop(0) if len(self.offsets) > 1 else self.offsets[0]
        topics = [
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, metadata=metadata)
                ],
            )
            for topic, index, offset, metadata in entries
        ]
        return OffsetFetchResponse(error_code=self._code(ApiKey.OFFSET_FETCH), topics=topics)

    def _produce(self, request: Any, version: int) -> ProduceResponse:
        code = self._code(ApiKey.PRODUCE)
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=code) for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=responses)

    def _list_offsets(self, request: Any, version: int) -> ListOffsetsResponse:
        start, end = self.log
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, offset=start if part.timestamp == -2 else end
                    )
                    for part in topic.partitions
                    if part.timestamp not in self.unlisted
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, request: Any, version: int) -> FetchResponse:
        answer = self.fetched.pop(0) if self.fetched else PartitionData(partition_index=0, records=b"")
        if isinstance(answer, FetchResponse):
            return answer
        topic = request.topics[0]
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[answer])]
        )


@pytest.fixture
def played() -> Iterator[PlayedCluster]:
    transaction._SESSIONS.clear()
    marker_topic._READ.clear()
    made = PlayedCluster()
    made.start()
    yield made
    made.stop()
    transaction._SESSIONS.clear()
    marker_topic._READ.clear()
