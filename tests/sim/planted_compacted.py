"""Bugs to plant in what the cleaner does when its log is deleted meanwhile; see `compacted`."""

from __future__ import annotations

from tests.sim.planted import Bug

COMPACTED_BUGS = (
    Bug(
        "a disk is blamed for a log that was deleted under its cleaning",
        "log.partition_dir:PartitionDir.work",
        "if self.is_detached:",
        "if False:",
        "a topic that is deleted while the worker of its cleaning ends stops the node",
    ),
)

# The first seed of the world that catches it.
CAUGHT_BY_SEED = {"a disk is blamed for a log that was deleted under its cleaning": 43}
