"""Mirrors topics of other clusters into this one: a task for each link, and one for each broker of a source.

Without links nothing runs. Every broker fetches for the partitions that it leads. The active broker with the lowest id
also creates the topics of mirrors, adds partitions, and keeps leader epochs at or above the source's (ADR 0018). If it
does not, the other brokers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection, UnreachableError
from odradek.client.groups import EARLIEST, LATEST
from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode, OdradekError, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.token_bucket import UNLIMITED, TokenBucket
from odradek.link.acls import AclFollower
from odradek.link.failback import Cut, Failback, known_cut
from odradek.link.measures import NO_REASON, LinkMeasures, Reasons, Why, measure, why_of
from odradek.link.mirroring import MirroredPartition
from odradek.link.offsets import OffsetFollower
from odradek.link.pauses import REFRESH_MS, Pauses
from odradek.link.source_offsets import log_offsets
from odradek.link.source_session import SourceSession
from odradek.link.topic_settings import TopicSettingsFollower
from odradek.link.topics import MirrorTopicManager
from odradek.metadata.model import ResourceType
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.records_field import received
from odradek.settings.link_settings import (
    ACLS,
    OFFSETS,
    TOPIC_SETTINGS,
    Following,
    connection_settings,
    max_bytes_per_s,
)
from odradek.settings.links import Link, Mirror, MirrorState, links_of

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.common.ports import Clock
    from odradek.link.offsets import GroupsHere
    from odradek.link.topics import SendToController
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.protocol.messages.metadata_response import MetadataResponseTopic
    from odradek.replica.manager import ReplicaManager
    from odradek.replica.partition import Partition

PartitionKey = tuple[str, int]
Connect = Callable[[Link], Cluster]
Follow = Callable[[Cluster, Callable[[], Link]], Awaitable[None]]
Duties = Sequence[tuple[Following, Follow]]
MAX_WAIT_MS, MAX_BYTES = 500, 8 * 1024 * 1024
REQUEST_TIMEOUT_MS = 15_000
# After this time the other brokers do what the first broker has not done.
STAND_IN_MS = 3000
# After so long without a leader, another broker of the source is asked: this one's metadata may be outdated.
STALE_MS = 2000
# The first version whose responses have diverging epochs; Kafka has these and topic ids since 2.8.
FIRST_VERSION = 12
_log = get_logger("link")


class LinkService:
    """The links of one broker."""

    def __init__(
        self,
        clock: Clock,
        connect: Connect,
        replicas: ReplicaManager,
        send: SendToController,
        groups: GroupsHere,
        *,
        broker_id: int,
    ) -> None:
        """
        Args:
            connect: returns a client of the link's source; raises OdradekError if its settings cannot be used.
            send: sends a request of this broker to the controller.
            groups: those that this broker coordinates.
        """
        self._duties: Duties = [
            (OFFSETS, OffsetFollower(groups).follow),
            (ACLS, AclFollower(self._kept_image, send).follow),
            (TOPIC_SETTINGS, TopicSettingsFollower(self._kept_image, send).follow),
        ]
        self._clock = clock
        self._connect = connect
        self._replicas = replicas
        self._send = send
        self._broker_id = broker_id
        self._image: MetadataImage | None = None
        self._runs: dict[str, LinkRun] = {}
        self._is_stopped = False
        self._ending: set[asyncio.Task[None]] = set()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the settings of links; a link with other connection settings is restarted."""
        self._image = image
        if self._is_stopped:
            return
        if (ResourceType.BROKER, "") in delta.changed_configs:
            links = links_of(image.config(ResourceType.BROKER, ""))
            for name, run in list(self._runs.items()):
                if name not in links or not run.connects_as(links[name]):
                    self._end(self._runs.pop(name))
            for name, link in links.items():
                if name in self._runs:
                    self._runs[name].update_link(link)
                else:
                    self._runs[name] = self._begin(link)
        if self._runs and (delta.changed_partitions or delta.changed_configs or delta.deleted_topics):
            for run in self._runs.values():
                run.wake()

    def measures(self) -> list[LinkMeasures]:
        """The state of each link on this broker."""
        return [run.measures() for _, run in sorted(self._runs.items())]

    def _begin(self, link: Link) -> LinkRun:
        return LinkRun(link, self._connect, self._clock, self._replicas, self._topic_manager, self._duties)

    def _topic_manager(self) -> tuple[MirrorTopicManager, bool] | None:
        """The manager of the mirrors' topics, and whether this broker is responsible; None before any metadata."""
        image = self._image
        if image is None:
            return None
        return MirrorTopicManager(lambda: self._image or image, self._send), self._kept_image() is not None

    def _kept_image(self) -> MetadataImage | None:
        """The metadata if this broker is responsible for the topics and ACLs of all mirrors; None on other brokers."""
        image = self._image
        if image is None:
            return None
        first = min((each.broker_id for each in image.brokers.values() if each.active), default=-1)
        return image if first == self._broker_id else None

    def _end(self, run: LinkRun) -> None:
        task = asyncio.get_running_loop().create_task(run.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def stop(self) -> None:
        """Stop all links; later metadata starts none."""
        self._is_stopped = True
        runs, self._runs = self._runs, {}
        for run in runs.values():
            await run.stop()
        while self._ending:
            await next(iter(self._ending))


class LinkRun:
    """One link on this broker."""

    def __init__(
        self,
        link: Link,
        connect: Connect,
        clock: Clock,
        replicas: ReplicaManager,
        topic_manager: Callable[[], tuple[MirrorTopicManager, bool] | None],
        duties: Duties,
    ) -> None:
        self.link = link
        self.partitions: dict[PartitionKey, MirroredPartition] = {}
        self._connect = connect
        # One for fetches, one for other requests: responses come in order, and a fetch waits for records.
        self._connected: tuple[Cluster, Cluster] | None = None
        self._clock = clock
        self._replicas = replicas
        self._topic_manager = topic_manager
        self._wake = asyncio.Event()
        self._lacking_since: dict[str, int] = {}
        self._fetches: dict[int, asyncio.Task[None]] = {}
        # Work for some partitions, by its reason's name: a leader of the source that does not respond delays no round.
        self._background: dict[str, asyncio.Task[None]] = {}
        self._reasons = Reasons()
        self._pace = TokenBucket()
        self._set_rate()
        self._duties = duties
        self._failback = Failback(clock, replicas, lambda: (topic_manager() or (None,))[0])
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run_rounds()), loop.create_task(self._run_followers())]

    @property
    def _source(self) -> Cluster:
        """Raises OdradekError if the link's settings cannot be used: a file or a key is missing."""
        if self._connected is None:
            asking = self._connect(self.link)
            self._connected = asking, asking.with_own_connections()
        return self._connected[0]

    async def _connection_to(self, node_id: int) -> Connection:
        """The connection for fetches, to the present address of a broker of the source."""
        if self._connected is None:
            raise UnreachableError("the source was not reached yet")
        asking, fetching = self._connected
        fetching.brokers = asking.brokers
        return await fetching.connection_to(node_id)

    def connects_as(self, link: Link) -> bool:
        """Whether the other link has the same connection settings."""
        return self.link.bootstrap_servers == link.bootstrap_servers and connection_settings(
            self.link.settings
        ) == connection_settings(link.settings)

    def update_link(self, link: Link) -> None:
        """Apply changed mirrors or states of mirrors; paused ones are paused at once."""
        self.link = link
        self._set_rate()
        self._pause_inactive()

    def _set_rate(self) -> None:
        self._pace.change_rate(max_bytes_per_s(self.link.settings) or UNLIMITED, self._clock.monotonic_ms())

    def measures(self) -> LinkMeasures:
        """The present state."""
        now_ms = self._clock.now_ms()
        found = sorted(self.partitions.items(), key=lambda item: item[0])
        return LinkMeasures(
            self.link.name,
            self._reasons.of(""),
            {topic: self._reasons.of(topic) for topic in sorted(self.link.mirrors)},
            {following.what: self._reasons.of(following.what) for following, _ in self._duties},
            [measure(each, self._reasons, now_ms) for _, each in found if each.partition.is_leader],
        )

    def _pause_inactive(self) -> None:
        kept = {}
        for key, each in self.partitions.items():
            if self._is_active(key[0]):
                if each.is_paused:
                    each.is_paused, each.reason = False, NO_REASON
                kept[key] = each
            elif key[0] in self.link.mirrors:
                kept[key] = each if each.is_paused else each.paused()
        self.partitions = kept

    def _is_active(self, topic: str) -> bool:
        mirror = self.link.mirrors.get(topic)
        return mirror is not None and mirror.state is MirrorState.ACTIVE

    def wake(self) -> None:
        """Start the next round soon, since something may have changed."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop the link, and close its connections."""
        tasks = [*self._tasks, *self._fetches.values(), *self._background.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._connected or ():
            each.close()
        await asyncio.sleep(0)  # transports close their sockets

    async def _run_rounds(self) -> None:
        pauses = Pauses()
        while True:
            await buggify("link: before a round")
            self._wake.clear()
            wanted = dict(self.link.mirrors)
            self._pause_inactive()
            if not wanted:
                await self._wake.wait()
                continue
            await self._guarded("", partial(self._refresh, wanted))
            try:
                async with asyncio.timeout(pauses.next_ms(self.partitions.values()) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _refresh(self, wanted: dict[str, Mirror]) -> None:
        """Refresh the source's metadata, and fetch from the leaders of its partitions."""
        if any(each.lacks_leader_for(STALE_MS, self._clock.now_ms()) for each in self.partitions.values()):
            # A broker of the source without a connection to its controllers returns outdated leaders.
            await self._source.prefer_another_broker()
        by_source = {mirror.source_topic: mirror for mirror in wanted.values()}
        for topic in (await self._source.metadata(sorted(by_source))).topics:
            mirror = by_source.get(topic.name or "")
            if mirror is not None:
                await self._guarded(mirror.topic, partial(self._update_topic, mirror, topic))
        self._begin_fetches()
        self._begin_locating()
        self._begin_idle_ends()
        self._begin_failback()

    def _begin(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Begin `work` in a task of its own unless the task of an earlier round still runs."""
        if what not in self._background:
            task = self._background[what] = asyncio.get_running_loop().create_task(self._guarded(what, work))
            task.add_done_callback(lambda _: self._background.pop(what))

    def _begin_failback(self) -> None:
        """One round of failbacks, in a task of its own: failback files may be large."""
        if any(each.state is MirrorState.FAILBACK for each in self.link.mirrors.values()):
            link, partitions = (lambda: self.link), (lambda: list(self.partitions.values()))
            self._begin("failback", partial(self._failback.round, self._source, link, partitions))

    def _begin_fetches(self) -> None:
        leaders = {each.source_leader for each in self.partitions.values() if each.is_ready}
        for node_id in sorted(leaders):
            if node_id not in self._fetches:
                self._fetches[node_id] = asyncio.get_running_loop().create_task(self._fetch_from(node_id))

    async def _update_topic(self, mirror: Mirror, topic: MetadataResponseTopic) -> None:
        if topic.error_code:
            code = _known(topic.error_code)
            raise ApiError(code, f"the source answers {code.name} for {mirror.source_topic}")
        if not topic.topic_id.int:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the source has no ids of topics: it is older than Kafka 2.8")
        if mirror.source_id is not None and mirror.source_id != topic.topic_id:
            text = f"{topic.name} is another topic at the source now: {topic.topic_id}, not {mirror.source_id}"
            self._stop_recreated(mirror, mirror.source_id, text)
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, text)
        if mirror.source_id is not None and mirror.topic in self.link.mirrors:
            # Without the stored id a recreated topic would not be noticed, so nothing is fetched before.
            for found in topic.partitions:
                self._update_partition(
                    mirror, topic.topic_id, found.partition_index, found.leader_id, found.leader_epoch
                )
        if self._is_active(mirror.topic):
            await self._maintain_topic(mirror, topic)

    async def _maintain_topic(self, mirror: Mirror, topic: MetadataResponseTopic) -> None:
        """Bring the topic to the state of the source.

        The responsible broker may have died without being fenced: if a change is missing for long, every broker makes
        it.
        """
        topic_manager, is_ours = self._topic_manager() or (None, False)
        if topic_manager is None or not topic_manager.differs(mirror, topic):
            self._lacking_since.pop(mirror.topic, None)
            return
        now_ms = self._clock.monotonic_ms()
        if is_ours or now_ms - self._lacking_since.setdefault(mirror.topic, now_ms) >= STAND_IN_MS:
            await topic_manager.follow(mirror, topic)

    def _stop_recreated(self, mirror: Mirror, source_id: UUID, text: str) -> None:
        """Replace all partitions by stopped ones: a response in flight may be of the other topic."""
        topic = mirror.topic
        kept = {key: each for key, each in self.partitions.items() if key[0] != topic}
        if topic in self.link.mirrors:
            now_ms = self._clock.now_ms()
            for partition in self._replicas:
                if partition.topic == topic and partition.is_leader:
                    key = topic, partition.partition_id
                    known = self.partitions.get(key) or MirroredPartition(
                        partition, source_id, mirror.source_topic, caught_up_ms=now_ms
                    )
                    kept[key] = known.recreated(text, now_ms, is_paused=not self._is_active(topic))
        self.partitions = kept

    def _update_partition(self, mirror: Mirror, topic_id: UUID, number: int, leader: int, leader_epoch: int) -> None:
        key = (mirror.topic, number)
        partition = self._replicas.partition(*key)
        if partition is None or not partition.is_leader:
            self.partitions.pop(key, None)
            return
        known = self.partitions.get(key)
        if known is None or known.partition is not partition:
            is_paused, now_ms = not self._is_active(key[0]), self._clock.now_ms()
            known = self.partitions[key] = MirroredPartition(
                partition,
                topic_id,
                mirror.source_topic,
                is_paused=is_paused,
                caught_up_ms=now_ms,
                cut=self._cut_before(partition),
            )
        if leader_epoch >= known.source_epoch:
            known.source_leader, known.source_epoch = leader, leader_epoch

    def _cut_before(self, partition: Partition) -> Cut | None:
        """The failback file of the partition, possibly of an earlier process."""
        mirror = self.link.mirrors.get(partition.topic)
        if mirror is None or not mirror.agreed_below or mirror.state is MirrorState.FAILBACK:
            return None
        try:
            return known_cut(partition)
        except StorageError as error:
            self._replicas.storage_failed(error)
            return None

    def _begin_idle_ends(self) -> None:
        """Request the end offsets of paused and stopped partitions, for their lag; each leader has its own request."""
        idle: dict[int, list[MirroredPartition]] = {}
        for each in self.partitions.values():
            if each.is_idle and each.source_leader >= 0:
                idle.setdefault(each.source_leader, []).append(each)
        for leader, some in sorted(idle.items()):
            self._begin(f"idle ends at broker {leader}", partial(self._fetch_idle_ends, some))

    async def _fetch_idle_ends(self, idle: list[MirroredPartition]) -> None:
        try:
            (ends,) = await log_offsets(self._source, [each.source_key for each in idle], LATEST)
        except (OdradekError, OSError) as error:
            _log.debug("the source did not return end offsets", link=self.link.name, error=error)
            return
        for each in idle:
            if each.is_idle:  # else a fetch may have returned a later end offset
                each.update_source_end(ends[each.source_key], self._clock.now_ms())

    async def _run_followers(self) -> None:
        """Run the followers of offsets, ACLs and topic settings, each at its own interval."""
        last_ms: dict[str, int] = {}
        while True:
            for following, follow in self._duties:
                what, interval_ms = following.what, following.interval_ms(self.link.settings)
                now_ms = self._clock.monotonic_ms()
                if interval_ms is None:
                    last_ms.pop(what, None)
                    self._reasons.set(what, Why.NOTHING, "", self._clock.now_ms())
                elif what not in last_ms or now_ms >= last_ms[what] + interval_ms:
                    last_ms[what] = now_ms
                    await self._guarded(what, partial(self._follow, follow))
            await asyncio.sleep(REFRESH_MS / 1000)

    async def _follow(self, follow: Follow) -> None:
        await follow(self._source, lambda: self.link)

    # Fetching

    async def _fetch_from(self, node_id: int) -> None:
        """Fetch all partitions that a broker of the source leads, until there are none.

        Errors are retried by later rounds.
        """
        session = SourceSession()
        try:
            while some := [
                each for each in self.partitions.values() if each.is_ready and each.source_leader == node_id
            ]:
                await buggify("link: before a fetch")
                if not await self._maybe_throttle():
                    await self._fetch(node_id, session, some)
        except (OdradekError, OSError) as error:
            for each in self.partitions.values():
                if each.source_leader == node_id:
                    each.wait(why_of(error), str(error), self._clock.now_ms())
            self._report(f"broker {node_id}", why_of(error), str(error))
        except Exception as error:
            _log.bug("a fetch of a link failed", error, link=self.link.name)
        finally:
            if self._fetches.get(node_id) is asyncio.current_task():
                del self._fetches[node_id]

    async def _maybe_throttle(self) -> bool:
        """Wait if the link has exceeded its rate, and return whether it did; the rate can change meanwhile."""
        wait_ms = self._pace.ready_in_ms(self._clock.monotonic_ms())
        if not wait_ms:
            return False
        await asyncio.sleep(min(wait_ms, REFRESH_MS) / 1000)
        return True

    async def _fetch(self, node_id: int, session: SourceSession, some: list[MirroredPartition]) -> None:
        connection = await self._connection_to(node_id)
        if connection.version_for(ApiKey.FETCH) < FIRST_VERSION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the source is older than Kafka 2.8")
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=min(MAX_BYTES, max_bytes_per_s(self.link.settings) or MAX_BYTES),
        )
        session.fill(request, some)
        response = await connection.request(request, FetchResponse, timeout_s=REQUEST_TIMEOUT_MS / 1000)
        if session.is_over(response):
            return
        if response.error_code:
            code = _known(response.error_code)
            raise ApiError(code, f"broker {node_id} of the source answers {code.name} to a fetch")
        self._report(f"broker {node_id}")
        for mirrored, offset, data in session.answers(response):
            if data is None:
                self._confirm_unchanged(mirrored)
                continue
            await self._append_response(mirrored, offset, data)
            # Partitions with records are moved behind the others: a response has space for some partitions only, and
            # only the first one gets a batch that exceeds the limit (KIP-74).
            key = mirrored.partition.topic, mirrored.partition.partition_id
            if mirrored.partition.log.log_end_offset > offset and key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)

    def _confirm_unchanged(self, mirrored: MirroredPartition) -> None:
        """The source's offsets are unchanged by the fetch session; followers may have caught up further."""
        mirrored.update_source_end(mirrored.source_end, self._clock.now_ms())
        try:
            if mirrored.is_ready:
                mirrored.follow_start()
        except StorageError as error:
            self._replicas.storage_failed(error)

    async def _append_response(self, mirrored: MirroredPartition, asked_offset: int, data: Any) -> None:
        partition = mirrored.partition
        self._pace.spend(len(received(data.records)), self._clock.monotonic_ms())
        if self.partitions.get((partition.topic, partition.partition_id)) is not mirrored:
            return  # paused, or led by another broker, since the request
        skipped = mirrored.skipped
        try:
            if mirrored.process_partition_data(data, asked_offset, self._clock.now_ms()):
                # The next round requests the source's offsets, so that other partitions do not wait.
                mirrored.is_out_of_range = True
                self._wake.set()
        except StorageError as error:
            self._replicas.storage_failed(error)
        except ApiError as error:
            mirrored.wait(why_of(error), error.message, self._clock.now_ms())
        except OSError:
            raise
        except Exception as error:
            _log.bug("a mirror cannot append a response", error, partition=partition.name)
            mirrored.stop(Why.REFUSED, f"an answer of the source is not understood: {error}", self._clock.now_ms())
        self._report(partition.name, mirrored.reason.why, mirrored.reason.text)
        if count := mirrored.skipped - skipped:
            _log.warning(
                "a link's source has deleted records before they were fetched",
                link=self.link.name,
                partition=partition.name,
                offsets=count,
                up_to=asked_offset,
            )
        await asyncio.sleep(0)

    def _begin_locating(self) -> None:
        """Request the start and end offsets of the source's logs for partitions out of range.

        Each topic and leader has a request of its own, since one partition without a response fails the whole request.
        """
        outside: dict[tuple[str, int], dict[PartitionKey, MirroredPartition]] = {}
        for key, each in self.partitions.items():
            if each.is_out_of_range and each.source_leader >= 0:
                outside.setdefault((key[0], each.source_leader), {})[key] = each
        for (topic, leader), some in sorted(outside.items()):
            self._begin(f"where {topic} begins at broker {leader}", partial(self._locate, some))

    async def _locate(self, outside: dict[PartitionKey, MirroredPartition]) -> None:
        try:
            asked = [each.source_key for each in outside.values()]
            starts, ends = await log_offsets(self._source, asked, EARLIEST, LATEST)
        except (OdradekError, OSError) as error:
            for key, mirrored in outside.items():
                if self.partitions.get(key) is mirrored:
                    mirrored.wait(why_of(error), str(error), self._clock.now_ms())
            raise
        for key, mirrored in outside.items():
            if self.partitions.get(key) is mirrored:
                mirrored.is_out_of_range = False
                if mirrored.partition.is_leader and mirrored.partition.is_mirror:
                    source_key = mirrored.source_key
                    mirrored.locate(starts[source_key], ends[source_key], self._clock.now_ms())
                self._report(mirrored.partition.name, mirrored.reason.why, mirrored.reason.text)
        self._begin_fetches()

    async def _guarded(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Await `work`; errors of the network or of a cluster are reported once, and retried by the next round."""
        try:
            await work()
        except (OdradekError, OSError) as error:
            self._report(what, why_of(error), str(error))
        except Exception as error:
            _log.bug("a round of a link failed", error, link=self.link.name)
        else:
            self._report(what)

    def _report(self, what: str, why: Why = Why.NOTHING, text: str = "") -> None:
        """Store the reason, and log it if it has changed."""
        if not self._reasons.set(what, why, text, self._clock.now_ms()):
            return
        if text:
            _log.warning("link stopped", link=self.link.name, of=what or "the source", reason=text)
        else:
            _log.info("link resumed", link=self.link.name, of=what or "the source")


def _known(error_code: int) -> ErrorCode:
    try:
        return ErrorCode(error_code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
