"""Writes with an output lease: the output of a batch and the covered input offsets, in one transaction.

It is the commit of `transaction.py` with the lease instead of the marker: a repeated batch is covered already. The
lease is read after InitProducerId. A later transfer fences this transactional id, so that no batch is committed after
it. A fenced writer initializes and reads the lease again. If another group has it, the batch waits until it is covered;
if the command died before the transfer, the writer continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from odradek.client.output_lease.lease import OutputLease, creation_id, lease_group, parse_lease, writer_id
from odradek.client.output_lease.offsets import lease_offsets
from pyspark_odradek.client.cluster import Cluster, RetriableError
from pyspark_odradek.client.offsets import Positions, TopicPartition
from pyspark_odradek.errors import FencedError, LeaseError, OptionError
from pyspark_odradek.standby.batches import Action, Span, action_for, as_covered
from pyspark_odradek.topic_sink.marker_topic import Marker
from pyspark_odradek.topic_sink.transaction import Session, TransactionalCommit, Work

log = logging.getLogger("pyspark_odradek")

WAIT_S = 0.05
FIRST_LOG_S = 1.0
LOG_EVERY_S = 30.0


@dataclass
class LeaseSession(Session):
    """The producer of a process for a run of a query that shares its output, with the last known lease."""

    lease: OutputLease | None = None


class LeasedCommit(TransactionalCommit):
    """Commits the batches of one query of a group, while the group has the lease. Not for several threads.

    Args:
        cluster: of the topics.
        name: of the lease.
        group: the query's group.
        span: the input of the batch.
    """

    session_kind: ClassVar[type[Session]] = LeaseSession

    def __init__(
        self, cluster: Cluster, name: str, group: str, span: Span, *, transaction_timeout_ms: int = 60_000
    ) -> None:
        super().__init__(cluster, writer_id(name, group), transaction_timeout_ms=transaction_timeout_ms)
        self.name = name
        self.group = group
        self.span = span
        self._current: LeaseSession | None = None
        self._next: OutputLease | None = None

    def commit(self, work: Work) -> bool:
        """Write the batch and move the lease; False where its input is covered already, by any group.

        It returns only when the batch is covered: if another group has the lease, it waits for that group.

        Raises:
            LeaseError: the lease was never created; or the batch does not begin where the output ends.
            OptionError: the batch has rows and reads nothing.
            FencedError, ClusterError, StagingError: as `TransactionalCommit.commit`.
        """
        if work.partitions and not self.span.moved():
            raise OptionError(
                "gate: a batch has rows without having read a record, as timers make them; a gate cannot tell who has "
                "written those. Write the output of this query without a gate"
            )
        session = self._session(work)
        assert isinstance(session, LeaseSession)
        self._current = session
        quiet_until = time.monotonic() + FIRST_LOG_S
        while True:
            action = self._action(session)
            if action is Action.SKIP:
                return False
            if action is Action.WRITE:
                with suppress(_TransferredError):
                    return self._write(session, work)
            if time.monotonic() >= quiet_until:
                holder = session.lease.group if session.lease is not None else ""
                log.warning("batch %s waits until group %s has covered what it read", work.batch_id, holder)
                quiet_until = time.monotonic() + LOG_EVERY_S
            time.sleep(WAIT_S)

    def mark(self, session: Session, work: Work, deadline: float) -> None:
        """Move the lease to the end of the batch, inside the transaction."""
        assert self._current is not None and self._current.lease is not None
        lease = self._current.lease
        covered = {**lease.covered, **as_covered(self.span.end)}
        self._next = lease._replace(run_id=work.run_id, covered=covered)
        self.commit_offsets(session, lease_group(self.name), lease_offsets(self._next), deadline)

    def read(self, *, stable: bool, partitions: Iterable[TopicPartition] | None = None) -> OutputLease | None:
        """The lease as it is, by all partitions or some; arguments and errors as for `Cluster.fetch_offsets`."""
        try:
            return parse_lease(self.cluster.fetch_offsets(lease_group(self.name), stable=stable, partitions=partitions))
        except ValueError as error:
            raise LeaseError(f"the group {lease_group(self.name)} is not a gate: {error}") from None

    def _action(self, session: LeaseSession) -> Action:
        """The action. Unless this group is fenced, its lease is at the position that this process committed last."""
        if session.is_settled and session.lease is not None and session.lease.group == self.group:
            return action_for(session.lease, self.group, self.span)
        lease = self.cluster.retrying("the gate", lambda: self.read(stable=False))
        if lease is None:  # the transaction that creates it has ended, and its offsets become visible in a moment
            lease = self.cluster.retrying("the gate", lambda: self.read(stable=True, partitions=self.span.end))
        if lease is None:
            raise LeaseError(
                f"the gate {self.name} was never made: the source makes it. Give the options gate and groupId to the "
                "source of this query, too; a query that ran without them needs a new checkpoint, or another gate"
            )
        session.lease = lease
        if self.span.is_covered(lease):
            return Action.SKIP
        # A transaction that is open at this moment may still move it: `_found` reads it again when none is.
        return Action.WRITE if lease.group == self.group else Action.WAIT

    def _write(self, session: LeaseSession, work: Work) -> bool:
        written = super().commit(work)
        if written:
            session.lease = self._next
        return written

    def _refuse_if_behind(self, session: Session, batch_id: int, plan: str) -> None:
        """Nothing to check: the covered offsets do not depend on the batch's number."""

    def _found(self, session: Session, batch_id: int, plan: str) -> Marker | None:
        lease = self.read(stable=True)
        if lease is None:
            raise LeaseError(f"the gate {self.name} is gone: its offsets were deleted or have expired")
        assert self._current is not None
        self._current.lease = lease
        action = action_for(lease, self.group, self.span)
        if action is Action.WAIT:
            raise _TransferredError
        return Marker(batch_id, lease.run_id) if action is Action.SKIP else None

    def _raise_fenced_or_timeout(self, session: Session) -> NoReturn:
        """A transfer fences the holder first, and may die then; or another run of the query writes."""
        before = self._current.lease if self._current is not None else None
        lease = self.read(stable=False)
        known = {session.run_id, before.run_id if before is not None else ""}
        if lease is not None and lease.group == self.group and lease.run_id not in known:
            raise FencedError(
                f"another run of this query writes for the group {self.group} of the gate {self.name}: two drivers "
                "run. This one has written nothing of this batch; stop one."
            )
        session.producer_id = session.producer_epoch = -1
        raise RetriableError("the writer was fenced: the gate was switched, or the transaction timed out")


