"""One of log.dirs: what its checkpoints said when the node started, and whether it works."""

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
        clean_broker_epoch: the epoch under which the node stopped in good order; -1 where it did not, or did not say.
        checkpointed_*: what the checkpoints said when the node started.
        directory_id: of its meta.properties; zero until the node sets it.
        error: why it is offline, "" while it is not.
        cordoned: whether it takes no new logs (KIP-1066).
        full: whether a write did not fit, and none that was tried since did.
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
        """Take what the last stop left, and take the mark of a clean one away; raises OSError.

        Args:
            recovery, start, watermark: offsets of the checkpoints.
        """
        marker = self.path / CLEAN_SHUTDOWN
        self.clean_shutdown = disk.exists(marker)
        self.read_clean_epoch(disk)
        self.checkpointed_recovery, self.checkpointed_start = recovery, start
        self.checkpointed_watermark = watermark
        # From here on the directory changes, so a crash finds it unclean, in the middle of recovery too.
        disk.remove(marker)
        disk.remove(self.path / PROBE_FILE)
        disk.sync_dir(self.path)

    def read_clean_epoch(self, disk: Disk) -> None:
        """Learn under which broker epoch the directory was closed in good order."""
        try:
            self.clean_broker_epoch = int(json.loads(read_file(disk, self.path / CLEAN_SHUTDOWN))["brokerEpoch"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.clean_broker_epoch = -1

    def mark_clean(self, disk: Disk, broker_epoch: int) -> None:
        """Leave the mark of a clean stop for the next start; blocks. Raises StorageError."""
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        try:
            write_file_durably(disk, self.path / CLEAN_SHUTDOWN, marker.encode())
        except OSError as error:
            raise StorageError(self.path, f"{CLEAN_SHUTDOWN}: {error}") from error
