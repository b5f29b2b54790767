"""Bugs to plant in what a log knows of its producers, over snapshots, cuts and copies; caught by the world of
`producers`, most of them by the account of `producer_scan` alone."""

from __future__ import annotations

from tests.sim.planted import Bug

_STATE = "log.producer_state:ProducerState."
PRODUCER_BUGS = (
    Bug(
        "a snapshot without coordinator epochs",
        _STATE + "snapshot",
        "entry.coordinator_epoch,",
        "-1,",
        "a coordinator that was replaced writes markers again after a restart",
    ),
    Bug(
        "a snapshot without timestamps",
        _STATE + "snapshot",
        "entry.last_timestamp_ms,",
        "-1,",
        "DescribeProducers says that producers wrote nothing",
    ),
    Bug(
        "windows as narrow as the snapshot",
        _STATE + "restore_dedup_window",
        "for header in reversed(batches):",
        "for header in ():",
        "what is sent again after a restart is refused as out of order",
    ),
    Bug(
        "a snapshot without open transactions",
        _STATE + "snapshot",
        "entry.transaction_start,\n",
        "NO_OFFSET,\n",
        "readers of committed records see what may yet be aborted",
    ),
    Bug(
        "an end that others lack counts at once",
        _STATE + "end_transaction",
        "self._unreplicated.append((first, header.last_offset))",
        "pass",
        "what a leader read as stable may be aborted by the next one",
    ),
    Bug(
        "a marker of a later epoch leaves the window",
        _STATE + "end_transaction",
        "entry.batches = ()",
        "pass",
        "batches of the epoch before count as those of the next",
    ),
    Bug(
        "markers leave no timestamp",
        _STATE + "end_transaction",
        "entry.last_timestamp_ms = header.max_timestamp",
        "pass",
        "a producer counts as silent while its transactions end",
    ),
    Bug(
        "the first batch behind a snapshot is passed over",
        "log.recovery:load_producers",
        "if header.last_offset >= start:",
        "if header.last_offset > start:",
        "a start does not know a producer's batch, which is appended again",
    ),
    Bug(
        "a cut leaves aborts in the index",
        "log.index:TransactionIndex.truncate",
        "if len(kept) < len(self.entries):",
        "if False:",
        "aborts that were cut off hide what came in their place",
    ),
    Bug(
        "a cut forgets all aborts in memory",
        "log.index:TransactionIndex.truncate",
        "self.entries = kept",
        "self.entries = []",
        "aborted records are shown after an election",
    ),
)

# The first seed of the world that catches it. The account notices all of these, and most of them nothing else does.
CAUGHT_BY_SEED: dict[str, int] = {
    "a snapshot without coordinator epochs": 1,
    "a snapshot without timestamps": 1,
    "windows as narrow as the snapshot": 1,
    "a snapshot without open transactions": 1,
    "an end that others lack counts at once": 1,
    "a marker of a later epoch leaves the window": 1,
    "markers leave no timestamp": 1,
    "the first batch behind a snapshot is passed over": 1,
}
