"""Requests to a cluster: partitions, their start and end offsets, and commits of a group.

Every request is retried over new connections, until it succeeds or `default.api.timeout.ms` is over, so that a query
survives the restart of a broker. Permanent errors (no such topic, not authorized) are not retried.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from odradek.common.backoff import Backoff
from odradek.common.errors import ErrorCode, ProtocolError
from odradek.common.numbers import INT32_MAX
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from pyspark_odradek.client.connection import FETCH_BY_NAME, Connection, Security, security_from
from pyspark_odradek.client.offsets import Positions, TopicPartition
from pyspark_odradek.errors import ClusterError, OptionError

log = logging.getLogger("pyspark_odradek")
T = TypeVar("T")

# Errors that pass: a broker that starts, a leader that moves, a coordinator that loads.
PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    }
)
# Not every broker may know a new topic yet.
UNKNOWN_TOPIC_PATIENCE_S = 2.0
FIRST_BACKOFF_MS = 50
SUBSCRIBE_ADVICE = "Create it, or correct the option subscribe or assign"
GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
TOPIC, BROKER = 2, 4  # resource types of DescribeConfigs
LAST_BACKOFF_MS = 1_000
MOST_DIGITS = 18  # of a number in a setting: Python refuses to read much longer ones
GONE_PATIENCE_S = 3.0  # accept data loss only where brokers report it consistently for this long
NO_TOPIC_ID = UUID(int=0)
NAMES = "it is letters, digits, '.', '_' and '-', 249 of them at most"


class RetriableError(Exception):
    """The request may succeed soon."""


class NoTopicError(RetriableError):
    """The topic does not exist, or was recreated; a broker that has just started may report this too."""


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


@dataclass(frozen=True)
class ClientSettings:
    """The settings of Kafka's clients that this package reads, by their names there; times in milliseconds."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "odradek-spark"
    isolation_level: int = 1
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 120_000
    max_partition_fetch_bytes: int = 4 << 20
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> ClientSettings:
        """Read them from `kafka.*` options without the prefix. Raises OptionError."""
        isolation = settings.get("isolation.level", "read_committed").lower()
        if isolation not in ("read_committed", "read_uncommitted"):
            raise OptionError("kafka.isolation.level is read_committed or read_uncommitted")

        def number(name: str, default: int) -> int:
            text = settings.get(name, str(default))
            if not text.strip().isdecimal():
                raise OptionError(f"kafka.{name}: {text!r} is not a whole number")
            if len(text.strip()) > MOST_DIGITS or int(text) > INT32_MAX:
                raise OptionError(f"kafka.{name}: {text} is above {INT32_MAX}")
            return int(text)

        return cls(
            bootstrap=parse_bootstrap(settings["bootstrap.servers"]),
            client_id=settings.get("client.id", cls.client_id),
            isolation_level=1 if isolation == "read_committed" else 0,
            request_timeout_ms=number("request.timeout.ms", cls.request_timeout_ms),
            default_api_timeout_ms=number("default.api.timeout.ms", cls.default_api_timeout_ms),
            max_partition_fetch_bytes=number("max.partition.fetch.bytes", cls.max_partition_fetch_bytes),
            fetch_max_wait_ms=number("fetch.max.wait.ms", cls.fetch_max_wait_ms),
            check_crcs=settings.get("check.crcs", "true").lower() != "false",
            given=tuple(sorted(settings.items())),
        )

    def security(self) -> Security:
        """The security of connections; created in each process, since a TLS context cannot be pickled."""
        return security_from(dict(self.given))


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """Read `host:port,[::1]:port,…`; raises OptionError."""
    addresses = []
    for address in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise OptionError(f"kafka.bootstrap.servers: {address!r} is not host:port")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise OptionError("kafka.bootstrap.servers names no broker")
    return tuple(addresses)


