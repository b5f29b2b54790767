"""Compares a changed pipeline with the tables and checkpoints of earlier runs. Plain data, no Spark.

Spark reports most of this too, but when the flow starts, or when the first batch reaches the state.
`notes.py` stores the last state of each flow; here it is compared with the new definition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark_odradek.pipelines.graph import SINK, TABLE, Column, Flow, Graph, Source

# The options that name the input of a query, in lower case; others may change between runs, as addresses may.
_WHICH = ("subscribe", "subscribepattern", "assign", "path", "dbtable")


@dataclass(frozen=True)
class Finding:
    """A finding before the start; `stops` if the run would fail or lose rows."""

    subject: str
    text: str
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


def compare(
    graph: Graph,
    tables: Mapping[str, Sequence[Column]],
    before: Mapping[str, Flow],
    renewed: set[str],
    begun: Collection[str] = (),
) -> list[Finding]:
    """The changes of a pipeline, and the contradictions to its tables and checkpoints.

    Args:
        graph: the pipeline as it is to run.
        tables: columns of its tables that exist already.
        before: the streaming flows of the last run that have a checkpoint.
        renewed: nodes that this run recreates, with their checkpoints.
        begun: names of flows that have ever had a checkpoint.
    """
    found: list[Finding] = []
    for node in graph.nodes:
        if node.name in tables.keys() - renewed:
            found += columns_change(node.name, tables[node.name], node.columns, streaming=node.kind == TABLE)
    for flow in graph.flows:
        is_sink = graph.node(flow.target).kind == SINK
        if flow.target in renewed:
            continue
        if flow.name in before:
            found += flow_changes(before[flow.name], flow, is_sink=is_sink)
        elif flow.streaming and flow.name in begun:
            found.append(_without_checkpoint(flow, is_sink=is_sink))
    for name in sorted(before.keys() - {flow.name for flow in graph.flows}):
        target = before[name].target
        found.append(Finding(name, f"is gone from the files; {target} and its checkpoint stay as they are"))
    return found


def _without_checkpoint(flow: Flow, *, is_sink: bool) -> Finding:
    if is_sink:
        advice = "bring it back, or pass --force to write it again"
    else:
        advice = f"bring it back, or {_anew(flow.target)}"
    return Finding(flow.name, f"its checkpoint is gone, and {flow.target} has what it wrote: {advice}", stops=True)


def columns_change(name: str, old: Sequence[Column], new: Sequence[Column], *, streaming: bool) -> list[Finding]:
    """The effects of a table's new columns on its rows."""
    if not streaming:
        return _view_changes(name, old, new)
    found = []
    had = {column.name: column for column in old}
    for column in new:
        if column.name not in had:
            text = f"gets the column {column.name} {column.type}; rows that are there already have null in it"
            found.append(Finding(name, text))
        elif had[column.name].type != column.type:
            change = f"column {column.name} was {had[column.name].type} and would be {column.type}"
            found.append(Finding(name, f"{change}: {_anew(name)}, or give the new one another name", stops=True))
    for column in old:
        if column.name not in {each.name for each in new}:
            text = f"no longer gets the column {column.name}; the table keeps it, with null in new rows"
            found.append(Finding(name, text))
    return found


def _view_changes(name: str, old: Sequence[Column], new: Sequence[Column]) -> list[Finding]:
    """The changed columns of a view. It is computed whole, so nothing stops the run; its readers may depend on them."""
    had, has = ({column.name: column.type for column in each} for each in (old, new))
    if had == has:
        return []
    changes = [f"{column} {has[column]}" for column in has if had.get(column) != has[column]]
    changes += [f"without {column}" for column in had if column not in has]
    return [Finding(name, f"is recomputed with other columns: {', '.join(changes)}")]


def flow_changes(old: Flow, new: Flow, *, is_sink: bool) -> list[Finding]:
    """The contradictions of a streaming flow to its checkpoint."""
    advice = begin_again(new, is_sink=is_sink)
    found = [*_source_changes(old, new), *_state_changes(old, new)]
    return [Finding(new.name, f"{text}: {advice}", stops=True) for text in found]


def _source_changes(old: Flow, new: Flow) -> list[str]:
    was, now = ([read for read in each.reads if read.streaming] for each in (old, new))
    if len(was) != len(now):
        return [f"reads {_names(now)}, and its checkpoint {_names(was)}"]
    return [text for a, b in zip(was, now, strict=True) if (text := _source_change(a, b))]


def _state_changes(old: Flow, new: Flow) -> list[str]:
    if [state.operator for state in old.state] != [state.operator for state in new.state]:
        had, wants = (", ".join(state.detail for state in each.state) or "none" for each in (old, new))
        return [f"its checkpoint has state of {had}, and it would keep {wants}"]
    return [
        f"state of {a.detail} is {', '.join(a.types)}; {b.detail} would want {', '.join(b.types)}"
        for a, b in zip(old.state, new.state, strict=True)
        if a.types != b.types
    ]


def _source_change(old: Source, new: Source) -> str | None:
    subscribed = [{each.strip() for each in source.options.get("subscribe", "").split(",")} for source in (old, new)]
    if old.format == new.format and subscribed[0] != {""} and subscribed[0] <= subscribed[1]:
        return None  # further topics are read from their beginning
    if (old.format, old.name) == (new.format, new.name) and all(
        old.options.get(name) == new.options.get(name) for name in _WHICH
    ):
        return None
    return f"reads {new.name}, and its checkpoint {old.name}"


def _names(reads: Sequence[Source]) -> str:
    return ", ".join(read.name for read in reads) or "no stream"


def begin_again(flow: Flow, *, is_sink: bool) -> str:
    """The advice for a flow that cannot continue from its checkpoint."""
    if is_sink:
        return f"give the flow another name, and it starts without the checkpoint of {flow.name}"
    return _anew(flow.target)


def _anew(name: str) -> str:
    return f"`odradek pipeline run --full-refresh {name}` recreates it"
