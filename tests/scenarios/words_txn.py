"""Words for transactional ids on virtual time; producers have short names, and the id `x` unless they say `id=…`.

`init NAME [id=…] [timeout=MS] [again] [keep]` (`again` names the producer's id and epoch, KIP-360; `keep` keeps what is
open, KIP-939; `timeout=none` is two-phase commit's),
`add NAME PARTITION… [v=0|2] [connection=N]`, `verify NAME PARTITION…`, `commit NAME`, `abort NAME` (both with `[v=0|2]
[epoch=N] [connection=N]`), `markers [COUNT]` (those of the oldest ends are written, and said to be), `pass MS`, `look`
(for what has timed out), `expire MS`, `restart` (another broker loads what was written), `fail` (the next write fails),
`epoch ID N` (as if it had been bumped so often), `show`. A connection is made when it is first named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import all_steps
from odradek.coordinator.batches import decode_batches, encode_batches
from odradek.coordinator.transaction.connections import Arrival
from odradek.coordinator.transaction.machine import (
    NO_IDENTITY,
    Ended,
    Outcome,
    ProducerIdNeededError,
    Request,
    TransactionMachine,
)
from odradek.coordinator.transaction.metadata import NO_TIMEOUT_MS
from odradek.coordinator.transaction.records import TRANSACTION_RECORDS, TransactionRecord
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline
from tests.scenarios.script import Command, ScriptError

FIRST_PRODUCER_ID = 1000


class TxnWords:
    """A shard of the transaction coordinator, without a runtime: records are encoded, decoded and replayed at once."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.now_ms = self.monotonic_ms = 0
        self.next_producer_id = FIRST_PRODUCER_ID
        self.producers: dict[str, tuple[str, int, int]] = {}
        self.owed: list[Ended] = []
        self.fails = False
        self.newest_connection = -1
        self.machine = TransactionMachine(Timeline())

    def run(self, command: Command) -> Iterable[str]:
        act = getattr(self, f"do_{command.name}", None)
        if act is None:
            raise ScriptError(f"{command.name}: no such command")
        before = self._state()
        try:
            lines = list(act(command) or ())
        except ApiError as error:
            lines = [error.code.name]
        return [*lines, *(line for line in self._state() if line not in before)]

    def do_init(self, command: Command) -> Iterator[str]:
        name = command.arguments[0]
        known = self.producers.get(name)
        expected = known[1:] if known is not None and "again" in command.arguments else None
        transactional_id = command.options.get("id", known[0] if known is not None else "x")
        is_two_phase = command.options.get("timeout") == "none"
        timeout_ms = NO_TIMEOUT_MS if is_two_phase else command.number("timeout", 60_000)
        keeps = "keep" in command.arguments
        operation = self.machine.keep_prepared if keeps else self.machine.init_producer_id
        done = self._with_fresh_id(
            lambda fresh: operation(
                transactional_id,
                timeout_ms,
                expected,
                fresh_producer_id=fresh,
                now_ms=self.now_ms,
            )
        )
        identity, writer = done if keeps else (done, NO_IDENTITY)
        self.producers[name] = (transactional_id, *identity)
        kept = f" keeps producer {writer[0]} epoch {writer[1]}" if writer != NO_IDENTITY else ""
        yield f"{name}: producer {identity[0]} epoch {identity[1]}{kept}"

    def do_add(self, command: Command) -> None:
        name, *partitions = command.arguments
        added = frozenset(("t", int(each)) for each in partitions)
        self._apply(self.machine.add_partitions(self._request(command, name), added, self.now_ms))

    def do_verify(self, command: Command) -> Iterator[str]:
        name, *partitions = command.arguments
        wanted = [("t", int(each)) for each in partitions]
        included = self._apply(self.machine.verify_partitions(self._request(command, name), wanted))
        yield "included: " + (",".join(str(number) for _, number in sorted(included)) or "none")

    def do_commit(self, command: Command) -> Iterator[str]:
        return self._end(command, commit=True)

    def do_abort(self, command: Command) -> Iterator[str]:
        return self._end(command, commit=False)

    def do_markers(self, command: Command) -> Iterator[str]:
        count = int(command.arguments[0]) if command.arguments else len(self.owed)
        owed, self.owed = self.owed[:count], self.owed[count:]
        for ended in owed:
            partitions = ",".join(str(number) for _, number in sorted(ended.metadata.partitions)) or "nothing"
            what = "COMMIT" if ended.committed else "ABORT"
            done = self._apply(self.machine.complete(ended, self.now_ms))
            again = "" if done else ", and it was complete"
            yield f"{what} epoch {ended.metadata.producer_epoch} to {partitions}{again}"

    def do_repeat(self, command: Command) -> None:
        """The markers that are owed are said to be written twice."""
        self.owed += self.owed

    def do_pass(self, command: Command) -> None:
        self.now_ms += int(command.arguments[0])
        self.monotonic_ms += int(command.arguments[0])

    def do_set_back(self, command: Command) -> None:
        """The wall clock is set back by so many ms."""
        self.now_ms -= int(command.arguments[0])

    def do_look(self, command: Command) -> None:
        self._apply(self.machine.abort_timed_out(self.now_ms, self.monotonic_ms))

    def do_expire(self, command: Command) -> None:
        self._apply(self.machine.expire(self.now_ms, int(command.arguments[0])))

    def do_restart(self, command: Command) -> None:
        self.owed = []
        self.machine = TransactionMachine(Timeline())
        for batch in self.log:
            for offset, record in decode_batches(TRANSACTION_RECORDS, batch)[0]:
                self.machine.replay(record, offset)
        self._apply(self.machine.unfinished())

    def do_fail(self, command: Command) -> None:
        self.fails = True

    def do_epoch(self, command: Command) -> None:
        transactional_id, wanted = command.arguments[0], int(command.arguments[1])
        for name in [name for name, known in self.producers.items() if known[0] == transactional_id]:
            identity = self.machine.ids[transactional_id]
            while identity.producer_epoch < wanted:
                list(self.do_init(Command("init", [name])))
                identity = self.machine.ids[transactional_id]

    def do_show(self, command: Command) -> Iterable[str]:
        return self._state()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _end(self, command: Command, *, commit: bool) -> Iterator[str]:
        name = command.arguments[0]
        request = self._request(command, name)
        identity = self._with_fresh_id(
            lambda fresh: self.machine.end(request, commit=commit, fresh_producer_id=fresh, now_ms=self.now_ms)
        )
        if request.version == 2:
            self.producers[name] = (request.transactional_id, *identity)
            yield f"{name}: producer {identity[0]} epoch {identity[1]}"

    def _request(self, command: Command, name: str) -> Request:
        transactional_id, producer_id, epoch = self.producers[name]
        arrival = None
        if "connection" in command.options:
            connection = command.number("connection")
            self.newest_connection = max(self.newest_connection, connection)
            arrival = Arrival(connection, self.newest_connection)
        return Request(
            transactional_id, producer_id, command.number("epoch", epoch), command.number("v", 2), arrival=arrival
        )

    def _with_fresh_id(self, operation: Callable[[int | None], Result[TransactionRecord, Outcome[Any]]]) -> Any:
        try:
            result = operation(None)
        except ProducerIdNeededError:
            self.next_producer_id += 1
            result = operation(self.next_producer_id - 1)
        return self._apply(result)

    def _apply(self, result: Result[TransactionRecord, Outcome[Any]]) -> Any:
        """Treat a result as the runtime and the service do."""
        if result.records and self.fails:
            self.fails = False
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "the write failed")
        if result.records:
            batches = all_steps(
                encode_batches(
                    TRANSACTION_RECORDS,
                    result.records,
                    atomic=result.atomic,
                    max_batch_bytes=1 << 20,
                    now_ms=self.now_ms,
                )
            )
            self.log += batches
            for record in result.records:
                self.machine.replay(record, len(self.log))
        self.owed += result.response.ended
        if result.response.error:
            raise ApiError(result.response.error)
        return result.response.response

    def _state(self) -> list[str]:
        return [
            f"{transactional_id}: {each.state.label} producer {each.producer_id} epoch {each.producer_epoch}"
            + f" next {each.next_producer_id}:{each.next_producer_epoch}" * (each.next_producer_epoch >= 0)
            + (f" partitions {','.join(str(number) for _, number in sorted(each.partitions))}" * bool(each.partitions))
            for transactional_id, each in sorted(self.machine.ids.items())
        ]
