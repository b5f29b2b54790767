"""Writing through a gate: the output of a batch and how far the input is covered by it, in one transaction.

It is the commit of `transaction.py` with the gate in the place of the marker: a batch that is run again finds itself
covered. The turn is looked at after InitProducerId: from there on turning the gate fences this transactional id,
so that no batch ends behind the turn. A writer that finds itself fenced starts again and looks again: the turn
may be another group's, then its batch waits to be covered; or a command died before it turned the gate, then it goes
on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from odradek.common.gates import Gate, claim_id, gate_group, read_gate, writer_id
from odradek.protocol.gate_offsets import gate_offsets
from pyspark_odradek.cluster import Cluster, PassingError
from pyspark_odradek.errors import FencedError, GateError, OptionError
from pyspark_odradek.gate import Span, Verdict, as_covered, judge
from pyspark_odradek.offsets import Positions, TopicPartition
from pyspark_odradek.transaction import Session, TransactionalCommit, Work

log = logging.getLogger("pyspark_odradek")

WAIT_S = 0.05
LOG_EVERY_S = 30.0


@dataclass
class GatedSession(Session):
    """What a process holds for a run of a query that writes through a gate: how that was when it looked last."""

    gate: Gate | None = None


class GatedCommit(TransactionalCommit):
    """Commits the batches of one query of a group, while it is the group's turn. Not for several threads.

    Args:
        cluster: where the topics are.
        gate: its name.
        group: the query's group.
        span: what the batch reads.
    """

    session_kind: ClassVar[type[Session]] = GatedSession

    def __init__(
        self, cluster: Cluster, gate: str, group: str, span: Span, *, transaction_timeout_ms: int = 60_000
    ) -> None:
        super().__init__(cluster, writer_id(gate, group), transaction_timeout_ms=transaction_timeout_ms)
        self.gate = gate
        self.group = group
        self.span = span
        self._current: GatedSession | None = None
        self._next: Gate | None = None

    def commit(self, work: Work) -> bool:
        """Write the batch and move the gate; False where the input of it is covered, by whomever.

        It returns only when the batch is covered: where it is another group's turn it waits for that group.

        Raises:
            GateError: the gate was never made; or the batch does not begin where the output ends.
            OptionError: the batch has rows and reads nothing.
            FencedError, ClusterError, StagingError: as `TransactionalCommit.commit`.
        """
        if work.partitions and not self.span.moved():
            raise OptionError(
                "gate: a batch has rows without having read a record, as timers make them; a gate cannot tell who has "
                "written those. Write the output of this query without a gate"
            )
        session = self._session(work)
        assert isinstance(session, GatedSession)
        self._current = session
        logged_at = time.monotonic() - LOG_EVERY_S + 1
        while True:
            verdict = self._verdict(session)
            if verdict is Verdict.SKIP:
                return False
            if verdict is Verdict.WRITE:
                try:
                    return self._written(session, work)
                except _TurnedError:
                    session.is_settled = False
                    continue
            if time.monotonic() - logged_at > LOG_EVERY_S:
                holder = session.gate.group if session.gate is not None else ""
                log.warning("batch %s waits until group %s has covered what it read", work.batch_id, holder)
                logged_at = time.monotonic()
            time.sleep(WAIT_S)

    def mark(self, session: Session, work: Work, deadline: float) -> None:
        """Move the gate to the end of the batch, inside the transaction."""
        assert self._current is not None and self._current.gate is not None
        gate = self._current.gate
        covered = {**gate.covered, **as_covered(self.span.end)}
        self._next = gate._replace(run_id=work.run_id, covered=covered)
        self.commit_offsets(session, gate_group(self.gate), gate_offsets(self._next), deadline)

    def read(self, *, stable: bool, partitions: Iterable[TopicPartition] | None = None) -> Gate | None:
        """The gate as it is, by all partitions or some; arguments and PassingError as for `Cluster.fetch_offsets`."""
        try:
            return read_gate(self.cluster.fetch_offsets(gate_group(self.gate), stable=stable, partitions=partitions))
        except ValueError as error:
            raise GateError(f"the group {gate_group(self.gate)} is no gate: {error}") from None

    def _verdict(self, session: GatedSession) -> Verdict:
        """What is to be done; while it is our turn and we are not fenced the gate is where this process put it."""
        if session.is_settled and session.gate is not None and session.gate.group == self.group:
            return judge(session.gate, self.group, self.span)
        gate = self.cluster.asking("the gate", lambda: self.read(stable=False))
        if gate is None:  # the transaction that makes it has ended, and its offsets are on their way for a moment
            gate = self.cluster.asking("the gate", lambda: self.read(stable=True, partitions=self.span.end))
        if gate is None:
            raise GateError(
                f"the gate {self.gate} was never made: the source makes it. Give the options gate and groupId to the "
                "source of this query, too; a query that ran without them needs a new checkpoint, or another gate"
            )
        session.gate = gate
        if self.span.is_covered(gate):
            return Verdict.SKIP
        # What is open at this moment may still move the gate: `_is_there` looks again when nothing is.
        return Verdict.WRITE if gate.group == self.group else Verdict.WAIT

    def _written(self, session: GatedSession, work: Work) -> bool:
        written = super().commit(work)
        if written:
            session.gate = self._next
        return written

    def _refuse_if_behind(self, batch_id: int, plan: str) -> None:
        """Nothing: what a gate covers is no matter of the batch's number."""

    def _is_there(self, batch_id: int, plan: str) -> bool:
        gate = self.read(stable=True)
        if gate is None:
            raise GateError(f"the gate {self.gate} is gone: its offsets were deleted or have expired")
        assert self._current is not None
        self._current.gate = gate
        verdict = judge(gate, self.group, self.span)
        if verdict is Verdict.WAIT:
            raise _TurnedError
        return verdict is Verdict.SKIP

    def _tell_fence_from_timeout(self, session: Session) -> NoReturn:
        """Who turns the gate shuts its writer out first, and may die then; another run of the query writes."""
        before = self._current.gate if self._current is not None else None
        gate = self.read(stable=False)
        known = {session.run_id, before.run_id if before is not None else ""}
        if gate is not None and gate.group == self.group and gate.run_id not in known:
            raise FencedError(
                f"another run of this query writes for the group {self.group} of the gate {self.gate}: two drivers "
                "run. This one has written nothing of this batch; stop one."
            )
        session.producer_id = session.producer_epoch = -1
        raise PassingError("the writer was fenced: the gate was turned, or the transaction timed out")


