"""The example of an order that is rebuilt: the buffer by itself, and the query over four partitions."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from examples.place import Place
from examples.reordered import __main__ as example
from examples.reordered import pipeline
from examples.reordered.__main__ import PARTITIONS, send
from examples.reordered.buffer import Buffer, Reading
from examples.reordered.generator import Arrival, arrivals
from examples.topics import create_topic
from tests.support.clients.confluent import produce_all, read_committed
from tests.support.nodes.node import Node

# Values that cannot be ordered.
NO_READINGS = [
    b'{"machine": "generated-00", "number": 7, "value": 1.5}',
    b'{"machine": "generated-01", "at_ms": 1, "value": 1.5}',
    b'{"machine": "generated-01", "at_ms": 1, "number": 7}',
    b'{"at_ms": 1, "number": 7, "value": 1.5}',
    b"{}",
    b"no JSON",
]


def test_emitted_records_are_in_order_and_none_is_lost() -> None:
    """Generated records arrive in batches of any size; a record within the bound never counts as late."""
    for seed in range(20):
        source = random.Random(seed)
        came = [arrival.reading for arrival in arrivals(seed, 1, 300)]
        buffer, given, aside, at = Buffer(), [], [], 0
        newest_ms = 0
        while at < len(came):
            batch = came[at : at + source.randrange(1, 30)]
            at += len(batch)
            ready, late = buffer.take(batch, pipeline.BOUND_MS)
            assert all(newest_ms - reading.at_ms > pipeline.BOUND_MS for reading in late)
            newest_ms = max([newest_ms, *(reading.at_ms for reading in batch)])
            given += ready
            aside += late
            buffer = Buffer.from_json(buffer.to_json())
        assert given == sorted(given)
        assert aside
        assert sorted(given + aside + buffer.waiting) == sorted(came)
        assert all(reading.at_ms >= newest_ms - pipeline.BOUND_MS for reading in buffer.waiting)


def test_equal_times_are_ordered_by_number_and_come_back_after_a_pause() -> None:
    buffer = Buffer()
    assert buffer.take([Reading(5, 2, 0), Reading(5, 1, 0)], 10) == ([], [])
    assert buffer.take([Reading(15, 3, 0)], 10) == ([], []), "one with the time 5 may come yet"
    assert buffer.take([Reading(16, 4, 0)], 10) == ([Reading(5, 1, 0), Reading(5, 2, 0)], [])
    assert buffer.take([Reading(5, 9, 0)], 10) == ([], [Reading(5, 9, 0)])


@pytest.mark.slow  # the example below is the short form
def test_the_query(spark: Any, odradek: str, tmp_path: Path) -> None:
    """Two runs; each machine's readings are in order in one partition, the late ones in the table, each once."""
    for topic in (pipeline.READINGS, pipeline.ORDERED, pipeline.LATE, pipeline.DEAD):
        create_topic(odradek, topic, PARTITIONS)
    made = arrivals(1, 4, 400)
    half = len(made) // 2
    expected: dict[str, tuple[list[Reading], list[Reading]]] = {}
    buffers: dict[str, Buffer] = {}
    for part in (made[:half], made[half:]):
        send(odradek, part)
        rows = pipeline.readings(spark, odradek, pipeline.READINGS, "reorder")
        assert pipeline.reorder(rows, odradek, tmp_path, availableNow=True).awaitTermination(150)
        for machine in sorted({arrival.machine for arrival in part}):
            came = [arrival.reading for arrival in part if arrival.machine == machine]
            ready, late = buffers.setdefault(machine, Buffer()).take(came, pipeline.BOUND_MS)
            before = expected.setdefault(machine, ([], []))
            before[0].extend(ready)
            before[1].extend(late)

    messages = read_committed(odradek, pipeline.ORDERED, PARTITIONS)
    messages.sort(key=lambda message: (message.partition(), message.offset()))
    found = [_arrival(json.loads(message.value() or b"")) for message in messages]
    for machine, (ready, late) in expected.items():
        assert [arrival.reading for arrival in found if arrival.machine == machine] == ready
        assert late, "the made-up data has late ones"
    assert len({(message.key(), message.partition()) for message in messages}) == len(expected)

    rows = pipeline.readings(spark, odradek, pipeline.LATE, "late")
    assert pipeline.keep_late(rows, tmp_path, availableNow=True).awaitTermination(150)
    table = [_arrival(row) for row in DeltaTable(str(tmp_path / "late")).to_pyarrow_table().to_pylist()]
    assert sorted(table) == sorted(Arrival(name, each) for name, (_, late) in expected.items() for each in late)


def _arrival(row: dict[str, Any]) -> Arrival:
    return Arrival(row["machine"], Reading(row["at_ms"], row["number"], row["value"]))


def test_the_example_counts_every_reading(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run of `python -m examples.reordered` counts each as in order, late or waiting, and notices errors."""
    with Node(tmp_path / "node") as node:
        at = Place(spark, node.bootstrap, tmp_path)
        create_topic(node.bootstrap, pipeline.READINGS, PARTITIONS)
        produce_all(node.bootstrap, pipeline.READINGS, [(b"", value) for value in NO_READINGS])
        assert example.run(at, arrivals(1, 3, 250), pipeline.BOUND_MS)
        came, found = capsys.readouterr().out.splitlines()
        counts = [int(number) for number in re.findall(r"\d+", came.replace(",", ""))]
        assert counts[0] == sum(counts[1:]) == 750 + len(NO_READINGS) and all(counts)
        assert found == "0 lost, 0 twice, 0 out of order"
        dead = read_committed(node.bootstrap, pipeline.DEAD, PARTITIONS)
        letters = {message.value(): dict(message.headers() or []) for message in dead}
        assert {json.dumps(json.loads(value)).encode() for value in NO_READINGS if value != b"no JSON"} == {
            json.dumps(json.loads(value or b"")).encode() for value in letters if value != b"no JSON"
        }
        reasons = {headers.pop("odradek.reason") for headers in letters.values()}
        assert b"a field is missing" in reasons and len(reasons) == 2

        again = read_committed(node.bootstrap, pipeline.ORDERED, PARTITIONS)[0]
        produce_all(node.bootstrap, pipeline.ORDERED, [(again.key() or b"", again.value() or b"")])
        assert not example.compare(at)
        assert capsys.readouterr().out.splitlines()[1].startswith("0 lost, 1 twice")
    assert example.out_of_order([("a", 1, 0), ("a", 3, 1), ("b", 1, 0), ("a", 2, 2), ("a", 3, 3)]) == 1
