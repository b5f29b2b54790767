"""One watch for each cluster: takes periodic snapshots, once for all pages.

It runs on the loop of `KafkaThread`; pages read the last view, which is never changed in place.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from odradek.admin.cluster_checks import check_cluster
from odradek.admin.cluster_facts import ClusterFacts, Inspection, utc_now
from odradek.admin.connecting import client_tls, make_cluster
from odradek.admin.directories import log_directories
from odradek.admin.finding import Finding, Report
from odradek.admin.link_facts import described_links
from odradek.client.admin import describe_cluster, describe_quorum
from odradek.client.cluster import Cluster
from odradek.client.groups import LATEST, committed_offsets, list_groups, list_offsets
from odradek.client.pipeline_progress import ProgressReader
from odradek.client.reassignment import ongoing_reassignments
from odradek.common.errors import ApiError, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.real_threads import off_loop
from odradek.common.topic_names import TopicPartition
from odradek.console.clusters import ClusterConfig
from odradek.console.shared import Shared
from odradek.console.snapshot import (
    BrokerRow,
    GroupRow,
    GroupState,
    InSyncChange,
    Point,
    Snapshot,
    TopicRow,
    broker_rows,
    changes,
    group_rows,
    lag_of,
    not_in_sync,
    point_of,
    topic_rows,
)
from odradek.protocol.messages.metadata_response import MetadataResponsePartition

T = TypeVar("T")
_log = get_logger("console")

# Snapshots take at most this share of the time, however large the cluster is; the slower findings too.
BUSY_SHARE, BUSY_SHARE_OF_FINDINGS = 0.2, 0.05
FINDINGS_EVERY_S = 60.0
FINDINGS_APART_S = 5.0
TIMEOUT_MS = 10_000
WORK_TIMEOUT_MS = 30_000
POINTS, CHANGES = 240, 200
GROUPS_AT_ONCE = 20


def reason(error: BaseException) -> str:
    """Why something was not done, in one line for a person."""
    if isinstance(error, ApiError):
        name = error.code.name
        return name if error.message in ("", name) else f"{error.message.rstrip('. ')} ({name})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


@dataclass(frozen=True, slots=True)
class View:
    """The content of pages; a new one for each snapshot.

    Attributes:
        error: of the last snapshot; the other fields are then of an earlier one.
        not_looked_at: the checks that could not run, with the reason.
    """

    number: int = 0
    error: str = ""
    snapshot: Snapshot | None = None
    topics: Mapping[str, TopicRow] = field(default_factory=dict)
    brokers: Mapping[int, BrokerRow] = field(default_factory=dict)
    groups: Mapping[str, GroupRow] = field(default_factory=dict)
    not_in_sync: tuple[tuple[TopicPartition, MetadataResponsePartition], ...] = ()
    findings: tuple[Finding, ...] = ()
    not_looked_at: Mapping[str, str] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    changes: tuple[InSyncChange, ...] = ()


class Watch:
    """Takes snapshots of one cluster, and runs the work of users."""

    def __init__(self, config: ClusterConfig, *, every_s: float, findings_apart_s: float = FINDINGS_APART_S) -> None:
        self.config = config
        self.view = View()
        self.every_s = every_s
        # Pages request this each `every_s`, at different times: a response that is at most half as old is shared.
        self.pipelines = Shared(ProgressReader().read, every_s / 2)
        self.links = Shared(described_links, every_s / 2)
        self._findings_apart_s = findings_apart_s
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._changes: deque[InSyncChange] = deque(maxlen=CHANGES)
        self._facts = ClusterFacts()
        self._report = Report()
        self._work: Cluster | None = None
        self._connecting = asyncio.Lock()
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Refresh the view until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._refresh_loop())
            tasks.create_task(self._find_again_and_again())

    async def do(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Run work of a user with a connected cluster.

        Raises:
            ConfigError: invalid properties of the client; else the error of `work`.
        """
        async with self._connecting:
            if self._work is None:
                self._work = await self._make(WORK_TIMEOUT_MS)
        return await work(self._work)

    def refresh_soon(self) -> None:
        """Take a snapshot soon, after a change. To be called on the watch's own loop."""
        self.links.invalidate()
        self._asked.set()

    async def _make(self, timeout_ms: int) -> Cluster:
        config = self.config
        return await off_loop(
            lambda: make_cluster(
                config.bootstrap, config.properties, client_id="odradek-console", timeout_ms=timeout_ms
            )
        )

    async def _refresh_loop(self) -> None:
        cluster: Cluster | None = None
        try:
            while True:
                began_s = time.monotonic()
                self._asked.clear()
                try:
                    cluster = cluster or await self._make(TIMEOUT_MS)
                    await self._refresh(cluster)
                except (OdradekError, OSError) as error:
                    self.view = replace(self.view, number=self.view.number + 1, error=reason(error))
                except Exception as error:
                    _log.bug("a look at a cluster failed", error, cluster=self.config.name)
                    self.view = replace(self.view, number=self.view.number + 1, error=f"it cannot be read: {error!r}")
                took_s = time.monotonic() - began_s
                await self._pause(max(self.every_s, took_s / BUSY_SHARE))
        finally:
            for each in (cluster, self._work):
                if each is not None:
                    each.close()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            pass

    async def _refresh(self, cluster: Cluster) -> None:
        before = self.view.snapshot
        now = await take_snapshot(cluster, number=self.view.number + 1)
        topics = topic_rows(before, now)
        self._changes += changes(before, now)
        self._points.append(point_of(topics, now))
        self.view = View(
            number=now.number,
            snapshot=now,
            topics=topics,
            brokers=broker_rows(now),
            groups=group_rows(before, now),
            not_in_sync=not_in_sync(now),
            findings=self._findings(now),
            not_looked_at=self._report.skipped,
            points=tuple(self._points),
            changes=tuple(reversed(self._changes)),
        )

    def _findings(self, now: Snapshot) -> tuple[Finding, ...]:
        """The findings of the slower checks, with the present brokers and partitions."""
        facts = replace(
            self._facts,
            racks={broker.broker_id: broker.rack or None for broker in now.brokers.values()},
            fenced=now.fenced,
            partitions=dict(now.partitions),
            internal={name for name, topic in now.topics.items() if topic.is_internal},
        )
        report = Report()
        # Which settings have an effect is known to a broker of the same release, not to a console.
        report.add(check_cluster(facts, now=utc_now(), apart_s=self._findings_apart_s, honoured=lambda *_: True))
        return tuple(report.worst_first)

    async def _find_again_and_again(self) -> None:
        cluster: Cluster | None = None
        try:
            while True:
                began_s = time.monotonic()
                report = Report()
                try:
                    cluster = cluster or await self._make(TIMEOUT_MS)
                    tls = await off_loop(lambda: client_tls(self.config.properties))
                    if tls is None:
                        report.skip("certificates of brokers", "the console connects to this cluster without TLS")
                    self._facts = await Inspection(cluster, report, self._findings_apart_s, tls).run()
                    self._report = report
                    self.refresh_soon()
                except (OdradekError, OSError) as error:
                    report.skip("the cluster", reason(error))
                    self._report = report
                except Exception as error:
                    _log.bug("findings of a cluster failed", error, cluster=self.config.name)
                    report.skip("the cluster", repr(error))
                    self._report = report
                took_s = time.monotonic() - began_s - self._findings_apart_s
                await asyncio.sleep(max(FINDINGS_EVERY_S, took_s / BUSY_SHARE_OF_FINDINGS))
        finally:
            if cluster is not None:
                cluster.close()


