"""One of log.dirs: its state, and the content of its checkpoints at start."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from odradek.common.errors import StorageError
from odradek.common.ports import Disk, read_file, write_file_durably
from odradek.common.topic_names import TopicPartition

PROBE_FILE = "space.tmp"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_DIRECTORY = UUID(int=0)


@dataclass(slots=True)
class LogDir:
    """A log directory.

    Attributes:
        clean_broker_epoch: the broker epoch of the last clean stop; -1 if the stop was not clean, or the epoch is
            unknown.
        checkpointed_*: the content of the checkpoints at start.
        directory_id: from meta.properties; zero until the node sets it.
        error: the reason why it is offline; "" while it is online.
        cordoned: whether it takes no new logs (KIP-1066).
        full: whether a write failed for lack of space, and no later one has succeeded.
    """

    path: Path
    directory_id: UUID = NO_DIRECTORY
    clean_shutdown: bool = False
    clean_broker_epoch: int = -1
    error: str = ""
    cordoned: bool = False
    full: bool = False
    release_lock: Callable[[], None] | None = None
    checkpointed_recovery: dict[TopicPartition, int] = field(default_factory=dict)
    checkpointed_start: dict[TopicPartition, int] = field(default_factory=dict)
    checkpointed_watermark: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def offline(self) -> bool:
        return bool(self.error)

    def open(
        self,
        disk: Disk,
        recovery: dict[TopicPartition, int],
        start: dict[TopicPartition, int],
        watermark: dict[TopicPartition, int],
    ) -> None:
        """Read the state that the last stop left, and remove the marker of a clean stop. Raises OSError.

        Args:
            recovery, start, watermark: the offsets of the checkpoints.
        """
        marker = self.path / CLEAN_SHUTDOWN
        self.clean_shutdown = disk.exists(marker)
        self.read_clean_epoch(disk)
        self.checkpointed_recovery, self.checkpointed_start = recovery, start
        self.checkpointed_watermark = watermark
        # The directory changes from here on: a crash, also during recovery, counts as an unclean stop.
        disk.remove(marker)
        disk.remove(self.path / PROBE_FILE)
        disk.sync_dir(self.path)

    def read_clean_epoch(self, disk: Disk) -> None:
        """Read the broker epoch of the marker of a clean stop."""
        try:
            self.clean_broker_epoch = int(json.loads(read_file(disk, self.path / CLEAN_SHUTDOWN))["brokerEpoch"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.clean_broker_epoch = -1

    def mark_clean(self, disk: Disk, broker_epoch: int) -> None:
        """Write the marker of a clean stop. Blocks, raises StorageError."""
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        try:
            write_file_durably(disk, self.path / CLEAN_SHUTDOWN, marker.encode())
        except OSError as error:
            raise StorageError(self.path, f"{CLEAN_SHUTDOWN}: {error}") from error
