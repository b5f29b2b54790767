"""The output lease in the source: the end of reading, and the reports of a query.

A standby reports its position in a group of its own before it plans a batch. Its later batches end at the end of the
output, so that `odradek groups switch` can transfer the lease to it. The holder reports itself before it plans its
first batch beyond the output.
"""

from __future__ import annotations

import logging
import time

from odradek.client.output_lease.lease import (
    ACTIVE,
    STANDBY,
    OutputLease,
    first_ahead,
    lag,
    lease_group,
    parse_lease,
    progress_group,
)
from pyspark_odradek.client.cluster import Cluster, RetriableError
from pyspark_odradek.client.offsets import Positions, TopicPartition
from pyspark_odradek.errors import LeaseError
from pyspark_odradek.options import ReadOptions
from pyspark_odradek.standby.batches import as_covered
from pyspark_odradek.standby.commit import create_lease, current_lease

log = logging.getLogger("pyspark_odradek")

CERTAIN_S = 2.0


class LeasedSource:
    """The end of one query's reads. Picklable.

    Args:
        options: with a gate and a group; `standby` leaves the creation of a missing lease to another group.
    """

    def __init__(self, options: ReadOptions) -> None:
        assert options.gate is not None and options.group_id is not None
        self.name = options.gate
        self.group = options.group_id
        self._options = options
        self._reported: tuple[str, Positions] | None = None

    @property
    def is_standby(self) -> bool:
        """Whether the query was a standby when it last read the lease."""
        return self._reported is None or self._reported[0] == STANDBY

    def limit(self, cluster: Cluster, began: Positions) -> Positions | None:
        """Up to where a batch from `began` may read (exclusive); None: as far as there is something.

        Raises:
            LeaseError: this query has the lease, and it begins behind where the output ends.
            ClusterError: the cluster refused, or did not answer in time.
        """
        lease = self._wanted(current_lease(cluster, self.name))
        if lease is None and not self._options.standby and began:
            lease = create_lease(cluster, self.name, self.group, began)
        if lease is None:  # nothing is covered yet: a standby waits for the query that creates the lease
            self._report(cluster, STANDBY, began)
            return {}
        if lease.group != self.group:
            self._report(cluster, STANDBY, began)
            return _positions(lease)
        if self._reported is None:  # the first batch of this run
            self._refuse_a_gap(cluster, lease, began)
        if self._reported is None or self._reported[0] != ACTIVE:
            self._report(cluster, ACTIVE, began)
        # A holder that restarts with older state first reads the covered input, and ends a batch there.
        return _positions(lease) if lag(as_covered(began), lease.covered) else None

    def _wanted(self, lease: OutputLease | None) -> OutputLease | None:
        """Without partitions that the query used to read: their positions stay as they are."""
        if lease is None:
            return None
        wants = self._options.wants
        return lease._replace(covered={key: offset for key, offset in lease.covered.items() if wants(*key)})

    def _report(self, cluster: Cluster, state: str, began: Positions) -> None:
        if began and self._reported != (state, began):
            if self._reported is None or self._reported[0] != state:
                log.warning("group %s %s the gate %s", self.group, _SAYS[state], self.name)
            cluster.commit(progress_group(self.name, self.group), began, state)
            self._reported = (state, dict(began))

    def _refuse_a_gap(self, cluster: Cluster, lease: OutputLease, began: Positions) -> None:
        """Raise LeaseError if the query begins behind the end of the output that it is to continue.

        A read may miss offsets that were just committed, so it is repeated until all transactions have ended, or for
        CERTAIN_S.
        """
        deadline = time.monotonic() + CERTAIN_S
        position = as_covered(began)
        while first_ahead(position, lease.covered) is not None:
            try:
                certain = parse_lease(cluster.fetch_offsets(lease_group(self.name), stable=True))
            except (OSError, RetriableError):
                certain = None
            beyond = None if certain is None else first_ahead(position, certain.covered)
            if certain is not None and beyond is not None and certain.group == self.group:
                raise LeaseError(
                    f"the output goes up to offset {certain.covered[beyond]} of {beyond[0]}-{beyond[1]}, and this "
                    f"query would go on from {position[beyond]}: what lies between would be left out. Start it with a "
                    "new checkpoint and startingOffsets=earliest; but where its writer has no option gate, nothing has "
                    "moved the gate: give it there, with sink=topic, or remove it from the source"
                )
            if certain is not None or time.monotonic() > deadline:
                return
            time.sleep(0.05)


def _positions(lease: OutputLease) -> Positions:
    return {TopicPartition(*partition): offset for partition, offset in lease.covered.items()}


_SAYS = {STANDBY: "stands by at", ACTIVE: "writes through"}
