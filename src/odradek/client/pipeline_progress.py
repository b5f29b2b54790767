"""How far pipelines of Spark are, in a compacted topic: written by `odradek pipeline run --progress-to`.

A record's key is the name of a pipeline, its value what `odradek pipeline status --json` has, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
# A reader looks at no more at once; what is before is old.
MAX_RECORDS = 20_000
MAX_FLOWS = 1_000


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
    """The last word of each pipeline; goes on from where it read last."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    next_offset: int = 0

    async def read(self, cluster: Cluster) -> dict[str, dict[str, Any]]:
        """Status by pipeline; nothing where no pipeline has written. Raises ApiError."""
        try:
            first = (await list_offsets(cluster, {(TOPIC, 0): EARLIEST}))[TOPIC, 0]
            end = (await list_offsets(cluster, {(TOPIC, 0): LATEST}))[TOPIC, 0]
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            first = end = 0
        if self.next_offset > end or end == 0:
            self.found, self.next_offset = {}, 0  # it was made again
        self.next_offset = max(self.next_offset, first, end - MAX_RECORDS)
        while self.next_offset < end:
            fetched = await fetch_records(
                cluster, (TOPIC, 0), self.next_offset, max_bytes=FETCH_BYTES, max_batch_bytes=MAX_BATCH_BYTES
            )
            if fetched.next_offset == self.next_offset:
                break
            self.next_offset = fetched.next_offset
            for record in fetched.records:
                take(self.found, record.key, record.value)
        return self.found


def take(found: dict[str, dict[str, Any]], key: bytes | None, value: bytes | None) -> None:
    """Count one record in. What is no status is left out: anybody who may write to the topic may write anything."""
    name = (key or b"").decode("utf-8", "replace")
    if value is None:
        found.pop(name, None)
        return
    try:
        status = json.loads(value)
        flows = [
            {
                "flow": str(flow["flow"]),
                "target": str(flow["target"]),
                "status": str(flow["status"]),
                "error": str(flow.get("error") or ""),
                **{each: _number(flow.get(each)) for each in NUMBERS},
            }
            for flow in status["flows"][:MAX_FLOWS]
        ]
        found[name] = {
            **{each: str(status.get(each) or "") for each in ("mode", "state", "error")},
            **{each: _number(status[each]) or 0 for each in ("started", "updated")},
            "pipeline": name,
            "flows": flows,
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return


NUMBERS = ("rows", "batches", "lag", "rate", "batch_ms", "state_rows", "state_bytes")


def _number(value: object) -> float | int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None  # type: ignore[return-value]
