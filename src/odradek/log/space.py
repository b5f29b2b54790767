"""Which log directories are full: said once when one is, and once when there is space again.

A directory counts as full from the first write that did not fit until a trial write does. Meanwhile its logs are read,
and writes that fit are taken; the broker asks for no new leadership there (see `controller.partitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Disk, is_disk_full, probe_space
from odradek.log.log_dir import PROBE_FILE, LogDir

# So much must fit before a directory that was full takes part again.
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
        """A write to this directory did not fit."""
        found = self._directories.get(log_dir)
        if found is not None and not found.full and not found.offline:
            found.full = True
            _log.warning("log directory is full: other in-sync replicas lead, where there are any", log_dir=log_dir)
            self._changed()

    def full_paths(self) -> list[Path]:
        """The directories in which a write did not fit."""
        return [path for path, directory in self._directories.items() if directory.full]

    def full(self) -> list[LogDir]:
        """Those to try again."""
        return [each for each in self._directories.values() if each.full and not each.offline]

    def probe(self, directory: LogDir) -> Callable[[], bool]:
        """Blocking work that finds out whether there is space; it raises StorageError where the disk fails."""
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
        """A trial write succeeded."""
        directory.full = False
        _log.info("log directory has space again", log_dir=directory.path)
        self._changed()
