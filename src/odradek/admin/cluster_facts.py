"""The facts of a running cluster, of Odradek or Apache Kafka, collected over Kafka's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from odradek.admin.finding import Report
from odradek.client.admin import ResourceType, describe_cluster, describe_configs, describe_quorum
from odradek.client.cluster import Cluster, partitions_of
from odradek.client.groups import EARLIEST, LATEST, committed_offsets, describe_group, list_groups, list_offsets
from odradek.client.reassignment import GONE, replica_sizes
from odradek.common.errors import OdradekError
from odradek.common.topic_names import TopicPartition
from odradek.protocol.extras import read_broker_host
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResult
from odradek.protocol.messages.metadata_response import MetadataResponsePartition
from odradek.settings.broker import METRICS_LISTENER
from odradek.settings.listeners import LISTENER_PREFIX
from odradek.settings.resources import ConfigSource, ConfigType

MIN_ISR = "min.insync.replicas"
CONNECTS = 3
CONNECT_TIMEOUT_S = 3.0
# Settings of Kafka's authorizer: its brokers do not define them, and describe them without a type.
_OF_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
_GIVEN_BY_USERS = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Two samples of a group: its lag, and the records that were written in between."""

    members: int
    lag_before: int
    lag: int
    written: int


@dataclass
class ClusterFacts:
    """The facts of a cluster. Facts that could not be requested are empty, and reported as skipped.

    Attributes:
        racks, hosts: of all brokers; None if unknown.
        fenced: the fenced brokers.
        voters: the ids of the quorum's voters.
        round_trips_ms: from this machine to the voters.
        clock_ahead_ms: the difference of the active controller's clock to this machine's.
        clock_error_ms: the uncertainty of that difference.
        min_isr: min.insync.replicas by topic.
        sizes: bytes by broker.
        settings: known settings that users have set, by "topic orders" or "broker 1".
        unknown: unknown settings that users have set.
        is_ours: whether the brokers are Odradek's, judged by their settings.
        begins, ends: the offsets of partitions with a leader.
        read: the partitions for which a group has committed.
    """

    racks: dict[int, str | None] = field(default_factory=dict)
    hosts: dict[int, str | None] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    voters: list[int] = field(default_factory=list)
    round_trips_ms: dict[int, float] = field(default_factory=dict)
    clock_ahead_ms: float = 0.0
    clock_error_ms: float = 0.0
    partitions: dict[TopicPartition, MetadataResponsePartition] = field(default_factory=dict)
    internal: set[str] = field(default_factory=set)
    min_isr: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    settings: dict[str, dict[str, str | None]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    is_ours: bool = False
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    read: set[TopicPartition] = field(default_factory=set)
    groups: dict[str, GroupFacts] = field(default_factory=dict)
    certificates: dict[int, datetime] = field(default_factory=dict)


def _wall_ms() -> float:
    return time.time() * 1000


def utc_now() -> datetime:
    """The present time, in UTC."""
    return datetime.now(UTC)


@dataclass
class Inspection:
    """Collects the facts of a cluster.

    Attributes:
        apart_s: the time between the two samples of groups.
        tls: the client's TLS; None without TLS.
        wall_ms: the clock of this machine.
        pause: sleeps for so many seconds.
    """

    cluster: Cluster
    report: Report
    apart_s: float
    tls: ssl.SSLContext | None = None
    wall_ms: Callable[[], float] = _wall_ms
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    facts: ClusterFacts = field(default_factory=ClusterFacts)

    async def run(self) -> ClusterFacts:
        """Collect all facts. Raises an error of the first requests; later errors are reported as skipped."""
        await self._brokers()
        await self._partitions()
        await self._may_fail("quorum", self._quorum)
        await self._may_fail("settings of topics", self._topic_settings)
        await self._may_fail("settings of brokers", self._broker_settings)
        await self._may_fail("sizes", self._sizes)
        await self._may_fail("groups", self._groups)
        if self.tls is not None:
            await self._certificates(self.tls)
        return self.facts

    async def _may_fail(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except OdradekError as error:
            self.report.skip(what, error)

    async def _brokers(self) -> None:
        described = await describe_cluster(self.cluster, fenced=True)
        self.facts.racks = {broker.broker_id: broker.rack or None for broker in described.brokers}
        self.facts.hosts = {broker.broker_id: read_broker_host(broker) for broker in described.brokers}
        self.facts.fenced = {broker.broker_id for broker in described.brokers if broker.is_fenced}

    @property
    def _awake(self) -> list[int]:
        return sorted(self.facts.racks.keys() - self.facts.fenced)

    async def _partitions(self) -> None:
        topics = (await self.cluster.metadata()).topics
        self.facts.internal = {topic.name or "" for topic in topics if topic.is_internal}
        self.facts.partitions = partitions_of(topics)

    async def _quorum(self) -> None:
        # The first request opens the connection; the second measures the round trip.
        await describe_quorum(self.cluster)
        before = self.wall_ms()
        response = await describe_quorum(self.cluster)
        after = self.wall_ms()
        state = response.topics[0].partitions[0]
        self.facts.voters = sorted(voter.replica_id for voter in state.current_voters)
        leader = next((each for each in state.current_voters if each.replica_id == state.leader_id), None)
        if leader is None or leader.last_fetch_timestamp < 0:
            self.report.skip("clock", "the quorum does not report its time")
        else:
            # The leader's own timestamp is the time of the response.
            self.facts.clock_ahead_ms = leader.last_fetch_timestamp - (before + after) / 2
            self.facts.clock_error_ms = (after - before) / 2
        for node in response.nodes:
            if node.node_id in self.facts.voters and node.listeners:
                address = node.listeners[0]
                taken = await round_trip_ms(address.host, address.port)
                if taken is None:
                    self.report.skip(f"round trip to voter {node.node_id}", f"{address.host}:{address.port}: no answer")
                else:
                    self.facts.round_trips_ms[node.node_id] = taken

    async def _topic_settings(self) -> None:
        topics = sorted({topic for topic, _ in self.facts.partitions})
        for result in await describe_configs(self.cluster, ResourceType.TOPIC, topics):
            values = {entry.name: entry.value for entry in result.configs}
            self.facts.min_isr[result.resource_name] = int(values.get(MIN_ISR) or 1)
            self._set_settings(f"topic {result.resource_name}", result)

    async def _broker_settings(self) -> None:
        for broker in self._awake:
            try:
                (result,) = await describe_configs(self.cluster, ResourceType.BROKER, [str(broker)])
            except GONE as error:
                self.report.skip(f"settings of broker {broker}", error)
                continue
            if any(entry.name.startswith("odradek.") for entry in result.configs):
                self.facts.is_ours = True
            self._set_settings(f"broker {broker}", result)

    def _set_settings(self, of: str, result: DescribeConfigsResult) -> None:
        given = [entry for entry in result.configs if _is_given_by_users(entry)]
        # Kafka omits the type of unknown settings; before version 3 there are no types.
        unknown = {entry.name for entry in given if entry.config_type == ConfigType.UNKNOWN}
        if unknown != {entry.name for entry in given}:
            self.facts.unknown += [f"{name} of {of}" for name in unknown - _OF_AUTHORIZER]
        self.facts.settings[of] = {entry.name: entry.value for entry in given if entry.name not in unknown}

    async def _sizes(self) -> None:
        sizes = dict.fromkeys(self._awake, 0)
        for (_, broker), size in (await replica_sizes(self.cluster, self._awake)).items():
            sizes[broker] = sizes.get(broker, 0) + size
        self.facts.sizes = sizes

    async def _groups(self) -> None:
        names = await self._group_names()
        led = [key for key, partition in self.facts.partitions.items() if partition.leader_id >= 0]
        self.facts.begins = await list_offsets(self.cluster, dict.fromkeys(led, EARLIEST))
        before = await list_offsets(self.cluster, dict.fromkeys(led, LATEST))
        committed = await self._committed(names)
        if names:
            await self.pause(self.apart_s)
        again = await self._committed(names)
        self.facts.ends = await list_offsets(self.cluster, dict.fromkeys(led, LATEST)) if names else before
        self.facts.read = {key for offsets in again.values() for key in offsets}
        for name, offsets in again.items():
            self.facts.groups[name] = GroupFacts(
                members=len((await describe_group(self.cluster, name)).members) if offsets else 0,
                lag_before=_behind(before, committed[name]),
                lag=_behind(self.facts.ends, offsets),
                written=_written(before, self.facts.ends, offsets),
            )

    async def _group_names(self) -> list[str]:
        silent: list[int] = []
        names = [group.group_id for group in await list_groups(self.cluster, silent=silent)]
        for broker in silent:
            self.report.skip(f"groups of broker {broker}", "it does not answer")
        return names

    async def _committed(self, names: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
        return {
            name: {key: value.offset for key, value in (await committed_offsets(self.cluster, name)).items()}
            for name in names
        }

    async def _certificates(self, tls: ssl.SSLContext) -> None:
        from cryptography import x509

        for broker, (host, port) in sorted(self.cluster.brokers.items()):
            shown = await _certificate(host, port, tls)
            if shown is None:
                self.report.skip(f"certificate of broker {broker}", f"{host}:{port}: no handshake")
            else:
                self.facts.certificates[broker] = x509.load_der_x509_certificate(shown).not_valid_after_utc


def _is_given_by_users(entry: DescribeConfigsResourceResult) -> bool:
    """Whether a user has chosen the setting; listeners differ between nodes, and do not count."""
    where_it_listens = entry.name == METRICS_LISTENER or entry.name.startswith(LISTENER_PREFIX)
    return entry.config_source in _GIVEN_BY_USERS and not where_it_listens


def _written(
    before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int], keys: Iterable[TopicPartition]
) -> int:
    return sum(now.get(key, 0) - before.get(key, 0) for key in keys)


def _behind(ends: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, ends.get(key, offset) - offset) for key, offset in offsets.items())


async def round_trip_ms(host: str, port: int) -> float | None:
    """The shortest of several connection attempts, each of which is one round trip; None if nothing listens."""
    taken = []
    for _ in range(CONNECTS):
        started = time.perf_counter()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return None
        taken.append((time.perf_counter() - started) * 1000)
        await _closed(writer)
    return min(taken)


async def _certificate(host: str, port: int, tls: ssl.SSLContext) -> bytes | None:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=host)
    except (OSError, TimeoutError):
        return None
    shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await _closed(writer)
    return shown


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
