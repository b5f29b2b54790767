"""Bugs to plant in what becomes of transactions that live long; each is caught by the world of `lasting`."""

from __future__ import annotations

from tests.sim.planted import Bug

_STATE = "log.producer_state:ProducerState."
_MACHINE = "coordinator.transaction.machine:TransactionMachine."
LASTING_BUGS = (
    Bug(
        "transactions never time out",
        _MACHINE + "abort_timed_out",
        "if open_ms > present.timeout_ms and len(ended) < MAX_ENDED_PER_LOOK:",
        "if False:",
        "the transaction of a producer that died keeps readers waiting for ever",
    ),
    Bug(
        "ids with an open transaction expire",
        _MACHINE + "expire",
        "if each.state in AT_REST and now_ms - each.last_update_ms >= expiration_ms",
        "if now_ms - each.last_update_ms >= expiration_ms",
        "an open transaction has no coordinator any more, and never ends",
    ),
    Bug(
        "producers with an open transaction expire",
        _STATE + "expire",
        "if entry.silent_since_ms < 0 or entry.transaction_start != NO_OFFSET:",
        "if entry.silent_since_ms < 0:",
        "the end of a slow transaction finds none that is open: its records are neither committed nor aborted",
    ),
    Bug(
        "the newest open transaction counts",
        _STATE + "first_unstable_offset",
        "opened = next(iter(self._open_transactions), None)",
        "opened = next(reversed(self._open_transactions), None)",
        "readers of committed records see a transaction that has been open for longer than another",
    ),
    Bug(
        "open transactions of a snapshot in any order",
        _STATE + "from_snapshot",
        "state._open_transactions = dict(sorted(transactions))",
        "state._open_transactions = dict(sorted(transactions, reverse=True))",
        "after a restart the stable offset goes past the oldest open transaction",
    ),
    Bug(
        "a cut leaves the producers",
        "log.truncation:_after_truncation",
        "known, log.producers = log.producers, producers",
        "known = log.producers",
        "a transaction whose beginning was cut off keeps readers waiting for ever",
    ),
    Bug(
        "a new life does not end the one before",
        _MACHINE + "_initialized",
        "if present.state is TransactionState.ONGOING:",
        "if False:",
        "a producer that came back commits what it wrote before it died",
    ),
)

# The first seed of the world that catches it.
CAUGHT_BY_SEED = {
    "transactions never time out": 4,
    "ids with an open transaction expire": 1,
    "producers with an open transaction expire": 1,
    "the newest open transaction counts": 1,
    "open transactions of a snapshot in any order": 2,
    "a cut leaves the producers": 2,
    "a new life does not end the one before": 4,
}
