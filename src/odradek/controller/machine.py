"""The controller's state machine: its state, its operations, and the start of a leadership.

`replay` changes `state`; the operations only read it. The first records of a new cluster are those of
`bootstrap.checkpoint` (the arguments of `storage format`), or the default feature levels without that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.controller.acls import Acls
from odradek.controller.brokers import Brokers
from odradek.controller.config import ControllerConfig
from odradek.controller.configs import Configs, ConfigSchema
from odradek.controller.directories import Directories
from odradek.controller.features import Features
from odradek.controller.leaders import Leaders
from odradek.controller.partitions import Partitions
from odradek.controller.reassignments import Reassignments
from odradek.controller.state import ControllerState
from odradek.controller.topics import Topics
from odradek.metadata.features import DEFAULT_METADATA_VERSION, ELR_VERSION, METADATA_VERSION, default_levels
from odradek.protocol.messages.abort_transaction_record import AbortTransactionRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline

if TYPE_CHECKING:
    from random import Random


class ControllerMachine:
    """State and operations of the active controller."""

    def __init__(
        self,
        timeline: Timeline,
        config: ControllerConfig,
        schema: ConfigSchema,
        random: Random,
        *,
        cluster_id: str,
        bootstrap: Sequence[Any] = (),
    ) -> None:
        """
        Args:
            random: for the placement of replicas and for topic ids.
            bootstrap: records of `bootstrap.checkpoint`, written when the log is empty.
        """
        self.state = ControllerState(timeline)
        self.configs = Configs(self.state, schema)
        self.features = Features(self.state, self.configs)
        self.partitions = Partitions(self.state, config)
        self.reassignments = Reassignments(self.state, self.partitions)
        self.leaders = Leaders(self.state, self.partitions)
        self.topics = Topics(self.state, self.configs, config, random)
        self.brokers = Brokers(self.state, self.partitions, config, cluster_id)
        self.directories = Directories(self.state, self.brokers, self.partitions)
        self.acls = Acls(self.state, random)
        self._bootstrap = tuple(bootstrap)

    def replay(self, record: Any, offset: int) -> None:
        """Apply one record; see `ControllerState.replay`."""
        self.state.replay(record, offset)

    def on_loaded(self) -> None:
        """Does nothing: the service starts sessions and timers, because they need a clock."""

    def on_unloaded(self) -> None:
        """Clear the brokers' sessions."""
        self.brokers.sessions.clear()

    def activate(self, now_ms: int) -> Result[Any, None]:
        """The first operation of a leadership: records of a new cluster, or the rest of an interrupted operation."""
        self.brokers.begin_sessions(now_ms)
        if self.state.record_count.value == 0:
            return Result(self._first_records(), None)
        records: list[Any] = []
        if self.state.transaction_open:
            records.append(AbortTransactionRecord(reason="the controller that began it is gone"))
        if METADATA_VERSION not in self.state.features:
            records.append(FeatureLevelRecord(name=METADATA_VERSION, feature_level=DEFAULT_METADATA_VERSION))
        # An interrupted leadership may have changed unclean.leader.election.enable without the elections that
        # follow.
        records.extend(self.partitions.elect_offline_partitions().records)
        return Result(records, None, atomic=False)

    def _first_records(self) -> list[Any]:
        records = list(self._bootstrap)
        levels = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
        if METADATA_VERSION not in levels:
            levels = default_levels(DEFAULT_METADATA_VERSION)
            records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()] + records
        if levels.get(ELR_VERSION, 0) > 0:
            records.extend(self.configs.safety_records())
        return records
