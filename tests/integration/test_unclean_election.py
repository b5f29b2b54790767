"""`odradek partitions elect --unclean`: where the only replica in sync is lost, one that lacks records leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clients.cli import asked_on_terminal, odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.cluster import Cluster, await_in_sync, topic_at
from tests.support.waiting import eventually


def values(bootstrap: str) -> list[bytes]:
    return [message.value() or b"" for message in read_all(bootstrap, "orders")]


@pytest.mark.slow
def test_an_unclean_election_makes_the_replica_that_is_left_the_leader(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=2, controllers=1) as cluster:
        left, lost = cluster.brokers
        odradek(left.bootstrap, "topics", "create", "orders", "--replica-assignment", "2:1")
        await_in_sync(cluster.brokers, "orders", partitions=1, copies=2)
        produce_all(left.bootstrap, "orders", [(None, b"both have it")], acks="all")
        left.kill()
        eventually(lambda: topic_at(lost, "orders").partitions[0].isr_nodes == [2])
        produce_all(lost.bootstrap, "orders", [(None, b"one has it")], acks="all")
        lost.kill()
        left.start()

        def without_leader() -> list[str]:
            shown = odradek(left.bootstrap, "topics", "describe", "--unavailable-partitions", "--json").json
            return [each["topic"] for each in shown]

        eventually(lambda: without_leader() == ["orders"])
        elect = ("partitions", "elect", "--partition", "orders-0")
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in odradek(left.bootstrap, *elect, code=None).err
        assert without_leader() == ["orders"]
        shown, code = asked_on_terminal(left.bootstrap, *elect, "--unclean", typed="y\n")
        assert code == 0 and "Records may be lost" in shown and "orders-0 has a new leader" in shown
        eventually(lambda: topic_at(left, "orders").partitions[0].leader_id == 1)
        assert values(left.bootstrap) == [b"both have it"]
        lost.start()
        await_in_sync(cluster.brokers, "orders", partitions=1, copies=2)
        assert values(lost.bootstrap) == [b"both have it"], "it truncates what the leader lacks"
