"""The log directories that are full; each change is logged once.

A directory counts as full from the first write that failed for lack of space until a trial write succeeds. Meanwhile
its logs are read, and writes that fit succeed; the controller elects no new leaders there (`controller.partitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Disk, is_disk_full, probe_space
from odradek.log.log_dir import PROBE_FILE, LogDir

# The size of a trial write.
PROBE_BYTES = 1 << 20
_log = get_logger("log.space")


class DirectorySpace:
    """The log directories of one broker that have no space."""

    def __init__(self, disk: Disk, directories: Mapping[Path, LogDir]) -> None:
        self._disk = disk
        self._directories = directories
        self._on_change: list[Callable[[], None]] = []

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when a directory becomes full, and when there is space again."""
        self._on_change.append(on_change)

    def _changed(self) -> None:
        for on_change in self._on_change:
            on_change()

    def on_disk_full(self, log_dir: Path) -> None:
        """Mark a directory as full after a failed write."""
        found = self._directories.get(log_dir)
        if found is not None and not found.full and not found.offline:
            found.full = True
            _log.warning("log directory is full: other in-sync replicas take over leadership", log_dir=log_dir)
            self._changed()

    def full_paths(self) -> list[Path]:
        """The paths of the full directories."""
        return [path for path, directory in self._directories.items() if directory.full]

    def full(self) -> list[LogDir]:
        """The full directories that are online, for trial writes."""
        return [each for each in self._directories.values() if each.full and not each.offline]

    def probe(self, directory: LogDir) -> Callable[[], bool]:
        """Return blocking work that tries to write; it returns whether there is space, and raises StorageError if the
        disk fails."""
        path = directory.path / PROBE_FILE

        def work() -> bool:
            try:
                probe_space(self._disk, path, PROBE_BYTES)
            except OSError as error:
                if is_disk_full(error):
                    return False
                raise StorageError(directory.path, f"{path}: {error}") from error
            return True

        return work

    def on_space_available(self, directory: LogDir) -> None:
        """Mark a directory as no longer full after a trial write."""
        directory.full = False
        _log.info("log directory has space again", log_dir=directory.path)
        self._changed()
