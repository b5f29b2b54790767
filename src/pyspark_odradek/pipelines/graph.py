"""The graph of a pipeline, its nodes and flows, and its forms as text and JSON. Plain data, no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TABLE, VIEW, SINK, TEMPORARY, EXTERNAL = "streaming table", "materialized view", "sink", "view", "external"
PIPELINE = "pipeline"  # the format of what a flow reads from the pipeline itself


@dataclass(frozen=True)
class Column:
    """One column; `type` is Spark's `simpleString`."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True)
class Source:
    """A source of a flow, such as topics; `name` is for people, `options` (lower-case names) are compared."""

    format: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    streaming: bool = False


@dataclass(frozen=True)
class State:
    """An operator with state between batches; the types decide whether a new query can read the state."""

    operator: str
    detail: str
    types: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A dataset or a sink."""

    name: str
    kind: str
    columns: tuple[Column, ...] = ()
    detail: str = ""
    where: str = ""


@dataclass(frozen=True)
class Flow:
    """A query that writes into a node, with or without state.

    `inputs` are the nodes that it names; `reads` are the leaves of its plan, through views: nodes and outer sources.
    """

    name: str
    target: str
    inputs: tuple[str, ...]
    streaming: bool
    columns: tuple[Column, ...] = ()
    reads: tuple[Source, ...] = ()
    state: tuple[State, ...] = ()


@dataclass(frozen=True)
class Graph:
    """All nodes and flows, in topological order."""

    name: str
    nodes: tuple[Node, ...]
    flows: tuple[Flow, ...]

    def node(self, name: str) -> Node:
        """The node with this name, which must exist."""
        return next(node for node in self.nodes if node.name == name)

    def flows_into(self, name: str) -> list[Flow]:
        return [flow for flow in self.flows if flow.target == name]

    def outside(self, flow: Flow) -> list[str]:
        """The outer sources that a flow reads itself, not through a view of the pipeline."""
        through = {read.name for each in self.flows if each.target in flow.inputs for read in each.reads}
        names = [read.name for read in flow.reads if read.format != PIPELINE]
        return [name for name in dict.fromkeys(names) if name not in through and name not in flow.inputs]

    def as_json(self) -> dict[str, Any]:
        """The graph as JSON values, for programs, and for pictures without Spark."""
        return {"name": self.name, "nodes": [asdict(n) for n in self.nodes], "flows": [asdict(f) for f in self.flows]}


def from_json(data: Mapping[str, Any]) -> Graph:
    """The graph from the result of `as_json`."""
    nodes = [Node(**{**each, "columns": _columns(each)}) for each in data["nodes"]]
    flows = [
        Flow(
            **{
                **each,
                "inputs": tuple(each["inputs"]),
                "columns": _columns(each),
                "reads": tuple(Source(**read) for read in each["reads"]),
                "state": tuple(State(**{**state, "types": tuple(state["types"])}) for state in each["state"]),
            }
        )
        for each in data["flows"]
    ]
    return Graph(data["name"], tuple(nodes), tuple(flows))


def _columns(each: Mapping[str, Any]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in each["columns"])


def sorted_graph(name: str, nodes: Iterable[Node], flows: Sequence[Flow]) -> Graph:
    """A graph in topological order, and by name among equals; nodes of a cycle are last."""
    waiting = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
    needs: dict[str, set[str]] = {name: set() for name in waiting}
    for flow in flows:
        needs.setdefault(flow.target, set()).update(flow.inputs)
    order: list[Node] = []
    while waiting:
        ready = [each for each in waiting if not needs[each] & waiting.keys() - {each}] or list(waiting)
        order += [waiting.pop(each) for each in ready]
    place = {node.name: index for index, node in enumerate(order)}
    return Graph(name, tuple(order), tuple(sorted(flows, key=lambda flow: (place.get(flow.target, 0), flow.name))))


def text_of(graph: Graph) -> str:
    """The graph as text: each node with its columns, its flows, and their sources."""
    lines = [graph.name]
    for index, node in enumerate(graph.nodes):
        last = index == len(graph.nodes) - 1
        detail = f", {node.detail}" if node.detail else ""
        lines.append(f"{'└─' if last else '├─'} {node.name}  ({node.kind}{detail})")
        stem = "   " if last else "│  "
        if node.columns:
            lines.append(f"{stem}   {', '.join(f'{column.name} {column.type}' for column in node.columns)}")
        lines += [f"{stem}   ◀ {_flow_text(graph, flow)}" for flow in graph.flows_into(node.name)]
    return "\n".join(lines)


def _flow_text(graph: Graph, flow: Flow) -> str:
    froms = [*flow.inputs, *graph.outside(flow)] or ["nothing outside itself"]
    how = "streams" if flow.streaming else "recomputed"
    named = "" if flow.name == flow.target else f"{flow.name}: "
    kept = f"; state: {', '.join(state.detail for state in flow.state)}" if flow.state else ""
    return f"{named}{how} from {', '.join(froms)}{kept}"
