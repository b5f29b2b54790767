"""Reads the sources and the state of a flow from its plan.

A plan is an internal object of Spark in the JVM, so only names, children, options and types are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark_odradek.options import SECRET, lowered
from pyspark_odradek.pipelines.graph import PIPELINE, Source, State

_SUBJECTS = {"subscribe", "subscribepattern", "assign"}
_WITHOUT_SOURCE = {"LocalRelation", "OneRowRelation", "Range", "EmptyRelation", "LogicalRDD"}


def items(sequence: Any) -> list[Any]:
    """A Scala sequence, or the fields of a schema."""
    return [sequence.apply(index) for index in range(sequence.size())]


def texts(options: Any) -> dict[str, str]:
    """A Scala map of texts."""
    return {str(pair._1()): str(pair._2()) for pair in items(options.toSeq())}


def children(node: Any) -> list[Any]:
    """The children of a plan or an expression."""
    return items(node.children())


def walk(node: Any) -> Iterator[Any]:
    """A plan or an expression and its descendants, the leaves first."""
    for child in children(node):
        yield from walk(child)
    yield node


def reads_of(plan: Any) -> tuple[Source, ...]:
    """The sources of rows, which are leaves of the plan, in its order."""
    return tuple(source for source in _leaves(plan, None) if source is not None)


def _leaves(node: Any, alias: str | None) -> Iterator[Source | None]:
    below = children(node)
    if node.nodeName() == "SubqueryAlias":
        alias = str(node.identifier().toString())
    if not below:
        yield _source(node, alias)
    for child in below:
        yield from _leaves(child, alias)


def _source(leaf: Any, alias: str | None) -> Source | None:
    kind = leaf.nodeName()
    if kind == "StreamingRelationV2":
        if leaf.sourceName() == "memory":  # Spark's stand-in for a table of the pipeline
            return Source(PIPELINE, (alias or "").rsplit(".", 1)[-1], streaming=True)
        return _described(str(leaf.sourceName()), _entries(leaf.extraOptions()), streaming=True)
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        return _described(str(source.className()), lowered(texts(source.options())), streaming=True)
    if kind in _WITHOUT_SOURCE:
        return None
    name = alias.removeprefix("spark_catalog.") if alias else str(leaf.simpleString(3))[:60]
    return Source("table" if alias else "batch", name)


def topics_of(plan: Any) -> Iterator[dict[str, str]]:
    """The options of each stream of the format `odradek`; they include secrets and must not be stored.

    The options of a table of the catalog are stored elsewhere, and were checked when it was created.
    """
    for node in walk(plan):
        if node.nodeName() == "StreamingRelationV2" and node.sourceName() == "odradek":
            options = _entries(node.extraOptions())
            if not options.keys().isdisjoint(_SUBJECTS):
                yield options


def _entries(options: Any) -> dict[str, str]:
    pairs = options.asCaseSensitiveMap()
    return {str(name).lower(): str(pairs[name]) for name in pairs}


def _described(kind: str, options: dict[str, str], *, streaming: bool) -> Source:
    known = {name: value for name, value in options.items() if not SECRET.search(name)}
    topics = known.get("subscribe") or known.get("subscribepattern") or known.get("assign")
    name = f"topic {topics}" if topics else f"{kind} {known['path']}" if "path" in known else kind
    return Source(kind, name, known, streaming)


def state_of(plan: Any) -> tuple[State, ...]:
    """The operators with state between batches, in the order of the plan."""
    found = []
    for node in walk(plan):
        below = children(node)
        if below and all(child.isStreaming() for child in below):
            state = _state(node, str(node.nodeName()))
            if state is not None:
                found.append(state)
    return tuple(found)


def _state(node: Any, kind: str) -> State | None:
    """The state of a streaming operator; None if it has none."""
    if kind == "Aggregate":
        return _aggregate(node)
    if kind in ("Deduplicate", "DeduplicateWithinWatermark"):
        keys = items(node.keys())
        types = tuple(str(key.dataType().simpleString()) for key in keys)
        return State(kind, f"distinct {', '.join(str(key.name()) for key in keys)}", types)
    if kind == "Join":
        return State(kind, f"{str(node.joinType().sql()).lower()} join of two streams", ())
    if kind == "Distinct" or "State" in kind:
        detail = "distinct rows" if kind == "Distinct" else kind
        return State(kind, detail, (str(node.schema().simpleString()),))
    return None


def _aggregate(node: Any) -> State:
    groups, results = items(node.groupingExpressions()), items(node.aggregateExpressions())
    functions = [part.aggregateFunction() for each in results for part in walk(each) if _is_aggregate(part)]
    types = [f"by {group.dataType().simpleString()}" for group in groups]
    types += [f"{one.prettyName()} {one.aggBufferSchema().simpleString()}" for one in functions]
    names = ", ".join(str(group.name()) for group in groups if hasattr(group, "name"))
    return State("Aggregate", f"{', '.join(str(one.prettyName()) for one in functions)} by {names}", tuple(types))


def _is_aggregate(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) == "AggregateExpression"
