"""Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/

A page has a thousand to a hundred thousand lines, and is built at every scrape. So a label is escaped, and a set of
labels is joined, once for each page and not once for each line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.common.metrics import Family, Histogram

Labels = tuple[tuple[str, str], ...]
# Go's names of these values, which the format uses.
_NOT_FINITE = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def metrics_text(families: Iterable[Family]) -> str:
    """All families, each with its help and its type."""
    lines: list[str] = []
    joined: dict[Labels, str] = {}
    for family in families:
        name = family.exposed_name
        lines.append(f"# HELP {name} {_escaped(family.help)}\n# TYPE {name} {family.kind}\n")
        if family.kind == "histogram":
            for each in family.histograms:
                lines += _histogram_lines(name, each)
            continue
        for value, labels in family.samples:
            text = joined.get(labels)
            if text is None:
                text = joined[labels] = _braced(labels)
            lines.append(f"{name}{text} {_number(value)}\n")
    return "".join(lines)


def _histogram_lines(name: str, histogram: Histogram) -> Iterator[str]:
    # Labels are sorted, and the bound is one of them.
    before = "".join(f"{_label(each)}," for each in sorted(histogram.labels) if each[0] < "le")
    after = "".join(f",{_label(each)}" for each in sorted(histogram.labels) if each[0] > "le")
    for bound, count in histogram.buckets:
        yield f'{name}_bucket{{{before}le="{bound}"{after}}} {_number(count)}\n'
    labels = _braced(histogram.labels)
    yield f"{name}_count{labels} {_number(histogram.buckets[-1][1])}\n"
    yield f"{name}_sum{labels} {_number(histogram.sum)}\n"


def _braced(labels: Labels) -> str:
    return f"{{{','.join(map(_label, sorted(labels)))}}}" if labels else ""


def _label(label: tuple[str, str]) -> str:
    name, value = label
    quoted = _escaped(value).replace('"', r"\"")
    return f'{name}="{quoted}"'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    text = repr(float(value))
    return _NOT_FINITE.get(text, text)
