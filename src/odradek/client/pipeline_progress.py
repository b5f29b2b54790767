"""The progress of Spark pipelines, in a compacted topic that `odradek pipeline run --progress-to` writes.

The key of a record is the name of a pipeline; the value is the JSON of `odradek pipeline status --json`.
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
# Only closed segments are compacted: small ones keep the topic short.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "segment.ms": "3600000"}
FETCH_BYTES, MAX_BATCH_BYTES = 1 << 20, 4 << 20
# The records of one read.
MAX_RECORDS = 20_000
# Limits of a reader, since any client with Write on the topic may write anything; the newest entries are kept.
MAX_PIPELINES, MAX_FLOWS, MAX_FLOWS_IN_ALL = 1_000, 1_000, 20_000
MAX_LETTERS = 300
MAX_NUMBER = 1 << 63


async def write_progress(cluster: Cluster, status: Mapping[str, Any]) -> None:
    """Write the progress of a pipeline; creates the topic if it does not exist. Raises ApiError."""
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
    """The latest status of each pipeline, the most recent one last; each read continues where the last one ended."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    next_offset: int = 0
    topic_id: UUID | None = None

    async def read(self, cluster: Cluster) -> dict[str, dict[str, Any]]:
        """The status by pipeline; empty if there is none. Raises ApiError.

        A call reads about MAX_RECORDS records; further calls read the rest.
        """
        try:
            topic_id = (await cluster.topic(TOPIC)).topic_id
            first = (await list_offsets(cluster, {(TOPIC, 0): EARLIEST}))[TOPIC, 0]
            end = (await list_offsets(cluster, {(TOPIC, 0): LATEST}))[TOPIC, 0]
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            topic_id, first, end = None, 0, 0
        if topic_id != self.topic_id or self.next_offset > end:  # the topic was recreated
            self.found, self.next_offset, self.topic_id = {}, 0, topic_id
        # Read from the start: after compaction the log is short, whatever its offsets are.
        self.next_offset = max(self.next_offset, first)
        read_count = 0
        while self.next_offset < end and read_count < MAX_RECORDS:
            fetched = await fetch_records(
                cluster, (TOPIC, 0), self.next_offset, max_bytes=FETCH_BYTES, max_batch_bytes=MAX_BATCH_BYTES
            )
            if fetched.next_offset == self.next_offset:
                break
            self.next_offset = fetched.next_offset
            for record in fetched.records:
                apply_record(self.found, record.key, record.value)
            read_count += len(fetched.records)
            retain_newest(self.found)
        return dict(self.found)


def retain_newest(found: dict[str, dict[str, Any]]) -> None:
    """Remove the oldest pipelines until their number, and that of their flows, is within the limits."""
    flows = sum(len(status["flows"]) for status in found.values())
    while len(found) > MAX_PIPELINES or flows > MAX_FLOWS_IN_ALL:
        flows -= len(found.pop(next(iter(found)))["flows"])


def apply_record(found: dict[str, dict[str, Any]], key: bytes | None, value: bytes | None) -> None:
    """Apply one record. Invalid records are skipped: any client with Write on the topic may write anything."""
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
        kept = {
            **{each: _text(status.get(each) or "") for each in ("mode", "state", "error")},
            **{each: _number(status[each]) or 0 for each in ("started", "updated")},
            "pipeline": name,
            "flows": flows,
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    found.pop(name, None)  # the latest is the last
    found[name] = kept


NUMBERS = ("rows_read", "rows_written", "batches", "lag", "rate", "batch_ms", "state_rows", "state_bytes")


def _number(value: object) -> float | int | None:
    """A finite number within MAX_NUMBER, else None: Python's JSON has infinity, and integers that no float can hold."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
        return value
    return None


def _text(value: object) -> str:
    """The first MAX_LETTERS characters, without lone surrogates, which JSON may contain."""
    text = str(value)
    return (text if len(text) <= MAX_LETTERS else text[:MAX_LETTERS] + "…").encode("utf-8", "replace").decode()
