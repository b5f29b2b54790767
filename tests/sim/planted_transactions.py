"""Bugs to plant in transactions; each is caught by the world of `transactional`, or by a unit test where it says so."""

from __future__ import annotations

from tests.sim.planted import Bug

TRANSACTIONS = (
    Bug(
        "marker skipped",
        "coordinator.transaction.driver:TransactionMarkerSender.deliver",
        "left = set(ended.metadata.partitions)",
        "left = set(sorted(ended.metadata.partitions)[1:])",
        "the first partition of a transaction never hears of its end",
    ),
    Bug(
        "failed marker not sent again",
        "coordinator.transaction.driver:TransactionMarkerSender._is_done",
        "return False",
        "return True",
        "a partition that could not take its marker never gets it",
    ),
    Bug(
        "owed markers forgotten",
        "coordinator.transaction.machine:TransactionMachine.unfinished",
        "if metadata.is_ending]",
        "if False]",
        "a broker that was killed does not go on with ends that it had decided",
    ),
    Bug(
        "stable offset past an open transaction",
        "log.log:Log.last_stable_offset",
        "unstable = self.producers.first_unstable_offset(self.high_watermark)",
        "unstable = None",
        "read_committed sees what may yet be aborted",
    ),
    Bug(
        "aborted transactions not in the response",
        "replica.partition:Partition.read",
        "list(aborted_transactions(log, fetch_offset, upper)) if read.size_bytes else []",
        "[]",
        "readers take aborted records for committed ones",
    ),
    Bug(
        "index of aborted transactions not repaired after a kill",
        "log.transactions:apply_control_batch",
        "if not entries or entries[-1].last_offset < aborted.last_offset:  # else it reached the file before a crash",
        "if entries:",
        "aborted records are shown after a restart",
    ),
    Bug(
        "fenced producer accepted",
        "coordinator.transaction.machine:_check_ender",
        "if _identity(request) != (producer_id, epoch) and not again:",
        "if False:",
        "a producer that was replaced ends the transaction of its successor",
    ),
    Bug(
        "epoch not bumped by an end",
        "coordinator.transaction.machine:TransactionMachine._end_ongoing",
        "epoch = present.producer_epoch + 1 if bumps else present.producer_epoch",
        "epoch = present.producer_epoch",
        "what comes late looks like the next transaction's",
    ),
    Bug(
        "offsets visible before the commit",
        "coordinator.group.offsets.store:OffsetStore.replay",
        "if record.producer_id == NO_PRODUCER_ID:",
        "if True:",
        "offsets of a transaction that may be aborted are committed",
    ),
    Bug(
        "aborted offsets committed",
        "coordinator.group.offsets.store:OffsetStore.replay_transaction_end",
        "if record.committed and (present",
        "if True and (present",
        "an abort commits the offsets of its transaction",
    ),
    Bug(
        "marker written again",
        "log.producer_state:ProducerState.must_write_marker",
        "return False",
        "return True",
        "a marker that is sent twice is in the log twice",
    ),
    Bug(
        "late batch opens a transaction",
        "log.producer_state:ProducerState._check_verified",
        "if not is_open and not self.is_verified(header.producer_id, header.producer_epoch, verification):",
        "if False:",
        "a batch behind its marker keeps readers waiting for ever",
    ),
    Bug(
        "coordinator answers what was not asked",
        "coordinator.transaction.machine:TransactionMachine.verify_partitions",
        "return Result([], Outcome(known & frozenset(partitions)))",
        "return Result([], Outcome(frozenset(partitions)))",
        "a partition takes a transaction that has ended for one that includes it",
    ),
    Bug(
        "marker before its decision is durable",
        "coordinator.transaction.service:TransactionShard._decide",
        "outcome = await self.runtime.run(operation)",
        "outcome = await self.runtime.run(\n"
        "    lambda: (result := operation(), [self.spawn(self._finish(each)) for each in result.response.ended])[0]\n"
        ")",
        "a partition knows of a commit that the coordinator may forget",
    ),
    Bug(
        "an end over a dead connection counts",
        "coordinator.transaction.machine:TransactionMachine._check_arrival",
        "if connections.is_late(kind, request.arrival):",
        "if False:",
        "a commit that was held back commits the next transaction (KAFKA-17754)",
    ),
    Bug(
        "an older connection counts for nothing",
        "coordinator.transaction.connections:UsedConnections.is_late",
        "return any(self._last[kind] > use.newest for use in self._uses if use.connection == arrival.connection)",
        "return arrival.connection < max(self._last)",
        "a client that ends transactions over one connection and adds partitions over a later one is refused",
    ),
    Bug(
        "a fence without a bump",
        "coordinator.transaction.machine:TransactionMachine._fence",
        "bumped = present.producer_epoch + 1,",
        "bumped = present.producer_epoch,",
        "the producer of a transaction that was aborted over its head goes on writing",
    ),
    Bug(
        "the last epoch is given away",
        "coordinator.transaction.machine:TransactionMachine._check_producer",
        "request.producer_epoch > LAST_CLIENT_EPOCH:",
        "False:",
        "a producer writes under the epoch that is left to the last marker, which nothing can fence",
    ),
    Bug(
        "a marker ends what follows on it",
        "log.producer_state:ProducerState.clear_verification",
        "is_of_the_next = present.supports_epoch_bump and transaction_version >= 2",
        "is_of_the_next = False",
        "a transaction that begins while the one before is ending is refused",
    ),
    Bug(
        "open transactions expire",
        "log.producer_state:ProducerState.expire",
        "if entry.silent_since_ms < 0 or entry.transaction_start != NO_OFFSET:",
        "if entry.silent_since_ms < 0:",
        "a slow transaction's producer is forgotten, and its coordinator's epoch with it (KAFKA-9144)",
    ),
    Bug(
        "old snapshots of producers passed over",
        "log.recovery:load_producers",
        "max(indexed_to, first_base)",
        "indexed_to",
        "a kill forgets the fences of producers whose records retention has dropped",
    ),
    Bug(
        "an abort that timed out is not tried",
        "coordinator.transaction.machine:TransactionMachine.abort_timed_out",
        "if open_ms > present.timeout_ms and len(ended) < MAX_ENDED_PER_LOOK:",
        "if False:",
        "the transaction of a producer that died keeps readers waiting for ever",
    ),
    Bug(
        "a completion for any epoch",
        "coordinator.transaction.machine:TransactionMachine.complete",
        "or (present.producer_id, present.producer_epoch) != (metadata.producer_id, metadata.producer_epoch)",
        "or False",
        "markers that are written late complete the end of another transaction (KAFKA-6119)",
    ),
    Bug(
        "a transaction of two-phase commit times out",
        "coordinator.transaction.machine:TransactionMachine.abort_timed_out",
        "if present.timeout_ms == NO_TIMEOUT_MS:",
        "if False:",
        "the broker aborts what an outside coordinator has decided to commit (KIP-939)",
    ),
    Bug(
        "a kept transaction leaves its writer in",
        "coordinator.transaction.machine:TransactionMachine._check_producer",
        "present.is_kept or ",
        "",
        "a producer that was replaced adds to a transaction that is prepared (KIP-939)",
    ),
    Bug(
        "the next client of a kept transaction is not fenced",
        "coordinator.transaction.machine:TransactionMachine._fence",
        "present.end_of_kept(bumps=True) if present.is_kept else bumped",
        "bumped",
        "who kept a transaction that was aborted over its head goes on under an epoch that another one gets (KIP-939)",
    ),
)

