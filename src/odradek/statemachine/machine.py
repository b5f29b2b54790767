"""The interface of replicated state machines: operations decide, the log stores records, `replay` changes the state.

A machine's operations are plain functions that read its state and return a `Result`: the records to append and the
response that is sent once they are committed. They change nothing. A long operation is a generator: it yields where
other tasks may run, and returns its `Result`. Only `replay` changes the state, for new records and for those that are
read at a start, so both lead to the same state. The runtime (`runtime.py`) appends the records, replays them,
and parks the response until they are committed. Source: Kafka CoordinatorShard, CoordinatorResult.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Result(Generic[RecordT, ResponseT]):
    """The result of an operation.

    Attributes:
        records: to append, in order; empty for a read or a refusal.
        response: returned to the caller once the records, and everything before them, are committed.
        atomic: all records go into one batch, so that after a crash either all or none are there.
    """

    records: Sequence[RecordT]
    response: ResponseT
    atomic: bool = field(default=True, kw_only=True)


Steps: TypeAlias = Generator[None, None, Result[RecordT, ResponseT]]


class StateMachine(Protocol[RecordT_contra]):
    """State that is a function of a log."""

    def replay(self, record: RecordT_contra, offset: int) -> None:
        """Apply one record; `offset` is its place in the log. Never raises for a record that an operation returned."""
        ...

    def on_loaded(self) -> None:
        """All committed records have been replayed and this machine now leads: timers may be armed."""
        ...

    def on_unloaded(self) -> None:
        """This machine no longer leads: forget every parked response and timer."""
        ...