class Cluster:
    """A cluster as one query sees it; keeps a connection to each broker that it talks to. Not for several threads."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._security = settings.security()
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self.topic_ids: dict[str, UUID] = {}  # of the last metadata response; none of a cluster before Kafka 2.8
        self._asked = settings.bootstrap[0]  # the last broker that answered a request that any may answer
        self._siblings: list[Cluster] = []
        self._put_off: dict[tuple[str, int], int] = {}  # brokers that others are asked before, by when that was said

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        for sibling in self._siblings:
            sibling.close()

    def siblings(self, count: int) -> list[Cluster]:
        """Other clients of the same cluster, one for each thread; they are closed and reset with this one."""
        while len(self._siblings) < count:
            self._siblings.append(Cluster(self.settings))
        return self._siblings[:count]

    def partitions(
        self,
        topics: Iterable[str] | None,
        *,
        must_exist: bool = False,
        advice: str = SUBSCRIBE_ADVICE,
    ) -> dict[str, list[int]]:
        """The partitions of the topics that exist, or of all topics but internal ones for None.

        Raises:
            ClusterError: no broker answers in time; or with `must_exist` a topic does not exist.
        """
        wanted = None if topics is None else sorted(set(topics))
        deadline = time.monotonic() + UNKNOWN_TOPIC_PATIENCE_S
        while True:
            found = self.retrying("the topics", lambda: self._metadata(wanted))
            missing = [topic for topic in wanted or () if topic not in found]
            if not missing or not must_exist:
                return found
            if time.monotonic() > deadline:
                raise ClusterError(f"no such topic: {', '.join(missing)}. {advice}.")
            time.sleep(0.2)

    def list_offsets(
        self, asked: Mapping[TopicPartition, int], isolation_level: int | None = None
    ) -> dict[TopicPartition, int]:
        """Offsets for EARLIEST, LATEST or a timestamp in ms; -1 if no record is as young as the timestamp.

        With read_committed, by default as the settings say, `LATEST` is the last stable offset. A partition that
        is deleted meanwhile is omitted.
        """
        level = self.settings.isolation_level if isolation_level is None else isolation_level
        return self.retrying("offsets", lambda: self._list_offsets(asked, level)) if asked else {}

    def commit(self, group: str, positions: Positions, metadata: str = "odradek-spark") -> None:
        """Commit offsets for a group without members, which `odradek groups describe` shows as its progress.

        Raises:
            ClusterError: the group has members, or the client is not authorized.
        """
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition_id), offset in sorted(positions.items()):
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition_id, committed_offset=offset, committed_metadata=metadata
                )
            )
        message = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        self.retrying("the coordinator", lambda: self._commit(group, message))

    def fetch_offsets(
        self, group: str, *, stable: bool, partitions: Iterable[TopicPartition] | None = None
    ) -> list[tuple[str, int, int, str]]:
        """(topic, partition, offset, metadata) of a group's committed offsets, in one attempt; offset -1 for none.

        Args:
            stable: an open transaction that may change the answer is waited for, by a RetriableError.
            partitions: None for all; Apache Kafka then omits those without a commit before the open transaction, stable
                or not.
        Raises:
            OSError, ProtocolError, RetriableError: ask again, `retrying` does.
            ClusterError: the cluster refused.
        """
        topics: dict[str, list[int]] = {}
        for topic_name, partition_id in partitions or ():
            topics.setdefault(topic_name, []).append(partition_id)
        asked = [OffsetFetchRequestTopic(name=name, partition_indexes=ids) for name, ids in topics.items()]
        request = OffsetFetchRequest(
            group_id=group, topics=None if partitions is None else asked, require_stable=stable
        )
        answer = self.coordinator(group).request(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse)
        check(answer.error_code, f"OffsetFetch of group {group}")
        found = []
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code, f"OffsetFetch of group {group} for {topic.name}")
                found.append((topic.name, part.partition_index, part.committed_offset, part.metadata or ""))
        return found

    def ongoing_transactions(self) -> list[tuple[str, int]]:
        """(transactional id, producer id) of the open transactions that the client may describe (KIP-664).

        Brokers that do not respond are skipped, and so are those before Kafka 3.0. Raises OSError, ProtocolError,
        RetriableError or ClusterError if no broker responds.
        """
        self._metadata([])
        found: list[tuple[str, int]] = []
        for node_id, address in self._nodes.items():
            try:
                connection = self._connection(address)
                request = ListTransactionsRequest(state_filters=["Ongoing"])
                answer = connection.request(ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse)
                check(answer.error_code, "ListTransactions")
            except (OSError, ProtocolError, RetriableError, ClusterError) as error:
                log.debug("broker %d does not tell its open transactions: %s", node_id, error)
                if address in self._connections:
                    self._connections.pop(address).close()
            else:
                found += [(each.transactional_id, each.producer_id) for each in answer.transaction_states]
        return found

    def wait_for_records(self, positions: Positions, wait_ms: int) -> None:
        """Return when a partition has a record past its position, or after `wait_ms`: a long poll while idle.

        The leader is polled only if it is the same for all partitions; otherwise this only sleeps.
        """
        leaders = {self._leaders.get(partition) for partition in positions}
        if len(leaders) != 1 or None in leaders:
            time.sleep(wait_ms / 1000)
            return
        try:
            connection = self.leader(next(iter(positions)))
            self.send_fetch(connection, positions, wait_ms, 1)
            connection.receive()
        except (OSError, ProtocolError, RetriableError, ClusterError) as error:
            log.debug("the long poll ended early: %s", error)
            self.close()
            time.sleep(wait_ms / 1000)

    def send_fetch(
        self,
        connection: Connection,
        positions: Positions,
        wait_ms: int,
        max_bytes: int,
        topic_ids: Mapping[str, UUID] | None = None,
        isolation_level: int | None = None,
    ) -> None:
        """Fetch records from these positions, by default with the settings' isolation level; returns a FetchResponse.

        Topics have ids if all ids are known and the broker supports them, so that nothing is read from a recreated
        topic; `topic_ids` defaults to those of the last metadata response.
        """
        ids = self.topic_ids if topic_ids is None else topic_ids
        by_topic: dict[str, list[FetchPartition]] = {}
        for (topic, partition_id), offset in positions.items():
            by_topic.setdefault(topic, []).append(
                FetchPartition(partition=partition_id, fetch_offset=offset, partition_max_bytes=max_bytes)
            )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max(max_bytes, 1),
            isolation_level=self.settings.isolation_level if isolation_level is None else isolation_level,
            topics=[
                FetchTopic(topic=topic, topic_id=ids.get(topic, NO_TOPIC_ID), partitions=parts)
                for topic, parts in by_topic.items()
            ],
        )
        newest = None if by_topic.keys() <= ids.keys() else FETCH_BY_NAME
        connection.send(ApiKey.FETCH, request, FetchResponse, newest)

    def leader(self, partition: TopicPartition) -> Connection:
        """A connection to the partition's leader. Raises OSError, RetriableError if there is none now."""
        if partition not in self._leaders and partition.topic not in self._metadata([partition.topic]):
            raise NoTopicError(f"the topic {partition.topic} does not exist any more")
        node_id = self._leaders.get(partition, -1)
        if node_id not in self._nodes:
            raise RetriableError(f"{partition.topic}-{partition.partition_id} has no leader")
        return self._connection(self._nodes[node_id])

    def rotate_bootstrap(self) -> None:
        """Use another bootstrap broker for the next request to any broker.

        A fenced or isolated broker has old metadata, so a missing topic must be confirmed by several.
        """
        self._put_last(self._asked)

    def reset(self) -> None:
        """Discard cached leaders and connections; the next request fetches metadata again."""
        self.close()
        self._leaders.clear()
        self._coordinators.clear()
        for sibling in self._siblings:
            sibling.reset()

    def retrying(self, what: str, ask: Callable[[], T]) -> T:
        """Retry `ask` after retriable errors, until it succeeds or the time is over. Raises ClusterError."""
        deadline = time.monotonic() + self.settings.default_api_timeout_ms / 1000
        backoff = Backoff(FIRST_BACKOFF_MS, LAST_BACKOFF_MS)
        warned = False
        while True:
            try:
                return ask()
            except (OSError, ProtocolError, RetriableError) as error:
                self.reset()
                if time.monotonic() + backoff.pause_ms / 1000 > deadline:
                    seconds = self.settings.default_api_timeout_ms / 1000
                    raise ClusterError(
                        f"{self._where()} did not tell {what} in {seconds:g} s (kafka.default.api.timeout.ms): {error}"
                    ) from error
                if not warned and backoff.at_last:
                    log.warning("%s does not answer (%s); still trying", self._where(), error)
                    warned = True
            time.sleep(backoff.next_ms() / 1000)

    def _where(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap)

    def _connection(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_idle:
            connection.close()  # someone stopped reading halfway through; its answers are of no use to us
            connection = None
        if connection is None:
            timeout_s = self.settings.request_timeout_ms / 1000
            connection = Connection(*address, self._security, self.settings.client_id, timeout_s)
            self._connections[address] = connection
        return connection

    def _any_connection(self) -> Connection:
        first_error: Exception | None = None
        known = dict.fromkeys([*self._connections, *self.settings.bootstrap, *self._nodes.values()])
        for address in sorted(known, key=lambda each: self._put_off.get(each, 0)):
            try:
                connection = self._connection(address)
            except (OSError, ProtocolError) as error:
                first_error = first_error or error
                self._put_last(address)
            else:
                self._asked = address
                return connection
        assert first_error is not None
        raise first_error

    def _put_last(self, address: tuple[str, int]) -> None:
        self._put_off[address] = max(self._put_off.values(), default=0) + 1

    def _metadata(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        message = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = self._any_connection().request(ApiKey.METADATA, message, MetadataResponse)
        self._nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        found: dict[str, list[int]] = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._discard_topic(topic.name or "")
                continue
            _check_topic(topic)
            if topic.name is not None and not (topic.is_internal and topics is None):
                found[topic.name] = self._store_topic(topic.name, topic)
        return found

    def _store_topic(self, name: str, topic: MetadataResponseTopic) -> list[int]:
        """Store the leaders of a topic's partitions; returns the partition numbers."""
        if topic.topic_id != NO_TOPIC_ID:
            self.topic_ids[name] = topic.topic_id
        for part in topic.partitions:
            self._leaders[TopicPartition(name, part.partition_index)] = part.leader_id
        return sorted(part.partition_index for part in topic.partitions)

    def _discard_topic(self, name: str) -> None:
        self.topic_ids.pop(name, None)
        self._leaders = {p: leader for p, leader in self._leaders.items() if p.topic != name}

    def _with_leaders(self, asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The existing ones of these partitions, once their leaders are known."""
        unknown = {partition.topic for partition in asked if partition not in self._leaders}
        if not unknown:
            return asked
        exists = {TopicPartition(t, p) for t, parts in self._metadata(sorted(unknown)).items() for p in parts}
        return {p: time_ms for p, time_ms in asked.items() if p.topic not in unknown or p in exists}

    def _list_offsets(self, asked: Mapping[TopicPartition, int], isolation_level: int) -> dict[TopicPartition, int]:
        asked = self._with_leaders(asked)
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for partition, timestamp in asked.items():
            topics = by_leader.setdefault(self._leaders[partition], {})
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(partition_index=partition.partition_id, timestamp=timestamp)
            )
        offsets: dict[TopicPartition, int] = {}
        for node_id, topics in by_leader.items():
            if node_id not in self._nodes:
                raise RetriableError(f"a partition of {', '.join(topics)} has no leader")
            message = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
            )
            connection = self._connection(self._nodes[node_id])
            answer = connection.request(ApiKey.LIST_OFFSETS, message, ListOffsetsResponse)
            for topic in answer.topics:
                for part in topic.partitions:
                    check(part.error_code, f"{topic.name}-{part.partition_index}")
                    offsets[TopicPartition(topic.name, part.partition_index)] = part.offset
        return offsets

    def coordinator(self, key: str, key_type: int = GROUP) -> Connection:
        """A connection to the coordinator of a group or a transactional id.

        Raises OSError, ProtocolError or RetriableError if there is none now, ClusterError without authorization.
        """
        address = self._coordinators.get((key_type, key))
        if address is None:
            finding = FindCoordinatorRequest(key=key, key_type=key_type)
            found = self._any_connection().request(ApiKey.FIND_COORDINATOR, finding, FindCoordinatorResponse)
            check(found.error_code, f"coordinator of {'group' if key_type == GROUP else 'transactional id'} {key}")
            address = self._coordinators[(key_type, key)] = (found.host, found.port)
        return self._connection(address)

    def create_topic(self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        """Create a topic; returns False if it exists already. -1 takes the broker's default. Raises ClusterError."""
        message = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in sorted(configs.items())],
                )
            ]
        )

        def create() -> bool:
            answer = self._any_connection().request(ApiKey.CREATE_TOPICS, message, CreateTopicsResponse)
            result = answer.topics[0]
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            if result.error_code in PASSING or result.error_code == ErrorCode.NOT_CONTROLLER:
                raise RetriableError(f"{topic}: {error_name(result.error_code)}")
            if result.error_code != ErrorCode.NONE:
                why = f": {result.error_message}" if result.error_message else ""
                raise ClusterError(f"topic {topic} cannot be created: {error_name(result.error_code)}{why}")
            return True

        return self.retrying(f"whether topic {topic} could be created", create)

    def settings_of(self, kind: int, name: str, wanted: list[str]) -> dict[str, str | None]:
        """Values of settings of a TOPIC, or of a BROKER by its id, in one attempt; missing ones are omitted.

        Raises:
            OSError, ProtocolError, RetriableError: ask again, `retrying` does.
            ClusterError: the cluster refused.
        """
        connection = self._any_connection() if kind == TOPIC else self._connection(self._nodes[int(name)])
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
        request = DescribeConfigsRequest(resources=[asked])
        (found,) = connection.request(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse).results
        if found.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            of = f"topic {name}" if kind == TOPIC else "the cluster"
            raise ClusterError(f"the settings of {of} may not be read: not authorized. Grant DESCRIBE_CONFIGS on it")
        check(found.error_code, f"DescribeConfigs of {name}")
        return {config.name: config.value for config in found.configs}

    def broker_setting(self, name: str) -> str | None:
        """A setting of one of the brokers, in one attempt; None if it has none. Raises as `settings_of`."""
        if not self._nodes:
            self._metadata([])
        return self.settings_of(BROKER, str(min(self._nodes)), [name]).get(name)

    def _commit(self, group: str, message: OffsetCommitRequest) -> None:
        answer = self.coordinator(group).request(ApiKey.OFFSET_COMMIT, message, OffsetCommitResponse)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue  # deleted meanwhile: nothing is left to have progress in
                check(part.error_code, f"commit of group {group} for {topic.name}-{part.partition_index}")


def _check_topic(topic: MetadataResponseTopic) -> None:
    """Raise as `check` for the error of a topic in Metadata."""
    if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise ClusterError(f"{topic.name!r} can be no topic's name: {NAMES}")
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise ClusterError(f"topic {topic.name}: not authorized. Grant DESCRIBE and READ on it (WRITE to a sink's)")
    check(topic.error_code, f"topic {topic.name}")


def check(code: int, what: str) -> None:
    """Raise RetriableError or ClusterError for an error code that is not NONE."""
    if code in PASSING:
        raise RetriableError(f"{what}: {error_name(code)}")
    if code != ErrorCode.NONE:
        raise ClusterError(f"{what}: {error_name(code)}")


_SHARED: dict[ClientSettings, tuple[int, Cluster]] = {}


def shared_cluster(settings: ClientSettings) -> Cluster:
    """The cluster of this process for these settings: Spark reuses workers, and so their connections.

    Workers are forked, and two processes must not share a socket, so the process id is checked.
    """
    pid = os.getpid()
    owner, cluster = _SHARED.get(settings, (0, None))
    if cluster is None or owner != pid:
        cluster = Cluster(settings)
        _SHARED[settings] = (pid, cluster)
    return cluster