async def take_snapshot(cluster: Cluster, *, number: int) -> Snapshot:
    """Take a snapshot; raises the error of the first request, and stores those of later ones."""
    began_s = time.monotonic()
    described = await describe_cluster(cluster, fenced=True)
    metadata = await cluster.metadata()
    problems: dict[str, str] = {}

    async def may_fail(what: str, question: Awaitable[T], otherwise: T) -> T:
        try:
            return await question
        except (OdradekError, OSError) as error:
            problems[what] = reason(error)
            return otherwise

    topics = {topic.name or "": topic for topic in sorted(metadata.topics, key=lambda each: each.name or "")}
    led = {
        (name, partition.partition_index): LATEST
        for name, topic in topics.items()
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    awake = [broker.broker_id for broker in described.brokers if not broker.is_fenced]
    ends = await may_fail("rates and lag", list_offsets(cluster, led), {})
    at_s, at_ms = time.monotonic(), time.time_ns() // 1_000_000
    quorum = await may_fail("quorum", describe_quorum(cluster), None)
    groups = await may_fail("groups", _groups(cluster, ends, problems), {})
    return Snapshot(
        number=number,
        at_s=at_s,
        at_ms=at_ms,
        took_s=time.monotonic() - began_s,
        cluster_id=described.cluster_id,
        controller_id=described.controller_id,
        brokers={broker.broker_id: broker for broker in sorted(described.brokers, key=lambda each: each.broker_id)},
        topics=topics,
        directories=await may_fail("sizes", log_directories(cluster, awake), {}),
        ends=ends,
        groups=groups,
        quorum=quorum.topics[0].partitions[0] if quorum is not None else None,
        moves=await may_fail("moves", ongoing_reassignments(cluster), {}),
        problems=problems,
    )


async def _groups(
    cluster: Cluster, ends: Mapping[tuple[str, int], int], problems: dict[str, str]
) -> dict[str, GroupState]:
    silent: list[int] = []
    listed = await list_groups(cluster, silent=silent)
    for broker in silent:
        problems[f"groups of broker {broker}"] = "it does not answer"
    turns = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def of(name: str) -> dict[tuple[str, int], int]:
        async with turns:
            try:
                return {key: each.offset for key, each in (await committed_offsets(cluster, name)).items()}
            except ApiError as error:
                problems[f"group {name}"] = reason(error)
                return {}

    offsets: list[Any] = await asyncio.gather(*(of(group.group_id) for group in listed))
    return {
        group.group_id: GroupState(
            group.group_type.lower() or "classic", group.group_state, committed, lag_of(committed, ends)
        )
        for group, committed in zip(listed, offsets, strict=True)
    }
