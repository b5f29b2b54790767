"""How far pipelines of Spark are, in a compacted topic: written by `odradek pipeline run --progress-to`.

A record's key is the name of a pipeline, its value what `odradek pipeline status --json` has, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.client.admin import create_topic
from odradek.client.cluster import Cluster
from odradek.client.fetch import fetch_records
from odradek.client.groups import EARLIEST, LATEST, list_offsets
from odradek.client.produce import produce_record
from odradek.common.errors import ApiError, ErrorCode
from odradek.record.record import Record

TOPIC = "_odradek_pipelines"
# Only closed segments are compacted: a reader begins with what is left of them.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "segment.ms": "3600000"}
FETCH_BYTES, MAX_BATCH_BYTES = 1 << 20, 4 << 20
# A reader takes about so many at once, and goes on from there the next time.
MAX_RECORDS = 20_000
# Anybody who may write to the topic may write anything: a reader keeps so much, and what was written last.
MAX_PIPELINES, MAX_FLOWS, MAX_FLOWS_IN_ALL = 1_000, 1_000, 20_000
MAX_LETTERS = 300
MAX_NUMBER = 1 << 63


async def write_progress(cluster: Cluster, status: Mapping[str, Any]) -> None:
    """Write where a pipeline is; the topic is made where it is missing. Raises ApiError."""
    at_ms = int(status["updated"] * 1000)
    record = Record(str(status["pipeline"]).encode(), json.dumps(status).encode(), (), at_ms)
    try:
        await produce_record(cluster, TOPIC, record, partition=0)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        await _make_topic(cluster)
        await produce_record(cluster, TOPIC, record, partition=0)


async def _make_topic(cluster: Cluster) -> None:
    try:
        await create_topic(cluster, TOPIC, partitions=1, configs=SETTINGS)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise

    async def known() -> None:
        if (await cluster.topic(TOPIC)).partitions[0].leader_id < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{TOPIC}-0 has no leader yet")

    await cluster.retried(known)


@dataclass(slots=True)
class ProgressReader:
    """The last word of each pipeline, of what was written last at the end; goes on from where it read last."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    next_offset: int = 0
    topic_id: UUID | None = None

    async def read(self, cluster: Cluster) -> dict[str, dict[str, Any]]:
        """Status by pipeline; nothing where no pipeline has written. Raises ApiError.

        Where there is more to read than is taken at once, the rest comes with the next calls.
        """
        try:
            topic_id = (await cluster.topic(TOPIC)).topic_id
            first = (await list_offsets(cluster, {(TOPIC, 0): EARLIEST}))[TOPIC, 0]
            end = (await list_offsets(cluster, {(TOPIC, 0): LATEST}))[TOPIC, 0]
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            topic_id, first, end = None, 0, 0
        if topic_id != self.topic_id or self.next_offset > end:  # it was made again
            self.found, self.next_offset, self.topic_id = {}, 0, topic_id
        # Not from a distance to the end: compaction leaves few records, however far apart their offsets are.
        self.next_offset = max(self.next_offset, first)
        taken = 0
        while self.next_offset < end and taken < MAX_RECORDS:
            fetched = await fetch_records(
                cluster, (TOPIC, 0), self.next_offset, max_bytes=FETCH_BYTES, max_batch_bytes=MAX_BATCH_BYTES
            )
            if fetched.next_offset == self.next_offset:
                break
            self.next_offset = fetched.next_offset
            for record in fetched.records:
                take(self.found, record.key, record.value)
            taken += len(fetched.records)
            keep_newest(self.found)
        return dict(self.found)


def keep_newest(found: dict[str, dict[str, Any]]) -> None:
    """Forget the pipelines that wrote longest ago, until there are few enough of them and of their flows."""
    flows = sum(len(status["flows"]) for status in found.values())
    while len(found) > MAX_PIPELINES or flows > MAX_FLOWS_IN_ALL:
        flows -= len(found.pop(next(iter(found)))["flows"])


def take(found: dict[str, dict[str, Any]], key: bytes | None, value: bytes | None) -> None:
    """Count one record in. What is no status is left out: anybody who may write to the topic may write anything."""
    name = _text((key or b"").decode("utf-8", "replace"))
    if value is None:
        found.pop(name, None)
        return
    try:
        status = json.loads(value)
        flows = [
            {
                **{each: _text(flow[each]) for each in ("flow", "target", "status")},
                "error": _text(flow.get("error") or ""),
                **{each: _number(flow.get(each)) for each in NUMBERS},
            }
            for flow in status["flows"][:MAX_FLOWS]
        ]
        taken = {
            **{each: _text(status.get(each) or "") for each in ("mode", "state", "error")},
            **{each: _number(status[each]) or 0 for each in ("started", "updated")},
            "pipeline": name,
            "flows": flows,
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    found.pop(name, None)  # who wrote last is last
    found[name] = taken


NUMBERS = ("rows_read", "rows_written", "batches", "lag", "rate", "batch_ms", "state_rows", "state_bytes")


def _number(value: object) -> float | int | None:
    """One that can be counted with: JSON of Python has infinity, and integers that no float holds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
        return value
    return None


def _text(value: object) -> str:
    """Its beginning, without halves of surrogate pairs, which JSON may have and no page."""
    text = str(value)
    return (text if len(text) <= MAX_LETTERS else text[:MAX_LETTERS] + "…").encode("utf-8", "replace").decode()
