"""The graph as a picture: a self-contained HTML page with an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from pyspark_odradek.pipelines.graph import EXTERNAL, Graph, Node

# The width of a box is that of its longest possible text: 36 letters of the name's font, of at most 8 pixels each.
_WIDTH, _HEAD, _LINE, _GAP_X, _GAP_Y, _MARGIN = 308, 44, 16, 90, 28, 24
_MOST_COLUMNS = 8
_TEXT_LENGTH = 36

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 14px system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }}
h1 {{ font-size: 1.3em; }}
svg {{ max-width: 100%; height: auto; max-height: calc(100vh - 8em); }}
svg text {{ font: 12px ui-monospace, monospace; fill: #222; }}
svg .name {{ font-weight: 600; font-size: 13px; }}
svg .kind {{ fill: #666; font-size: 11px; }}
svg rect {{ stroke: #777; stroke-width: 1; }}
svg .edge {{ fill: none; stroke: #888; stroke-width: 1.5; marker-end: url(#tip); }}
svg .batch {{ stroke-dasharray: 5 4; }}
.streaming-table {{ fill: #e3f0fb; }} .materialized-view {{ fill: #e6f4e2; }} .sink {{ fill: #fbe9dc; }}
.view {{ fill: #f3f3f3; }} .external {{ fill: #fff7d6; }}
</style></head><body>
<h1>{title}</h1>
{svg}
<p>A whole line streams, a broken one is recomputed by each run. Hold the pointer over a box for its columns.</p>
</body></html>
"""


@dataclass(frozen=True)
class _Box:
    node: Node
    x: int
    y: int
    height: int


def page(graph: Graph, notes: Mapping[str, str] | None = None) -> str:
    """The HTML page of a graph.

    Args:
            graph: in topological order.
            notes: node → a further line in its box, such as its progress.
    """
    nodes = [*_outside(graph), *graph.nodes]
    layers = _layers(graph, nodes)
    boxes: dict[str, _Box] = {}
    tall = _MARGIN
    for layer, members in enumerate(layers):
        y = _MARGIN
        for node in members:
            height = _HEAD + _LINE * (min(len(node.columns), _MOST_COLUMNS + 1) + bool((notes or {}).get(node.name)))
            boxes[node.name] = _Box(node, _MARGIN + layer * (_WIDTH + _GAP_X), y, height)
            y += height + _GAP_Y
        tall = max(tall, y)
    wide = 2 * _MARGIN + len(layers) * (_WIDTH + _GAP_X) - _GAP_X
    drawn = [*_edges(graph, boxes), *(_drawn(box, (notes or {}).get(name, "")) for name, box in boxes.items())]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}" '
        'preserveAspectRatio="xMinYMin">'
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>' + "\n".join(drawn) + "</svg>"
    )
    return _PAGE.format(title=escape(graph.name), svg=svg)


def _outside(graph: Graph) -> list[Node]:
    named = {read.name: read.format for flow in graph.flows for read in flow.reads if read.name in graph.outside(flow)}
    return [Node(name, EXTERNAL, detail=kind) for name, kind in sorted(named.items())]


def _inputs(graph: Graph, name: str) -> list[tuple[str, bool]]:
    """The inputs of a node, each with whether its flow is a stream."""
    return [(each, flow.streaming) for flow in graph.flows_into(name) for each in (*flow.inputs, *graph.outside(flow))]


def _layers(graph: Graph, nodes: list[Node]) -> list[list[Node]]:
    depth: dict[str, int] = {}
    for node in nodes:  # each comes after what it is made of, so one look is enough
        depth[node.name] = 1 + max((depth.get(each, -1) for each, _ in _inputs(graph, node.name)), default=-1)
    count = max(depth.values(), default=-1) + 1
    return [[node for node in nodes if depth[node.name] == layer] for layer in range(count)]


def _edges(graph: Graph, boxes: Mapping[str, _Box]) -> list[str]:
    lines = []
    for name, box in boxes.items():
        for each, streaming in dict.fromkeys(_inputs(graph, name)):
            if each not in boxes:
                continue
            start = boxes[each]
            x1, y1, x2, y2 = start.x + _WIDTH, start.y + _HEAD // 2, box.x, box.y + _HEAD // 2
            bend = max(30, (x2 - x1) // 2)
            path = f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
            lines.append(f'<path class="edge{"" if streaming else " batch"}" d="{path}"/>')
    return lines


def _drawn(box: _Box, note: str) -> str:
    node = box.node
    columns = [f"{column.name} {column.type}" for column in node.columns]
    shown = columns[:_MOST_COLUMNS]
    if len(columns) > len(shown):
        shown.append(f"… {len(columns) - len(shown)} more")
    kind = f"{node.kind}, {node.detail}" if node.detail else node.kind
    texts = [("name", node.name, 18), ("kind", kind, 34)]
    texts += [
        ("column", line, _HEAD + _LINE * (index + 1) - 6) for index, line in enumerate([*shown, *filter(None, [note])])
    ]
    return (
        f'<g transform="translate({box.x},{box.y})"><title>{escape(chr(10).join([node.name, kind, *columns]))}</title>'
        f'<rect width="{_WIDTH}" height="{box.height}" rx="6" class="{node.kind.replace(" ", "-")}"/>'
        + "".join(f'<text class="{kind}" x="10" y="{y}">{escape(_cut(text))}</text>' for kind, text, y in texts)
        + "</g>"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + "…"
