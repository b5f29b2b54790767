"""Where `odradek groups reset` moves a group to: reading the options, and computing the plan."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.errors import BAD_CONFIG, NOT_FOUND, USAGE, CliError

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.client.groups import CommittedOffset

TopicPartition = tuple[str, int]

_DURATION = re.compile(r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE)
_PARTITIONS = re.compile(r"(.+):(\d+(?:,\d+)*)")


@dataclass(frozen=True, slots=True)
class Position:
    """Where to: exactly one of these is set."""

    edge: str = ""  # "earliest", "latest" or "current"
    offset: int | None = None
    timestamp_ms: int | None = None
    shift: int | None = None
    listed: dict[str, dict[TopicPartition, int]] | None = None  # by group, "" is any


@dataclass(slots=True)
class ResetPlan:
    """What a group has committed (None for nothing) and what it will have, by partition."""

    group: str
    offsets: dict[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def parse_topic(text: str) -> tuple[str, list[int]]:
    """`name` or `name:0,2` → the name and its partitions; no partitions are all of them."""
    match = _PARTITIONS.fullmatch(text)
    if match is None:
        return text, []
    return match[1], [int(index) for index in match[2].split(",")]


def wanted_position(
    *,
    earliest: bool,
    latest: bool,
    current: bool,
    offset: int | None,
    datetime_text: str | None,
    duration: str | None,
    shift: int | None,
    file: Path | None,
) -> Position:
    """The one position that the options name. Raises CliError."""
    given = [earliest, latest, current, *(each is not None for each in (offset, datetime_text, duration, shift, file))]
    if sum(given) != 1:
        raise CliError(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, "
            "--shift-by or --from-file",
            code=USAGE,
        )
    if datetime_text is not None:
        return Position(timestamp_ms=max(0, parse_datetime(datetime_text)))
    if duration is not None:
        # Below 0 a timestamp would mean something else to the broker.
        return Position(timestamp_ms=max(0, time.time_ns() // 1_000_000 - parse_duration_ms(duration)))
    if file is not None:
        return Position(listed=_read_plan(file))
    edge = "earliest" if earliest else "latest" if latest else "current" if current else ""
    return Position(edge=edge, offset=offset, shift=shift)


def parse_datetime(text: str) -> int:
    """`2026-01-31T12:00:00.000`, with `Z` or `+hh:mm` where it is not UTC → ms since 1970 UTC. Raises CliError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(f"--to-datetime {text}: must be as 2026-01-31T12:00:00.000", code=BAD_CONFIG) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """`P1DT2H30M5S` → ms. Raises CliError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise CliError(f"--by-duration {text}: must be as P1DT2H30M", code=BAD_CONFIG)
    try:
        days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
        lasted = timedelta(days=days, hours=hours, minutes=minutes, seconds=float(match[4] or 0))
    except (OverflowError, ValueError):
        raise CliError(f"--by-duration {text}: no record is that old", code=BAD_CONFIG) from None
    return int(lasted.total_seconds() * 1000)


async def plan_reset(
    cluster: Cluster, group: str, chosen: Sequence[tuple[str, list[int]]], position: Position
) -> ResetPlan:
    """What to commit for a group, within what the partitions have.

    Args:
        chosen: topics with the partitions meant, none for all; no topics for all that the group has committed for.
    Raises:
        CliError: nothing to reset, or the position cannot be known; ApiError as the brokers say.
    """
    from odradek.client.groups import EARLIEST, LATEST, committed_offsets, list_offsets

    committed = await committed_offsets(cluster, group)
    plan = ResetPlan(group)
    if position.listed is not None:
        wanted = position.listed.get(group, position.listed.get("", {}))
        partitions = list(wanted)
        if not partitions:
            raise CliError(f"--from-file has nothing for group {group}; --export writes such a file", code=BAD_CONFIG)
    else:
        wanted = {}
        partitions = await _partitions(cluster, chosen) if chosen else list(committed)
    if not partitions:
        raise CliError(f"nothing to reset for group {group}: it has committed nothing; name topics with --topic")
    first = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    last = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    if position.timestamp_ms is not None:
        at = await list_offsets(cluster, dict.fromkeys(partitions, position.timestamp_ms))
        wanted = {key: offset if offset >= 0 else last[key] for key, offset in at.items()}
    for key in sorted(partitions):
        target = _target(group, key, position, wanted, committed, first, last)
        kept = min(max(target, first[key]), last[key])
        if kept != target:
            plan.warnings.append(f"{key[0]}-{key[1]} has no offset {target}; {kept} is the nearest")
        plan.offsets[key] = (committed[key].offset if key in committed else None, kept)
    return plan


def _target(
    group: str,
    key: TopicPartition,
    position: Position,
    wanted: dict[TopicPartition, int],
    committed: dict[TopicPartition, CommittedOffset],
    first: dict[TopicPartition, int],
    last: dict[TopicPartition, int],
) -> int:
    if key in wanted:
        return wanted[key]
    if position.offset is not None:
        return position.offset
    if position.edge == "earliest":
        return first[key]
    if position.edge == "latest":
        return last[key]
    if position.shift is None:
        # Kafka's tool, too, takes a group without a committed offset to the end.
        return committed[key].offset if key in committed else last[key]
    if key not in committed:
        raise CliError(f"group {group} has committed nothing for {key[0]}-{key[1]} to shift; use --to-offset")
    return committed[key].offset + position.shift


async def _partitions(cluster: Cluster, chosen: Sequence[tuple[str, list[int]]]) -> list[TopicPartition]:
    found: dict[TopicPartition, None] = {}
    for topic, some in chosen:
        known = {partition.partition_index for partition in (await cluster.topic(topic)).partitions}
        for index in some or sorted(known):
            if index not in known:
                raise CliError(f"topic {topic} has no partition {index}; it has {len(known)}", code=NOT_FOUND)
            found[topic, index] = None
    return list(found)


def export_plan(plans: Sequence[ResetPlan]) -> str:
    """CSV that --from-file reads: topic,partition,offset, with the group first where there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for plan in plans:
        for (topic, index), (_, offset) in sorted(plan.offsets.items()):
            writer.writerow([*([plan.group] if len(plans) > 1 else []), topic, index, offset])
    return text.getvalue()


def _read_plan(path: Path) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row:
                    continue
                try:
                    *group, topic, index, offset = row
                    found.setdefault(group[0] if group else "", {})[topic, int(index)] = int(offset)
                except ValueError:
                    raise CliError(
                        f"{path}: line {number} is not topic,partition,offset; --export writes such a file",
                        code=BAD_CONFIG,
                    ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise CliError(f"{path}: {reason}; name a file that --export wrote", code=BAD_CONFIG) from None
    return found
