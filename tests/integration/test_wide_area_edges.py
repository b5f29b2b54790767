"""The example of three edges and a centre over real lines with 20 % packet loss, one of which is cut for minutes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.edge.__main__ import (
    EDGES,
    KEPT_BYTES,
    OFF,
    PARTITIONS,
    RETENTION_BYTES,
    SEGMENT_BYTES,
    TOPIC,
    Dashboard,
    Edge,
    Report,
)
from examples.topics import create_topic
from tests.support.clients.cli import odradek
from tests.support.clients.links import describe, rows_of
from tests.support.network.sites import Network, Site, network
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import eventually

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.check.interval.ms": 500,
    "connections.max.idle.ms": 60_000,
}
LOSS, DELAY_S = 0.2, 0.02
BEFORE = 200


class FarEdge(Edge):
    """An edge of the example in a network namespace of its own, behind a line."""

    def __init__(self, net: Network, centre: Site, folder: Path, name: str, seed: int) -> None:
        self.name = name
        self.here = net.site(name)
        self.line = net.line(self.here, centre, delay_s=DELAY_S, loss=LOSS, seed=seed)
        self.cluster = Cluster(folder / name, brokers=1, settings=SETTINGS, hosts=self.here.launchers)

    def __enter__(self) -> FarEdge:
        self.cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("off_s", "readings", "note_bytes"), [(20, 5000, 1000), (300, 50_000, 60)], ids=["short", "full"]
)
def test_records_that_edges_retain_arrive_over_bad_lines(
    tmp_path: Path, off_s: float, readings: int, note_bytes: int
) -> None:
    report = Report()
    with network() as net, ExitStack() as stack:
        middle = net.site("centre")
        centre = stack.enter_context(Cluster(tmp_path / "centre", brokers=1, settings=SETTINGS, hosts=middle.launchers))
        edges = {
            name: stack.enter_context(FarEdge(net, middle, tmp_path, name, seed))
            for seed, name in enumerate(EDGES, start=20)
        }
        for name, edge in edges.items():
            address = edge.cluster.bootstrap_servers
            kept = {"retention.bytes": str(RETENTION_BYTES), "segment.bytes": str(SEGMENT_BYTES)}
            create_topic(address, TOPIC, PARTITIONS, kept)
            odradek(centre.bootstrap_servers, "links", "create", name, "--source", address, "--prefix", f"{name}.")
            odradek(centre.bootstrap_servers, "links", "mirror", name, TOPIC)
        for name in EDGES:  # a pattern that finds no topic is an error for its consumer
            eventually(lambda name=name: len(rows_of(centre.bootstrap_servers, f"{name}.{TOPIC}", name)) == PARTITIONS)
        dashboard = Dashboard(centre.bootstrap_servers, report)
        dashboard.start()
        stack.callback(dashboard.stop)
        be_cut_off(centre, edges, report, off_s, readings, note_bytes)
        for edge in edges.values():
            assert all(edge.line.crossed(site).lost > 0 for site in (edge.here, middle))
            eventually(lambda edge=edge: not edge.line.half_open(), edge.line.half_open)
    assert report.holds, report
    site = report.sites[OFF]
    assert len(site.made) == 2 * BEFORE + readings
    assert site.skipped > 0, "its retention was at work"


def be_cut_off(
    centre: Cluster, edges: dict[str, FarEdge], report: Report, off_s: float, readings: int, note_bytes: int
) -> None:
    """Cut one line for so long while its edge makes readings; all lines lose packets all the time."""
    sites, off = report.sites, edges[OFF]
    for name, edge in edges.items():
        edge.make(BEFORE, sites[name])
    eventually(lambda: not any(site.missing for site in sites.values()), "all edges are at the centre")
    begun = time.monotonic()
    off.line.cut()
    off.make(readings, sites[OFF], note_bytes)
    others = [name for name in EDGES if name != OFF]
    for name in others:
        edges[name].make(BEFORE, sites[name])
    eventually(lambda: not any(sites[name].missing for name in others), "the others go on")
    eventually(lambda: off.bytes <= KEPT_BYTES, "it keeps to its retention")
    sites[OFF].kept_bytes = off.bytes
    eventually(lambda: time.monotonic() - begun > off_s, patience_s=2 * off_s)
    assert describe(centre.bootstrap_servers, OFF)["why"] == "unreachable"
    off.line.heal()
    before = set(sites[OFF].made)
    off.make(BEFORE, sites[OFF])
    eventually(lambda: sites[OFF].missing <= before, "all that it has left is at the centre", patience_s=1200)
    sites[OFF].skipped = sum(row["skipped"] for row in rows_of(centre.bootstrap_servers, f"{OFF}.{TOPIC}", OFF))
