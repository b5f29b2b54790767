"""Bugs to plant into the cleaner; each must be found by random logs, or by a death in the middle of a cleaning."""

from __future__ import annotations

from tests.sim.planted import Bug

_BATCHES = "log.compaction.batches:BatchCleaner."

# Found over random logs that are cleaned in peace.
IN_PEACE = (
    Bug(
        "tombstone dropped early",
        _BATCHES + "_retain_marked",
        "if tombstones and header.has_delete_horizon and header.base_timestamp <= self._now_ms:",
        "if tombstones:",
        "a reader that comes a little later never hears of the deletion",
    ),
    Bug(
        "tombstone never dropped",
        _BATCHES + "_retain_marked",
        "horizon_ms = self._new_horizon_ms if tombstones and not header.has_delete_horizon else None",
        "horizon_ms = None",
        "deleted keys stay for ever",
    ),
    Bug(
        "last value lost",
        "log.compaction.keys:OffsetMap.put_batch",
        "marks[older] = DEAD",
        "marks[number] = DEAD",
        "the first value of a key stays instead of the last",
    ),
    Bug(
        "offset changed",
        _BATCHES + "_rewrite",
        "base_timestamp=header.base_timestamp if horizon_ms is None else horizon_ms,",
        "base_timestamp=header.base_timestamp if horizon_ms is None else horizon_ms,"
        " base_offset=header.base_offset + marks[0] % 2, last_offset_delta=header.last_offset_delta - marks[0] % 2,",
        "a batch that loses its first record moves",
    ),
    Bug(
        "timestamps count from the wrong time",
        "log.compaction.keys:shifted_live_records",
        "stamp = zigzag(delta + shift_ms)",
        "stamp = zigzag(delta)",
        "records with a horizon are read with a timestamp that lies ahead",
    ),
    Bug(
        "marker dropped before its data",
        "log.compaction.transactions:OpenTransactions.add",
        "if header.is_transactional:",
        "if False:",
        "what is left of a transaction never ends",
    ),
    Bug(
        "marker dropped at once",
        _BATCHES + "_clean_control",
        "if not header.has_delete_horizon:",
        "if False:",
        "a reader in the middle of a transaction never sees its end",
    ),
    Bug(
        "cleaned past the last stable offset",
        "log.compaction.plan:cleanable_end",
        "limit = min(log.last_stable_offset, log.recovery_point)",
        "limit = log.recovery_point",
        "a record of an open transaction takes the place of a committed one",
    ),
    Bug(
        "aborted records take part",
        _BATCHES + "add_keys",
        "if header.is_control or header.record_count == 0 or self._aborted.covers(header):",
        "if header.is_control or header.record_count == 0:",
        "an aborted value takes the place of a committed one",
    ),
    Bug(
        "aborted transactions forgotten",
        "log.compaction.transactions:OpenTransactions.retained_entries",
        "return [entry for entry in entries if (entry.producer_id, entry.last_offset) not in self.emptied]",
        "return []",
        "aborted records that a pass did not reach are read as committed",
    ),
    Bug(
        "sequence lost",
        _BATCHES + "_is_last_of_producer",
        "return header.last_offset == last.last_offset",
        "return False",
        "after a restart a producer is unknown, and its retry is appended again",
    ),
    Bug(
        "cleaned beyond the offset map",
        _BATCHES + "clean",
        "if header.last_offset >= self.end_offset:",
        "if False:",
        "records whose keys did not fit into memory are dropped",
    ),
    Bug(
        "segment's end lost",
        "log.compaction.cleaning:Cleaning.clean",
        "is_end = segment is segments[-1] and position + len(batch) == segment.size_bytes",
        "is_end = False",
        "the last offsets of a segment are lost, and a start takes the gap for a lost file",
    ),
)

# Found where a cleaning dies.
AT_DEATH = (
    Bug(
        "swap without fsync",
        "log.compaction.output:CleanedSegment.finish",
        "self._segment.sync()",
        "pass",
        "a loss of power leaves the new segment's name without its bytes",
    ),
    Bug(
        "index without fsync",
        "log.compaction.output:CleanedSegment.finish",
        "self._segment.indexes.flush(sync=True)",
        "self._segment.indexes.flush()",
        "a loss of power leaves the transaction index empty, and aborted records are read",
    ),
    Bug(
        "log swapped before its indexes",
        "log.compaction.output:cleaned_paths",
        '(*INDEX_SUFFIXES, ".log")',
        '(".log", *INDEX_SUFFIXES)',
        "a start takes the new log without its transaction index",
    ),
    Bug(
        "old segments stay beside the new one",
        "log.compaction.swap:complete_swap",
        "_remove_segment(disk, directory, int(stem), is_base=int(stem) == base)",
        "pass",
        "a start finds batches twice, and cuts the log there",
    ),
    Bug(
        "old segments go before the new one counts",
        "log.compaction.swap:swap_in",
        "for cleaned in cleaned_paths(directory, base):",
        "for segment in old:\n    mark_deleted(segment)\nfor cleaned in cleaned_paths(directory, base):",
        "a crash between the two leaves neither",
    ),
)

# Found where transactions are open, committed and aborted while a log is cleaned.
IN_TRANSACTIONS = tuple(
    bug
    for bug in IN_PEACE
    if bug.name
    in (
        "tombstone dropped early",
        "last value lost",
        "marker dropped before its data",
        "cleaned past the last stable offset",
        "aborted records take part",
    )
)