class _TurnedError(Exception):
    """It is another group's turn."""


class _Claim(TransactionalCommit):
    """Makes a gate."""

    def make(self, gate: str, wished: Gate, run_id: str) -> Gate:
        """The gate as it is afterwards, made by us or by another query that was faster."""
        session = Session(run_id)
        deadline = time.monotonic() + self.cluster.settings.default_api_timeout_ms / 1000
        self.begin(session, deadline)
        found = read_gate(self.cluster.fetch_offsets(gate_group(gate), stable=True))
        if found is not None:
            return found
        self.commit_offsets(session, gate_group(gate), gate_offsets(wished), deadline)
        self.end(session, deadline)
        return wished

    def _tell_fence_from_timeout(self, session: Session) -> NoReturn:
        raise PassingError("another query makes the gate")


def look_at(cluster: Cluster, gate: str) -> Gate | None:
    """The gate as it was last known for certain; a turn that happens at this moment may not be in it yet."""
    group = gate_group(gate)
    try:
        return cluster.asking("the gate", lambda: read_gate(cluster.fetch_offsets(group, stable=False)))
    except ValueError as error:
        raise GateError(f"the group {group} is no gate: {error}") from None


def claim(cluster: Cluster, gate: str, group: str, began: Positions) -> Gate:
    """Make a gate whose output begins at `began`, and is written by `group`; what is there already stays.

    Raises:
        ClusterError: the cluster refused, or did not answer in time.
    """
    wished = Gate(group, 0, "", as_covered(began))
    claiming = _Claim(cluster, claim_id(gate))
    return cluster.asking("whether the gate could be made", lambda: claiming.make(gate, wished, ""))
