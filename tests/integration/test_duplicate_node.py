"""A second process with the node id of one that serves: it says why it is refused, at once and when it gives up."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from odradek.common.real_io import RealDisk
from odradek.testing.layout import format_cluster
from odradek.testing.processes import NodeProcess
from tests.support.nodes.cluster import Cluster
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

REASON = "DUPLICATE_BROKER_REGISTRATION"


def test_a_node_id_that_is_in_use_is_named_at_once(tmp_path: Path) -> None:
    settings = {"initial.broker.registration.timeout.ms": 5_000}
    with Cluster(tmp_path / "cluster", brokers=1, controllers=1, settings=settings) as cluster:
        (original,) = cluster.brokers
        port, directory = free_port(), tmp_path / "second"
        own = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(directory / "data")}
        plan = replace(original.plan, port=port, directory=directory, properties={**original.plan.properties, **own})
        disk = RealDisk()
        format_cluster(disk, [*cluster.plans, plan], now_ms=time.time_ns() // 1_000_000)
        disk.close()
        second = NodeProcess(plan)
        second.launch()
        assert second.process is not None
        try:
            eventually(lambda: REASON in second.log_text())
            assert second.running, "the other may have died a moment ago: it is waited for"
            assert second.process.wait(90) != 0
        finally:
            if second.running:
                second.kill()
        text = second.log_text()
        assert "node.id=1" in second.last_words()
        assert "is the quorum up" not in text
        assert "Traceback" not in text
        assert text.count("registration refused; retrying") == 1
        assert original.serves()
