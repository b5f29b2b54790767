"""Changes of a pipeline that match its tables and checkpoints or contradict them, and their reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_odradek.pipelines.compatibility import columns_change, compare, flow_changes
from pyspark_odradek.pipelines.graph import SINK, TABLE, Column, Flow, Graph, Node, Source, State

ID, NAME = Column("id", "bigint"), Column("name", "string")


def topic(names: str, **options: str) -> Source:
    return Source("odradek", f"topic {names}", {"subscribe": names, **options}, streaming=True)


COUNT = State("Aggregate", "count by page", ("by string", "count struct<count:bigint>"))
FLOW = Flow("visits", "visits", (), streaming=True, reads=(topic("visits"),), state=(COUNT,))


def test_a_new_column_is_a_note() -> None:
    (found,) = columns_change("visits", [ID], [ID, NAME], streaming=True)
    assert not found.stops
    assert "gets the column name string; rows that are there already have null in it" in str(found)


def test_a_changed_type_stops_and_says_what_to_do() -> None:
    (found,) = columns_change("visits", [ID], [Column("id", "string")], streaming=True)
    assert found.stops
    assert "was bigint and would be string" in found.text
    assert "--full-refresh visits" in found.text


def test_a_column_that_goes_is_a_note() -> None:
    (found,) = columns_change("visits", [ID, NAME], [ID], streaming=True)
    assert not found.stops
    assert "keeps it, with null" in found.text


def test_a_changed_view_is_only_reported() -> None:
    (found,) = columns_change("pages", [ID, NAME], [Column("id", "string")], streaming=False)
    assert not found.stops
    assert found.text == "is recomputed with other columns: id string, without name"
    assert columns_change("pages", [ID], [ID], streaming=False) == []


def test_an_unchanged_pipeline_has_no_findings() -> None:
    assert columns_change("visits", [ID], [ID], streaming=True) == []
    assert flow_changes(FLOW, FLOW, is_sink=False) == []


@pytest.mark.parametrize(
    "reads",
    [
        (topic("visits", startingoffsets="latest"),),
        (topic("visits,more"),),
        (topic("visits", **{"kafka.bootstrap.servers": "elsewhere:1"}),),
        (topic("visits"), Source("table", "static")),
    ],
    ids=["another option", "a further topic", "another address", "a static table besides"],
)
def test_compatible_changes_keep_a_checkpoint(reads: tuple[Source, ...]) -> None:
    assert flow_changes(FLOW, replace(FLOW, reads=reads), is_sink=False) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reads": (topic("others"),)}, "reads topic others, and its checkpoint topic visits"),
        ({"reads": (Source("rate", "rate", {}, True),)}, "reads rate, and its checkpoint topic visits"),
        ({"reads": (topic("visits"), topic("b"))}, "reads topic visits, topic b, and its checkpoint topic visits"),
        ({"state": ()}, "its checkpoint has state of count by page, and it would keep none"),
        ({"state": (replace(COUNT, types=("by int",)),)}, "state of count by page is by string"),
    ],
)
def test_incompatible_changes_of_a_checkpoint_are_refused(change: dict[str, Any], said: str) -> None:
    (found,) = flow_changes(FLOW, replace(FLOW, **change), is_sink=False)
    assert found.stops
    assert said in found.text
    assert "`odradek pipeline run --full-refresh visits` recreates it" in found.text


def test_a_sink_is_not_recreated_but_its_flow_renamed() -> None:
    (found,) = flow_changes(FLOW, replace(FLOW, state=()), is_sink=True)
    assert "give the flow another name" in found.text


def test_a_replaced_node_is_not_compared_and_a_removed_flow_is_reported() -> None:
    graph = Graph("p", (Node("visits", TABLE, (NAME,)), Node("out", SINK)), (replace(FLOW, state=()),))
    tables = {"visits": [Column("name", "int")]}
    gone = Flow("old", "out", (), streaming=True)
    assert [each.subject for each in compare(graph, tables, {"visits": FLOW, "old": gone}, {"visits"})] == ["old"]
    found = compare(graph, tables, {"visits": FLOW, "old": gone}, set())
    assert [(each.subject, each.stops) for each in found] == [("visits", True), ("visits", True), ("old", False)]


def test_a_lost_checkpoint_stops_the_run() -> None:
    graph = Graph("p", (Node("visits", TABLE), Node("out", SINK)), (FLOW, replace(FLOW, name="tell", target="out")))
    found = compare(graph, {}, {}, set(), begun={"visits", "tell"})
    assert [(each.subject, each.stops) for each in found] == [("visits", True), ("tell", True)]
    assert "visits has what it wrote: bring it back, or `odradek pipeline run --full-refresh visits`" in str(found[0])
    assert "or pass --force to write it again" in str(found[1])
    assert [each.subject for each in compare(graph, {}, {"visits": FLOW}, {"out"}, begun={"visits", "tell"})] == []
