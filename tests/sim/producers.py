"""The world in which producers outlive the brokers: logs get their state from snapshots, truncations and copies.

Three brokers hold a topic of transactional writers and one of idempotent producers. Segments roll several times a
second, so that each start begins at another snapshot; retention deletes all but the last of the second topic's
segments, so that a snapshot alone has the state of a producer that has gone. Brokers die, stop, lose power and disks,
and truncate records that no leader has. At every moment, on every replica, the log's own batches are compared with the
broker's state (`producer_scan`): the producers, the last stable offset, the index of aborted transactions.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from tests.sim.clients import Producer, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.copiers import FollowingReader
from tests.sim.one_node import Admin
from tests.sim.transactional import SETTINGS, TransactionalNode

DROPPED = "dropped"
ROLLS = {"segment.ms": "300", "file.delete.delay.ms": "100"}
# A few segments' worth: producers that were silent since are known by a snapshot alone.
KEPT_BYTES = "6000"


class ProducersCluster(TransactionalNode, ManyNodes):
    """One run."""

    world_name = "producers"
    salt = 0x9D0C
    copies = ManyNodes.copies
    settings: ClassVar[dict[str, str]] = {
        **SETTINGS,
        "log.retention.check.interval.ms": "700",
        "log.flush.offset.checkpoint.interval.ms": "500",
    }
    reader_kind = FollowingReader

    add_machines = ManyNodes.add_machines
    converge = ManyNodes.converge
    unfinished = ManyNodes.unfinished
    check_logs = ManyNodes.check_logs

    def topic_configs(self) -> dict[str, str]:
        return ROLLS

    async def more_writers(self, admin: Admin, configs: dict[str, str]) -> list[Any]:
        """Two idempotent producers, whose topic has a short retention; no check looks for its records."""
        await admin.create_surely(DROPPED, 1, {**configs, "retention.bytes": KEPT_BYTES})
        values = itertools.count(1_000_000)
        return [
            Producer(
                self.world,
                f"silent-{number}",
                number,
                Recorder(),
                partitions=[(DROPPED, 0)],
                idempotent=True,
                values=values,
                acks=(-1,),
            )
            for number in (11, 12)
        ]
