"""Links over lines between network namespaces: real TCP with delay, lost packets, cuts, and half-open connections."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import commit_alone, create_topic, produce_all, read_all
from tests.support.clients.links import TOPIC, describe, log_of, mirror_to, records, rows_of
from tests.support.clients.steady_producer import Steady
from tests.support.network.sites import Ends, Network, network
from tests.support.network.watching import Watching
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import PATIENCE_S, eventually

LOCAL = "local"
GROUP = "billing"
# One file for each log, whenever it was written; and connections that are idle for long end while a test waits.
SETTINGS = {
    "log.retention.check.interval.ms": 600_000,
    "connections.max.idle.ms": 30_000,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
GROUPS_FOLLOW = {
    "consumer.offset.sync.enable": "true",
    "consumer.offset.sync.ms": "1000",
    "consumer.offset.group.filters": json.dumps({"groupFilters": [{"name": GROUP}]}),
}


class Joined:
    """A source and the cluster with the link `west` to it, at the ends of a line."""

    def __init__(self, net: Network, folder: Path, **attributes: float) -> None:
        self.west, self.east = net.site("west"), net.site("east")
        self.line = net.line(self.west, self.east, **attributes)
        self.clusters = {
            site.name: Cluster(folder / site.name, brokers=1, settings=SETTINGS, hosts=site.launchers)
            for site in (self.west, self.east)
        }
        self.source, self.here = (self.clusters[name][1] for name in ("west", "east"))

    def await_equal(self) -> None:
        """Wait until the mirror has the bytes of the source."""

        def logs() -> list[bytes]:
            return [log_of(node.plan.data_dir) for node in (self.source, self.here)]

        eventually(lambda: logs()[0] == logs()[1] != b"", lambda: f"{[len(each) for each in logs()]} bytes")

    def why(self) -> str:
        """The reason why the link does not reach its source; empty if it does."""
        return str(describe(self.here.bootstrap)["why"])


@contextmanager
def joined(folder: Path, **attributes: float) -> Iterator[Joined]:
    """Both clusters run, and the source has TOPIC."""
    with network() as net:
        made = Joined(net, folder, **attributes)
        with made.clusters["west"], made.clusters["east"]:
            create_topic(made.source.bootstrap, TOPIC)
            settings = [word for key, text in GROUPS_FOLLOW.items() for word in ("--set", f"{key}={text}")]
            odradek(made.here.bootstrap, "links", "create", "west", "--source", made.source.bootstrap, *settings)
            yield made


def committed(node: NodeProcess) -> int:
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": GROUP})
    try:
        return int(reader.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)[0].offset)
    finally:
        reader.close()


@pytest.mark.parametrize(
    "until_connections_die", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_a_mirror_equals_its_source_after_losses_and_a_cut(tmp_path: Path, until_connections_die: bool) -> None:
    # By this seed some of the first thirty packets of either side are lost.
    with joined(tmp_path, delay_s=0.1, loss=0.03, seed=1) as at:
        line, source, here = at.line, at.source, at.here
        create_topic(here.bootstrap, LOCAL)
        mirror_to(here.bootstrap, 0)
        with (
            Watching(here.bootstrap, [TOPIC, LOCAL]) as reader,
            Steady(here.bootstrap, LOCAL, 0) as local,
            Steady(source.bootstrap, TOPIC, 0) as writer,
        ):
            eventually(lambda: reader.count(TOPIC) > 50)
            commit_alone(source.bootstrap, GROUP, {(TOPIC, 0): 10})
            eventually(lambda: committed(here) == 10, "offsets of groups follow")
            before = line.connections()
            line.cut()
            written, read_here = len(writer.acknowledged), reader.count(LOCAL)
            commit_alone(source.bootstrap, GROUP, {(TOPIC, 0): written})
            if until_connections_die:
                eventually(lambda: at.why() == "unreachable")
                eventually(lambda: not before & line.connections(), "both ends have given up")
            eventually(lambda: len(writer.acknowledged) > written + 100)
            eventually(lambda: reader.count(LOCAL) > read_here + 100, "what is at this site goes on")
            line.heal()
            eventually(lambda: reader.count(TOPIC) > written + 100, "the mirror goes on")
        at.await_equal()
        eventually(lambda: committed(here) == written, "offsets of groups follow again")
        eventually(lambda: not line.half_open(), line.half_open)
        eventually(lambda: at.why() == "" == rows_of(here.bootstrap, TOPIC)[0]["why"])
        copied = [(each.offset(), each.value()) for each in read_all(here.bootstrap, TOPIC)]
        for site in (at.west, at.east):
            crossed = line.crossed(site)
            assert crossed.lost > 0 and crossed.cut > 0
    assert copied == list(enumerate(value for value, _ in writer.acknowledged))
    assert (writer.errors, local.errors, reader.troubles) == ([], [], [])
    for topic in (TOPIC, LOCAL):
        assert reader.read[topic, 0] == list(enumerate(value for _, value in reader.read[topic, 0]))


def await_mirrored(at: Joined, prefix: str) -> None:
    """Write 50 records to the source, and wait until the mirror has them, and no connection is half-open."""
    produce_all(at.source.bootstrap, TOPIC, records(prefix, 50))
    at.await_equal()
    eventually(lambda: not at.line.half_open(), at.line.half_open)
    eventually(lambda: at.why() == "", at.why)


@pytest.mark.slow
@pytest.mark.parametrize("sender", ["west", "east"])
def test_connections_that_one_side_has_given_up_end_at_the_other(tmp_path: Path, sender: str) -> None:
    """Packets of one side are lost: the other one hears that a connection ends, or ends it by itself."""
    with joined(tmp_path, delay_s=0.1, loss=0.01, seed=3) as at:
        # Its kernel soon forgets connections that the broker has closed, so that the source never hears of it.
        at.east.set_tcp("orphan_retries", 1)
        mirror_to(at.here.bootstrap, 0)
        await_mirrored(at, "a")
        before = at.line.connections()
        at.line.cut(at.west if sender == "west" else at.east)
        produce_all(at.source.bootstrap, TOPIC, records("b", 50))
        eventually(lambda: at.why() == "unreachable")
        if sender == "east":
            eventually(lambda: at.line.half_open() & before, "the source has a connection that is none any more")
        eventually(lambda: not before & at.line.connections(), "no connection stays half-open")
        at.line.heal()
        await_mirrored(at, "c")


def paused_with_unread_requests(at: Joined) -> set[Ends]:
    """The link's connections, if requests on all of them have come to a source that is paused now; else it goes on.

    The kernel of a process that is killed with requests unread sends a reset, once. Otherwise it repeats that the
    connection is closed. And a request that was acknowledged is not sent again.
    """
    before = at.line.connections()
    at.source.pause()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        west, east = at.west.queues(), at.east.queues()
        queues = [(west.get(ends, (0, 0))[1], east.get(ends[::-1], (1, 0))[0]) for ends in before]
        if queues and all(unread and not unacknowledged for unread, unacknowledged in queues):
            return before
        time.sleep(0.02)
    at.source.resume()
    time.sleep(0.1)
    return set()


@pytest.mark.slow
@pytest.mark.parametrize("both_ways", [True, False], ids=["both", "one"])
def test_a_source_killed_behind_a_cut_is_found_again(tmp_path: Path, both_ways: bool) -> None:
    """The link waits for answers on connections that are none any more, and has nothing to send that would show it."""
    with joined(tmp_path, delay_s=0.1) as at:
        mirror_to(at.here.bootstrap, 0)
        await_mirrored(at, "a")
        before = eventually(lambda: paused_with_unread_requests(at))
        at.line.cut(None if both_ways else at.west)
        at.source.kill()
        assert at.line.half_open() == before
        at.source.start()
        at.line.heal()
        await_mirrored(at, "b")


@pytest.mark.slow
def test_the_line_is_crossed_once_however_many_read(tmp_path: Path) -> None:
    with joined(tmp_path, delay_s=0.1) as at:
        text = [os.urandom(300).hex().encode() for _ in range(6000)]
        produce_all(
            at.source.bootstrap, TOPIC, [(b"k", value) for value in text], compression_type="zstd", linger_ms=50
        )
        before = at.line.crossed(at.west).bytes
        mirror_to(at.here.bootstrap, len(text))
        at.await_equal()
        for _ in range(3):
            assert [each.value() for each in read_all(at.here.bootstrap, TOPIC)] == text
        batches = len(log_of(at.here.plan.data_dir))
        assert 1_500_000 < batches < 0.7 * sum(map(len, text)), "they are compressed"
        assert at.line.crossed(at.west).bytes - before < 1.1 * batches


@pytest.mark.slow
def test_a_far_log_whose_beginning_was_deleted_is_mirrored(tmp_path: Path) -> None:
    """Connecting and requesting the offsets of the source's log takes several round trips of 0.6 s."""
    with joined(tmp_path, delay_s=0.3) as at:
        produce_all(at.source.bootstrap, TOPIC, records("a", 20))
        client = AdminClient({"bootstrap.servers": at.source.bootstrap})
        partition = TopicPartition(TOPIC, 0, 15)
        client.delete_records([partition])[partition].result(PATIENCE_S)
        odradek(at.here.bootstrap, "links", "mirror", "west", TOPIC)

        def rows() -> list[tuple[object, object]]:
            return [(row["end"], row["reason"]) for row in rows_of(at.here.bootstrap, TOPIC)]

        eventually(lambda: rows() == [(20, "")], rows)
