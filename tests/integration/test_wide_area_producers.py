"""Producers at one end of a bad line and three brokers at the other: all is stored, and by idempotence once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.clients.confluent import create_topic, read_all
from tests.support.clients.steady_producer import Steady
from tests.support.network.sites import Ends, Site, network
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import eventually

SETTINGS = {"min.insync.replicas": 2, "offsets.topic.num.partitions": 1}
# A request without an answer is sent again on another connection.
IMPATIENT = {"socket.timeout.ms": 4000, "request.timeout.ms": 3000, "socket.connection.setup.timeout.ms": 3000}
TOPICS = ("idempotent", "plain")


@pytest.mark.slow
def test_producers_across_a_line_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    with network() as net:
        site, far = net.site("brokers", nodes=3), net.site("producers")
        line = net.line(site, far, delay_s=0.05, loss=0.05, seed=11)
        with Cluster(tmp_path, brokers=3, settings=SETTINGS, hosts=site.launchers) as cluster:
            near = cluster.bootstrap_servers
            for topic in TOPICS:
                create_topic(near, topic, copies=3)
            with far.entered():
                exact = Steady(near, TOPICS[0], 0, {**IMPATIENT, "enable.idempotence": True})
                plain = Steady(near, TOPICS[1], 0, IMPATIENT)
            with exact, plain:
                for sender in (site, far, None):
                    counts = [len(each.acknowledged) for each in (exact, plain)]
                    eventually(lambda counts=counts: are_ahead(counts, exact, plain))
                    line.cut(sender)
                    waiting = eventually(lambda: unanswered(far))
                    eventually(lambda waiting=waiting: not waiting & far.connections(), "both producers give up")
                    line.heal()
            assert (exact.errors, plain.errors) == ([], [])
            assert line.crossed(far).lost > 0 and line.crossed(far).cut > 0
            stored = {topic: [each.value() for each in read_all(near, topic)] for topic in TOPICS}
    # Each is acknowledged, as all have ended without an error: so the numbers have no gap.
    assert stored[TOPICS[0]] == [b"%08d" % number for number in range(len(exact.acknowledged))]
    found = Counter(stored[TOPICS[1]])
    assert set(found) == {b"%08d" % number for number in range(len(plain.acknowledged))}
    assert found.total() > len(found), "without idempotence, what is sent again is there twice"


def unanswered(far: Site) -> set[Ends]:
    """Two connections or more whose packets are not acknowledged; none if there are fewer."""
    found = {ends for ends, (unacknowledged, _) in far.queues().items() if unacknowledged}
    return found if len(found) >= len(TOPICS) else set()


def are_ahead(counts: list[int], *writers: Steady) -> bool:
    """Whether each has had 50 acknowledgements more."""
    return all(len(each.acknowledged) > count + 50 for each, count in zip(writers, counts, strict=True))
