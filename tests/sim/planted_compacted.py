"""Bugs to plant in the cleaner: in a log that is deleted meanwhile, and with tombstones; see `compacted`."""

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
    Bug(
        "a tombstone gets no delete horizon",
        "log.compaction.batches:BatchCleaner._retain_marked",
        "if tombstones and not header.has_delete_horizon",
        "if False",
        "tombstones are kept forever",
    ),
    Bug(
        "each cleaning gives a tombstone a new delete horizon",
        "log.compaction.batches:BatchCleaner._retain_marked",
        "if tombstones and not header.has_delete_horizon",
        "if tombstones",
        "a log that is cleaned more often than each `delete.retention.ms` keeps its tombstones",
    ),
)

# The first seed of the world that catches it.
CAUGHT_BY_SEED = {
    "a disk is blamed for a log that was deleted under its cleaning": 73,
    "a tombstone gets no delete horizon": 2,
    "each cleaning gives a tombstone a new delete horizon": 6,
}
