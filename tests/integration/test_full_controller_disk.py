"""The active controller's disk is full, in a cluster of three: another one leads, and the cluster works on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.support.clients.confluent import create_topic, read_all
from tests.support.clients.steady_producer import Steady
from tests.support.nodes.cluster import await_in_sync, small_disks, topic_at
from tests.support.waiting import PATIENCE_S, eventually

MIB = 1 << 20
SETTINGS = {"min.insync.replicas": 2}


def test_the_cluster_works_on_while_the_controllers_disk_is_full(tmp_path: Path) -> None:
    with small_disks(tmp_path, 16 * MIB, SETTINGS) as (cluster, ballasts):
        create_topic(cluster.bootstrap_servers, "orders", partitions=3, copies=3)
        await_in_sync(cluster.brokers, "orders", partitions=3, copies=3)
        full = cluster.await_controller()
        partitions = topic_at(cluster[full], "orders").partitions
        elsewhere = next(each.partition_index for each in partitions if each.leader_id != full)
        with Steady(cluster.bootstrap_servers, "orders", elsewhere) as writer:
            eventually(lambda: len(writer.acknowledged) > 20)
            ballasts[full].fill()
            began_s = time.monotonic()
            # A little may fit yet, into the last page of a file.
            created: list[Any] = []
            while cluster.active_controller() in (-1, full):
                created.append(f"while-full-{len(created)}")
                create_topic(cluster.bootstrap_servers, created[-1], partitions=5, copies=3)
            print(
                f"{len(created)} topics were created until another controller led: {time.monotonic() - began_s:.2f} s"
            )
            # Writes that wait for the full broker are acknowledged once it is out of the ISR; that takes a controller.
            other = next(node for node in cluster.brokers if node.node_id != full)
            eventually(lambda: full not in topic_at(other, "orders").partitions[elsewhere].isr_nodes)
            eventually(lambda: writer.count_since(began_s) > 100)
            gap_s = writer.longest_gap_s(began_s)
            print(f"the longest time without an acknowledgement: {gap_s:.2f} s")
            assert gap_s < PATIENCE_S
            create_topic(cluster.bootstrap_servers, "last", partitions=5, copies=3)
            assert cluster[full].running
            ballasts[full].release()
            await_in_sync(cluster.brokers, "orders", partitions=3, copies=3)
            for topic in (*created, "last"):
                await_in_sync(cluster.brokers, topic, partitions=5, copies=3)
        assert not writer.errors
        values = {value for value, _ in writer.acknowledged}
        assert values <= {message.value() for message in read_all(cluster.bootstrap_servers, "orders", 3)}
        text = cluster[full].log_text()
    assert text.count("no space for the metadata log") == 1
    assert "Traceback" not in text
