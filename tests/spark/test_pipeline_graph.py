"""The graph as plain data: its order, its text, its picture, and its form in the notes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from pyspark_odradek.pipelines import picture
from pyspark_odradek.pipelines.graph import (
    SINK,
    TABLE,
    TEMPORARY,
    VIEW,
    Column,
    Flow,
    Graph,
    Node,
    Source,
    State,
    from_json,
    sorted_graph,
    text_of,
)

TOPIC = Source("odradek", "topic visits", {"subscribe": "visits"}, streaming=True)
OF_VISITS = Source("pipeline", "visits", streaming=True)


def shop() -> Graph:
    """A view over a topic, two tables, a sink, given in the wrong order."""
    nodes = [
        Node("pages", VIEW, (Column("page", "string"), Column("visits", "bigint"))),
        Node("long", SINK, (), "odradek long"),
        Node("visits", TABLE, tuple(Column(f"c{number}", "int") for number in range(12))),
        Node("arrivals", TEMPORARY),
    ]
    flows = [
        Flow("pages", "pages", ("visits",), streaming=False),
        Flow("tell", "long", ("visits",), streaming=True, reads=(OF_VISITS,)),
        Flow(
            "visits", "visits", ("arrivals",), True, reads=(TOPIC,), state=(State("Aggregate", "count by c1", ("x",)),)
        ),
        Flow("arrivals", "arrivals", (), streaming=True, reads=(TOPIC,)),
    ]
    return sorted_graph("shop", nodes, flows)


def test_nodes_come_after_their_inputs() -> None:
    assert [node.name for node in shop().nodes] == ["arrivals", "visits", "long", "pages"]


def test_a_cycle_does_not_hang_the_order() -> None:
    nodes = [Node("a", TABLE), Node("b", TABLE), Node("c", TABLE)]
    flows = [Flow("a", "a", ("b",), True), Flow("b", "b", ("a",), True), Flow("c", "c", (), True)]
    assert [node.name for node in sorted_graph("ring", nodes, flows).nodes] == ["c", "a", "b"]


def test_a_topic_is_drawn_where_it_is_read_and_not_behind_a_view() -> None:
    graph = shop()
    outside = {flow.name: graph.outside(flow) for flow in graph.flows}
    assert outside == {"arrivals": ["topic visits"], "visits": [], "tell": [], "pages": []}


def test_the_text_has_every_node_with_its_flows() -> None:
    text = text_of(shop())
    assert "├─ visits  (streaming table)" in text
    assert "└─ pages  (materialized view)\n      page string, visits bigint\n      ◀ recomputed from visits" in text
    assert "◀ tell: streams from visits" in text
    assert "◀ streams from topic visits" in text
    assert "streams from arrivals; state: count by c1" in text


def test_the_graph_is_restored_from_the_notes() -> None:
    graph = shop()
    assert from_json(json.loads(json.dumps(graph.as_json()))) == graph


def test_the_picture_is_a_self_contained_page() -> None:
    graph = shop()
    page = picture.page(graph, {"visits": "1,000 rows"})
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    names = [text.text for text in root.iter(f"{space}text") if text.get("class") == "name"]
    assert names == ["topic visits", "arrivals", "visits", "long", "pages"]
    edges = [path for path in root.iter(f"{space}path") if "edge" in (path.get("class") or "")]
    assert len(edges) == 4
    assert [path.get("class") for path in edges].count("edge batch") == 1, "the view is recomputed"
    assert "… 4 more" in svg
    assert "1,000 rows" in svg
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "nothing is loaded from elsewhere"


def test_the_picture_fits_its_window_and_each_text_its_box() -> None:
    """The test reads the SVG without a browser, and computes the widths of texts from those of the letters."""
    nodes = [Node("a_name_of_some_forty_letters_in_one_word", TABLE, (Column("c" * 30, "timestamp"),)), *shop().nodes]
    page = picture.page(sorted_graph("wide", nodes, shop().flows))
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "svg { max-width: 100%; height: auto;" in page
    root = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    _, _, wide, tall = map(int, (root.get("viewBox") or "").split())
    assert (root.get("width"), root.get("height")) == (str(wide), str(tall))
    space = "{http://www.w3.org/2000/svg}"
    for box in root.iter(f"{space}g"):
        rect = box.find(f"{space}rect")
        assert rect is not None
        for text in box.iter(f"{space}text"):
            letter = 7.9 if text.get("class") == "name" else 7.3  # 13 and 12 pixels, a little more than 0.6 of each
            assert int(text.get("x") or 0) + letter * len(text.text or "") <= int(rect.get("width") or 0)
            assert int(text.get("y") or 0) < int(rect.get("height") or 0)


def test_names_are_harmless_in_the_picture() -> None:
    graph = Graph("<script>", (Node("a<b>&\"'", TABLE),), ())
    page = picture.page(graph)
    assert "<script>" not in page
    assert "a<b>" not in page
