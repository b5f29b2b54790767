"""Names of partition directories, as Kafka's: `topic-partition`, and `topic-partition.<32 hex digits>-<kind>`."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode

PARTITION_DIR = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
FUTURE_DIR = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)\.[0-9a-f]{32}-future")
DELETED_DIR = re.compile(r".+\.[0-9a-f]{32}-delete")
MAX_NAME_BYTES = 255


def deleted_path(directory: Path, random_bits: int) -> Path:
    """The name of a deleted log's directory until it is removed; a long topic name is shortened."""
    return _marked(directory, f".{random_bits:032x}-delete")


def stray_path(directory: Path, random_bits: int) -> Path:
    """The new name of a directory that is not its partition's log; a long topic name is shortened."""
    return _marked(directory, f".{random_bits:032x}-stray")


def future_name(topic: str, partition_id: int, random_bits: int) -> str:
    """The name of a future log's directory.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION, the name is too long for a file system: a start needs the whole topic name.
    """
    name = f"{topic}-{partition_id}.{random_bits:032x}-future"
    if len(name) > MAX_NAME_BYTES:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is too long a name for a future log")
    return name


def _marked(directory: Path, mark: str) -> Path:
    return directory.parent / (directory.name[: MAX_NAME_BYTES - len(mark)] + mark)
