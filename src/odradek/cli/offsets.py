"""The options of `odradek groups reset`; `admin.offset_reset` computes the plan."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.errors import BAD_CONFIG, FAILED, NOT_FOUND, USAGE, CliError

if TYPE_CHECKING:
    from odradek.admin.offset_reset import Position, ResetError, ResetPlan
    from odradek.common.topic_names import TopicPartition

# How the command goes on, by the reason of a refusal.
_REFUSED = {
    "empty": (" with --topic", FAILED),
    "unlisted": ("; --export writes such a file", BAD_CONFIG),
    "unshiftable": ("; use --to-offset", FAILED),
    "no-partition": ("", NOT_FOUND),
    "in-use": ("", FAILED),
}

_DURATION = re.compile(r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE)
_PARTITIONS = re.compile(r"(.+):(\d+(?:,\d+)*)")


def refused(error: ResetError) -> CliError:
    """The reason why offsets cannot be reset, with the option that helps."""
    hint, code = _REFUSED[error.reason]
    return CliError(f"{error}{hint}".replace("the plan has", "--from-file has"), code=code)


def parse_topic(text: str) -> tuple[str, list[int]]:
    """`name` or `name:0,2` → the name and its partitions; no partitions are all of them."""
    match = _PARTITIONS.fullmatch(text)
    if match is None:
        return text, []
    return match[1], [int(index) for index in match[2].split(",")]


def requested_position(
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
    """The only position that the options name. Raises CliError."""
    from odradek.admin.offset_reset import Position

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