class _TransferredError(Exception):
    """Another group has the lease."""


class _LeaseCreation(TransactionalCommit):
    """Creates a lease."""

    def create(self, name: str, wanted: OutputLease, run_id: str) -> OutputLease:
        """The lease as it is afterwards, created by us or by another query that was faster."""
        session = Session(run_id)
        deadline = time.monotonic() + self.cluster.settings.default_api_timeout_ms / 1000
        self.begin(session, deadline)
        found = parse_lease(self.cluster.fetch_offsets(lease_group(name), stable=True))
        if found is not None:
            return found
        self.commit_offsets(session, lease_group(name), lease_offsets(wanted), deadline)
        self.end(session, deadline)
        return wanted

    def _raise_fenced_or_timeout(self, session: Session) -> NoReturn:
        raise RetriableError("another query creates the gate")


def current_lease(cluster: Cluster, name: str) -> OutputLease | None:
    """The committed lease, without a transfer in progress."""
    group = lease_group(name)
    try:
        return cluster.retrying("the gate", lambda: parse_lease(cluster.fetch_offsets(group, stable=False)))
    except ValueError as error:
        raise LeaseError(f"the group {group} is not a gate: {error}") from None


def create_lease(cluster: Cluster, name: str, group: str, began: Positions) -> OutputLease:
    """Create a lease whose output begins at `began` and that `group` holds; one that exists stays as it is.

    Raises:
        ClusterError: the cluster refused, or did not respond in time.
    """
    wanted = OutputLease(group, 0, "", as_covered(began))
    creation = _LeaseCreation(cluster, creation_id(name))
    return cluster.retrying("whether the gate could be made", lambda: creation.create(name, wanted, ""))
