"""prometheus_client's parser reads the text of a scrape back, and its writer would write the same text."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from odradek.common.metrics import Family, Histogram, Sample
from odradek.common.spread import durations
from odradek.server.metrics_text import metrics_text

Read = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(families: list[Family]) -> Read:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics_text(families))
        for sample in family.samples
    }


def test_counters_and_gauges_come_back() -> None:
    labels = (("topic", "orders"), ("partition", "0"))
    counter = Family("requests", "counter", "Requests.", (Sample(7, labels), Sample(12_345_678_901)))
    gauge = Family.gauge("left", "What is left.", -0.25)
    assert metrics_text([counter, gauge]) == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{partition="0",topic="orders"} 7.0\nrequests_total 12345678901.0\n'
        "# HELP left What is left.\n# TYPE left gauge\nleft -0.25\n"
    )
    assert read([counter, gauge]) == {
        ("requests_total", tuple(sorted(labels))): 7,
        ("requests_total", ()): 12_345_678_901,
        ("left", ()): -0.25,
    }


def test_values_that_are_not_finite_have_their_names() -> None:
    samples = tuple(Sample(value, (("of", str(value)),)) for value in (math.inf, -math.inf, math.nan))
    values = list(read([Family("x", "gauge", "", samples)]).values())
    assert values[:2] == [math.inf, -math.inf]
    assert math.isnan(values[2])


def test_labels_and_help_are_escaped() -> None:
    """A client chooses its id: no value of a label may end the line or the quotes."""
    bad = 'a"b\\c\nd 1.0\nforged 1'
    family = Family("x", "gauge", "of two\nlines and a \\", (Sample(3, (("client", bad),)),))
    (shown,) = text_string_to_metric_families(metrics_text([family]))
    assert shown.documentation == "of two\nlines and a \\"
    (sample,) = shown.samples
    assert (sample.labels, sample.value) == ({"client": bad}, 3)


def test_histograms_come_back_with_sorted_labels() -> None:
    spread = durations()
    for value in (1, 70_000, 200_000, 1 << 40):
        spread.add(value)
    histogram = spread.histogram((("phase", "local"), ("api", "Fetch")), zeros=2)
    text = metrics_text([Family("took", "histogram", "Took.", histograms=(histogram,))])
    lines = text.splitlines()
    assert lines[2] == f'took_bucket{{api="Fetch",le="{(1 << 16) / 1e9!r}",phase="local"}} 3.0'
    assert lines[3].endswith(" 5.0")
    assert lines[-3:-1] == [
        'took_bucket{api="Fetch",le="+Inf",phase="local"} 6.0',
        'took_count{api="Fetch",phase="local"} 6.0',
    ]
    (shown,) = text_string_to_metric_families(text)
    assert shown.type == "histogram"


def test_a_histogram_without_labels_and_one_without_numbers() -> None:
    bare = Histogram((("1.0", 1), ("+Inf", 2)), 4.5)
    assert read([Family("h", "histogram", "", histograms=(bare,)), Family("none", "histogram", "")]) == {
        ("h_bucket", (("le", "1.0"),)): 1,
        ("h_bucket", (("le", "+Inf"),)): 2,
        ("h_count", ()): 2,
        ("h_sum", ()): 4.5,
    }
