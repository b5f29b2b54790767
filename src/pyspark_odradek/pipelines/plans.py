"""What a flow reads and what state it keeps, read off the plan that Spark has made of it.

A plan is an object of the JVM: nothing of it is promised, so only names, children, options and types are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark_odradek.pipelines.graph import PIPELINE, Source, State

_WITHOUT_SOURCE = {"LocalRelation", "OneRowRelation", "Range", "EmptyRelation", "LogicalRDD"}
_PASSWORDS = ("password", "secret", "sasl.jaas.config", "token")


def children(node: Any) -> list[Any]:
    """The children of a plan or an expression."""
    found = node.children()
    return [found.apply(index) for index in range(found.size())]


def walk(node: Any) -> Iterator[Any]:
    """A plan or an expression and all below it, the leaves first."""
    for child in children(node):
        yield from walk(child)
    yield node


def reads_of(plan: Any) -> tuple[Source, ...]:
    """Every leaf that rows come from, in the order of the plan."""
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
        options = {
            pair._1().lower(): pair._2() for pair in map(source.options().toSeq().apply, range(source.options().size()))
        }
        return _described(str(source.className()), options, streaming=True)
    if kind in _WITHOUT_SOURCE:
        return None
    name = alias.removeprefix("spark_catalog.") if alias else str(leaf.simpleString(3))[:60]
    return Source("table" if alias else "batch", name)


def _entries(options: Any) -> dict[str, str]:
    pairs = options.asCaseSensitiveMap()
    return {str(name).lower(): str(pairs[name]) for name in pairs}


def _described(kind: str, options: dict[str, str], *, streaming: bool) -> Source:
    known = {name: value for name, value in options.items() if not any(word in name for word in _PASSWORDS)}
    topics = known.get("subscribe") or known.get("subscribepattern") or known.get("assign")
    name = f"topic {topics}" if topics else f"{kind} {known['path']}" if "path" in known else kind
    return Source(kind, name, known, streaming)


def state_of(plan: Any) -> tuple[State, ...]:
    """The operators that keep state between batches, in the order of the plan."""
    found = []
    for node in walk(plan):
        kind = str(node.nodeName())
        below = children(node)
        if not below or not all(child.isStreaming() for child in below):
            continue
        if kind == "Aggregate":
            found.append(_aggregate(node))
        elif kind in ("Deduplicate", "DeduplicateWithinWatermark"):
            keys = [node.keys().apply(index) for index in range(node.keys().size())]
            types = tuple(str(key.dataType().simpleString()) for key in keys)
            found.append(State(kind, f"distinct {', '.join(str(key.name()) for key in keys)}", types))
        elif kind == "Distinct":
            found.append(State(kind, "distinct rows", (str(node.schema().simpleString()),)))
        elif kind == "Join":
            found.append(State(kind, f"{str(node.joinType().sql()).lower()} join of two streams", ()))
        elif "State" in kind:
            found.append(State(kind, kind, (str(node.schema().simpleString()),)))
    return tuple(found)


def _aggregate(node: Any) -> State:
    groups = [node.groupingExpressions().apply(index) for index in range(node.groupingExpressions().size())]
    results = [node.aggregateExpressions().apply(index) for index in range(node.aggregateExpressions().size())]
    functions = [part.aggregateFunction() for each in results for part in walk(each) if _is_aggregate(part)]
    types = [f"by {group.dataType().simpleString()}" for group in groups]
    types += [f"{one.prettyName()} {one.aggBufferSchema().simpleString()}" for one in functions]
    names = ", ".join(str(group.name()) for group in groups if hasattr(group, "name"))
    return State("Aggregate", f"{', '.join(str(one.prettyName()) for one in functions)} by {names}", tuple(types))


def _is_aggregate(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) == "AggregateExpression"