# The first seed of the transactional world that catches a bug.
CAUGHT_BY_SEED = {
    "marker skipped": 1,
    "owed markers forgotten": 2,
    "stable offset past an open transaction": 1,
    "aborted transactions not in the response": 1,
    "index of aborted transactions not repaired after a kill": 1,
    "fenced producer accepted": 6,
    "epoch not bumped by an end": 1,
    "offsets visible before the commit": 2,
    "aborted offsets committed": 2,
    "marker written again": 2,
    "coordinator answers what was not asked": 2,
    "an older connection counts for nothing": 5,
    "a fence without a bump": 6,
}
# Later seeds that find a bug in a much shorter run: tests try them first.
SOONER = {
    "owed markers forgotten": 18,
    "fenced producer accepted": 17,
    "offsets visible before the commit": 9,
    "marker written again": 18,
    "coordinator answers what was not asked": 16,
    "an older connection counts for nothing": 17,
}
# The tests that catch the others, and how many seeds these have survived. Each test is run with the bug in place, by
# tests/unit/coordinator/test_transaction_bugs.py or by itself.
CAUGHT_BY_TEST = {
    "failed marker not sent again": ("tests/component/coordinator/test_transaction_service.py", 40),
    "marker before its decision is durable": ("tests/component/coordinator/test_transaction_service.py", 60),
    "late batch opens a transaction": ("tests/unit/log/test_log_transactions.py", 40),
    "an end over a dead connection counts": ("tests/scenarios/txn_connections.txt", 40),
    "the last epoch is given away": ("tests/scenarios/txn_exhausted.txt", 40),
    "a marker ends what follows on it": ("tests/unit/log/test_log_transactions.py", 12),
    "open transactions expire": ("tests/unit/log/test_producers.py", 12),
    "old snapshots of producers passed over": ("tests/unit/log/test_producers.py", 12),
    "an abort that timed out is not tried": ("tests/scenarios/txn_timeout.txt", 12),
    "a completion for any epoch": ("tests/scenarios/txn_late_completion.txt", 12),
    "a transaction of two-phase commit times out": ("tests/scenarios/txn_two_phase.txt", 0),
    "a kept transaction leaves its writer in": ("tests/scenarios/txn_two_phase.txt", 0),
    "the next client of a kept transaction is not fenced": ("tests/scenarios/txn_two_phase.txt", 0),
}


def table() -> str:
    """The table of docs/simulation-bugs.md."""
    lines = ["| Planted bug | What it does | Seeds until caught |", "| --- | --- | ---: |"]
    for bug in TRANSACTIONS:
        if bug.name in CAUGHT_BY_SEED:
            seeds = str(CAUGHT_BY_SEED[bug.name])
        else:
            test, tried = CAUGHT_BY_TEST[bug.name]
            seeds = f"more than {tried}; `{test}` catches it"
        lines.append(f"| {bug.name} | {bug.meaning} | {seeds} |")
    return "\n".join(lines)


def transaction_bug(name: str) -> Bug:
    """The bug of that name."""
    (found,) = [bug for bug in TRANSACTIONS if bug.name == name]
    return found
