"""Batches committed on three brokers while those that a transaction hangs on are killed, one after another."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from odradek.coordinator.hashing import partition_for
from pyspark_odradek.topic_sink.transaction import TransactionalCommit
from tests.spark.test_transaction import PARTITIONS, cluster, discard_sessions, query, work
from tests.support.clients.confluent import admin, read_committed
from tests.support.models.exactly_once import STATE_PARTITIONS, copy_cluster
from tests.support.waiting import PATIENCE_S

__all__ = ["query"]

KILLS = 9
SIZE = 200


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_leaders_and_coordinators_are_killed_under_the_commits(query: str, tmp_path: Path) -> None:
    """Leaders of the topic, the transaction and the marker are killed in turn: each batch is there once, in order."""
    with copy_cluster(tmp_path, PARTITIONS) as brokers:
        roles = [("copy", 0)]
        roles += [
            (name, partition_for(query, STATE_PARTITIONS)) for name in ("__transaction_state", "__consumer_offsets")
        ]
        is_over = threading.Event()

        def kill_in_turn() -> None:
            for number in range(KILLS):
                topic, partition_id = roles[number % len(roles)]
                known = admin(brokers.bootstrap).list_topics(timeout=PATIENCE_S).topics[topic].partitions
                victim = brokers.cluster.brokers[max(0, known[partition_id].leader - 1)]
                victim.kill()
                time.sleep(1)
                victim.start()
            is_over.set()

        committing = TransactionalCommit(cluster(brokers.bootstrap), query)
        batch_id = 0
        committing.commit(work("copy", 0, "run", range(SIZE)))
        killing = threading.Thread(target=kill_in_turn)
        killing.start()
        try:
            while not is_over.is_set() and killing.is_alive():
                batch_id += 1
                if batch_id % 5 == 0:
                    discard_sessions()  # as another process of the run, which starts without any
                # False where only the answer was lost, and the next try finds the marker.
                committing.commit(work("copy", batch_id, "run", range(batch_id * SIZE, (batch_id + 1) * SIZE)))
        finally:
            killing.join()
        assert is_over.is_set()
        messages = read_committed(brokers.bootstrap, "copy", PARTITIONS)
        found = sorted(int(message.value() or b"") for message in messages)
        assert found == list(range((batch_id + 1) * SIZE)), f"{batch_id + 1} batches"
