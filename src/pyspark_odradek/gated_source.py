"""The gate as the source sees it: how far a query may read, and what it reports.

A query that stands by says so, with its position, in a group of its own before it plans a batch: from then on all that
it plans ends where the output ends, so `odradek groups switch` may turn the gate to it. One that writes says that
before it plans its first batch beyond.
"""

from __future__ import annotations

import logging
import time

from odradek.common.gates import ACTIVE, STANDBY, Gate, ahead, gate_group, lag, progress_group, read_gate
from pyspark_odradek.cluster import Cluster, PassingError
from pyspark_odradek.errors import GateError
from pyspark_odradek.gate import as_covered
from pyspark_odradek.gated_commit import claim, look_at
from pyspark_odradek.offsets import Positions, TopicPartition
from pyspark_odradek.options import ReadOptions

log = logging.getLogger("pyspark_odradek")

CERTAIN_S = 2.0


class SourceGate:
    """How far one query reads. Picklable.

    Args:
        options: with a gate and a group; `standby` leaves the creation of a missing gate to another group.
    """

    def __init__(self, options: ReadOptions) -> None:
        assert options.gate is not None and options.group_id is not None
        self.name = options.gate
        self.group = options.group_id
        self._options = options
        self._told: tuple[str, Positions] | None = None

    @property
    def stands_by(self) -> bool:
        """Whether the query stood by at the last look."""
        return self._told is None or self._told[0] == STANDBY

    def limit(self, cluster: Cluster, began: Positions) -> Positions | None:
        """Up to where a batch from `began` may read (exclusive); None: as far as there is something.

        Raises:
            GateError: it is this query's turn, and it begins behind where the output ends.
            ClusterError: the cluster refused, or did not answer in time.
        """
        gate = self._wanted(look_at(cluster, self.name))
        if gate is None and not self._options.standby and began:
            gate = claim(cluster, self.name, self.group, began)
        if gate is None:
            self._tell(cluster, STANDBY, began)
            return {}
        if gate.group == self.group and self._told is None:
            self._refuse_a_gap(cluster, gate, began)
        if gate.group != self.group:
            self._tell(cluster, STANDBY, began)
        elif self._told is None or self._told[0] != ACTIVE:
            self._tell(cluster, ACTIVE, began)
        if gate.group != self.group or lag(as_covered(began), gate.covered):
            return {TopicPartition(*partition): offset for partition, offset in gate.covered.items()}
        return None

    def _wanted(self, gate: Gate | None) -> Gate | None:
        """Without partitions that the query used to read: their positions stay as they are."""
        if gate is None:
            return None
        wants = self._options.wants
        return gate._replace(covered={key: offset for key, offset in gate.covered.items() if wants(*key)})

    def _tell(self, cluster: Cluster, state: str, began: Positions) -> None:
        if began and self._told != (state, began):
            if self._told is None or self._told[0] != state:
                log.warning("group %s %s the gate %s", self.group, _SAYS[state], self.name)
            cluster.commit(progress_group(self.name, self.group), began, state)
            self._told = (state, dict(began))

    def _refuse_a_gap(self, cluster: Cluster, gate: Gate, began: Positions) -> None:
        """What was committed a moment ago may not be in what is known for certain: look until it is, or for a while."""
        deadline = time.monotonic() + CERTAIN_S
        position = as_covered(began)
        while ahead(position, gate.covered) is not None:
            try:
                certain = read_gate(cluster.fetch_offsets(gate_group(self.name), stable=True))
            except (OSError, PassingError):
                certain = None
            beyond = None if certain is None else ahead(position, certain.covered)
            if certain is not None and beyond is not None and certain.group == self.group:
                raise GateError(
                    f"the output goes up to offset {certain.covered[beyond]} of {beyond[0]}-{beyond[1]}, and this "
                    f"query would go on from {position[beyond]}: what lies between would be left out. Start it with a "
                    "new checkpoint and startingOffsets=earliest; but where its writer has no option gate, nothing has "
                    "moved the gate: give it there, with sink=topic, or remove it from the source"
                )
            if certain is not None or time.monotonic() > deadline:
                return
            time.sleep(0.05)


_SAYS = {STANDBY: "stands by at", ACTIVE: "writes through"}
