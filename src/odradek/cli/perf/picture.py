"""Draws a run: records per second over time, and latencies on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from odradek.cli.perf.run import Outcome

WIDTH, HEIGHT, GAP = 900, 260, 60
LEFT, RIGHT, TOP = 90, 150, 40
COLOURS = ("#1f77b4", "#2ca02c", "#ff7f0e", "#d62728", "#9467bd", "#8c564b")

Points = list[tuple[float, float]]


def draw(outcome: Outcome, title: str) -> str:
    """The run as a self-contained SVG."""
    rates: dict[str, Points] = {"acknowledged": [], "read": []}
    latencies: dict[str, Points] = {}
    before_s = 0.0
    for end_s, window in outcome.windows:
        seconds = max(end_s - before_s, 1e-6)
        rates["acknowledged"].append((end_s, window.acked / seconds))
        rates["read"].append((end_s, window.read / seconds))
        for name, timed in (("acknowledged", window.ack_us), ("read", window.read_us)):
            if timed.count:
                for percent in (50.0, 99.0, 100.0):
                    shown = f"{name} {'max' if percent == 100 else f'p{percent:g}'}"
                    latencies.setdefault(shown, []).append((end_s, timed.percentile(percent) / 1000))
        before_s = end_s
    rates = {name: points for name, points in rates.items() if any(value for _, value in points)}
    end_s = max(before_s, 1e-3)
    charts = [_chart(0, "records/s", rates, end_s, _linear(rates))]
    if latencies:
        charts.append(_chart(HEIGHT + GAP, "latency, ms", latencies, end_s, _powers(latencies)))
    height = TOP + len(charts) * (HEIGHT + GAP)
    width = LEFT + WIDTH + RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        f' font-size="13"><rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>{"".join(charts)}</svg>\n'
    )


class Scale:
    """Maps values to positions between the bottom (0) and the top (1), and names the values of grid lines."""

    def __init__(self, place: Callable[[float], float], ticks: Sequence[float]) -> None:
        self.place = place
        self.ticks = ticks


def _values(lines: dict[str, Points]) -> list[float]:
    return [value for points in lines.values() for _, value in points]


def _linear(lines: dict[str, Points]) -> Scale:
    greatest = max(_values(lines), default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(greatest))
    step = step / 5 if greatest / step < 2 else step / 2 if greatest / step < 5 else step
    top = math.ceil(greatest / step) * step
    return Scale(lambda value: value / top, [step * index for index in range(round(top / step) + 1)])


def _powers(lines: dict[str, Points]) -> Scale:
    values = [max(value, 1e-3) for value in _values(lines)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    span = max(1, high - low)
    ticks = [10.0**power for power in range(low, low + span + 1)]
    return Scale(lambda value: (math.log10(max(value, 1e-3)) - low) / span, ticks)


def _chart(offset: float, heading: str, lines: dict[str, Points], end_s: float, scale: Scale) -> str:
    top, foot = TOP + offset + 10, TOP + offset + HEIGHT
    height = foot - top

    def at(seconds: float, value: float) -> str:
        return f"{LEFT + WIDTH * seconds / end_s:.1f},{foot - height * scale.place(value):.1f}"

    parts = [f'<text x="{LEFT}" y="{top - 6}" fill="#555">{escape(heading)}</text>']
    for tick in scale.ticks:
        y = foot - height * scale.place(tick)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    for part in range(5):
        x = LEFT + WIDTH * part / 4
        parts.append(f'<text x="{x}" y="{foot + 18}" text-anchor="middle">{end_s * part / 4:.3g} s</text>')
    for index, (name, points) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(at(seconds, value) for seconds, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = top + 16 + 18 * index
        parts.append(f'<text x="{LEFT + WIDTH + 10}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return "".join(parts)
