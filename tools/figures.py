"""Draw the figures of the documentation: `python -m tools.figures` writes docs/figures (`make docs` does, too).

Each is a function that draws boxes, arrows and rows of records on a Canvas, which becomes SVG. Colours are few and mean
the same everywhere: programs are blue, stored data yellow, deleted data grey, decisions green.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
FILLS = {"acts": "#dbe9ff", "kept": "#fff1cc", "gone": "#e6e6e6", "decided": "#d8f2dc", "plain": "#ffffff"}
LINE = "#33475b"
CELL = 28


class Canvas:
    """A picture of a size; coordinates are pixels from the left and the top."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="sans-serif" font-size="13" fill="{LINE}">\n<title>{escape(title)}</title>\n'
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker></defs>\n'
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>'
        )
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, bold: bool = False, anchor: str = "middle", halo: bool = False
    ) -> None:
        """Words; with a halo they are read where a line passes behind them."""
        weight = ' font-weight="bold"' if bold else ""
        around = ' stroke="#ffffff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"' if halo else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{weight}{around}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, words: str, kind: str = "plain") -> None:
        """A box with lines of words in its middle."""
        dashed = ' stroke-dasharray="5 4"' if kind == "gone" else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{FILLS[kind]}" '
            f'stroke="{LINE}"{dashed}/>'
        )
        lines = words.split("\n")
        first = y + height / 2 - (len(lines) - 1) * 8 + 4
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 16 * number, line, bold=number == 0 and len(lines) > 1)

    def frame(self, x: float, y: float, width: float, height: float, words: str) -> None:
        """A border around other things, with its name above."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="none" stroke="{LINE}" '
            f'stroke-opacity="0.5"/>'
        )
        self.text(x + 10, y + 18, words, bold=True, anchor="start")

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], words: str = "", *, dashed: bool = False
    ) -> None:
        """An arrow with words beside its middle."""
        style = ' stroke-dasharray="5 4"' if dashed else ""
        (x1, y1), (x2, y2) = start, end
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{LINE}" stroke-width="1.5"{style} '
            f'marker-end="url(#tip)"/>'
        )
        if words:
            steep = abs(y2 - y1) > abs(x2 - x1)
            x, y = (x1 + x2) / 2 + (6 if steep else 0), (y1 + y2) / 2 + (4 if steep else -6)
            self.text(x, y, words, anchor="start" if steep else "middle", halo=True)

    def records(self, x: float, y: float, values: Sequence[str], kinds: Sequence[str]) -> None:
        """A row of records of a log."""
        for number, (value, kind) in enumerate(zip(values, kinds, strict=True)):
            self.box(x + number * (CELL + 2), y, CELL, CELL, value, kind)

    def mark(self, x: float, top: float, bottom: float, words: str) -> None:
        """A line across logs, with its name below."""
        self._parts.append(
            f'<line x1="{x:g}" y1="{top:g}" x2="{x:g}" y2="{bottom:g}" stroke="#b3261e" stroke-width="2" '
            f'stroke-dasharray="6 3"/>'
        )
        self.text(x, bottom + 15, words, bold=True)

    def svg(self) -> str:
        return self._head + "\n" + "\n".join(self._parts) + "\n</svg>\n"


def log(canvas: Canvas, x: float, y: float, name: str, count: int, committed: int) -> None:
    """A replica's log: its name, and `count` records of which `committed` are below the high watermark."""
    canvas.text(x, y + 18, name, anchor="start")
    kinds = ["kept" if number < committed else "plain" for number in range(count)]
    canvas.records(x + 130, y, [str(number) for number in range(count)], kinds)


def components() -> Canvas:
    canvas = Canvas(720, 330, "Components: clients, brokers, controllers, and what each keeps")
    for number, words in enumerate(("Producers", "Consumers", "Spark queries", "odradek, Kafka's tools")):
        canvas.box(20 + number * 175, 20, 155, 40, words, "acts")
        canvas.arrow((97 + number * 175, 60), (97 + number * 175, 108))
    canvas.text(400, 90, "Kafka's protocol")
    canvas.frame(20, 110, 680, 90, "Brokers")
    for number in range(3):
        canvas.box(60 + number * 215, 135, 185, 50, f"Broker {number + 1}\nlogs of partitions", "kept")
    canvas.frame(130, 240, 460, 80, "Controllers: a quorum")
    for number, words in enumerate(("active\ndecides", "follows\nvotes", "follows\nvotes")):
        canvas.box(150 + number * 145, 262, 125, 48, words, "decided" if number == 0 else "acts")
    canvas.arrow((300, 200), (300, 238), "registrations, heartbeats, changes")
    canvas.arrow((230, 238), (230, 200), dashed=True)
    canvas.text(222, 224, "metadata log", anchor="end")
    return canvas


def record_path() -> Canvas:
    canvas = Canvas(720, 200, "The way of a record from a producer to a consumer")
    steps = ("Producer\nacks=all", "Leader\nchecks, appends", "Log\none write", "Followers\nfetch", "Consumer\nfetches")
    kinds = ("acts", "acts", "kept", "acts", "acts")
    for number, (words, kind) in enumerate(zip(steps, kinds, strict=True)):
        canvas.box(15 + number * 142, 70, 118, 54, words, kind)
        if number:
            canvas.arrow((number * 142 - 9, 97), (number * 142 + 14, 97))
    canvas.arrow((500, 124), (216, 160), dashed=True)
    canvas.text(400, 172, "their next fetch acknowledges: the high watermark moves")
    canvas.arrow((200, 70), (75, 40), dashed=True)
    canvas.text(76, 30, "then the producer is answered", anchor="start")
    return canvas


def replication() -> Canvas:
    canvas = Canvas(640, 230, "Replication: followers fetch from the leader")
    log(canvas, 20, 30, "Leader, broker 1", 8, 6)
    log(canvas, 20, 90, "Follower, broker 2", 7, 6)
    log(canvas, 20, 150, "Follower, broker 3", 6, 6)
    canvas.arrow((420, 104), (420, 62), "fetch from 7")
    canvas.arrow((520, 164), (520, 62), "fetch from 6")
    canvas.mark(329, 20, 190, "high watermark: 6")
    return canvas


def high_watermark() -> Canvas:
    canvas = Canvas(680, 300, "The high watermark moves when every replica in sync has a record")
    for number, (title, ends, committed) in enumerate(
        (
            ("1. written by the leader", (5, 4, 4), 4),
            ("2. one follower has it", (5, 5, 4), 4),
            ("3. all have it", (5, 5, 5), 5),
        )
    ):
        x = 15 + number * 222
        canvas.text(x + 100, 30, title, bold=True)
        for row, (name, end) in enumerate(zip(("L", "F1", "F2"), ends, strict=True)):
            canvas.text(x, 68 + row * 50, name, anchor="start")
            kinds = ["kept" if each < committed else "plain" for each in range(end)]
            canvas.records(x + 26, 50 + row * 50, [str(each) for each in range(end)], kinds)
        canvas.mark(x + 25 + committed * (CELL + 2), 44, 190, f"{committed}")
    canvas.text(340, 250, "Readers see what is left of the mark. The producer with acks=all is answered at 3;")
    canvas.text(340, 270, "if the leader dies at 1 or 2, record 4 may be gone, and it was not acknowledged.")
    return canvas


def in_sync() -> Canvas:
    canvas = Canvas(720, 330, "An in-sync set shrinks, refuses, and grows again, with min.insync.replicas=2")
    rows = (
        ("in sync: 1, 2, 3", "acks=all waits for all three", ("decided", "decided", "decided")),
        ("3 falls out: it has not caught up for 30 s", "acks=all waits for 1 and 2", ("decided", "decided", "gone")),
        ("2 dies: in sync is 1 alone", "acks=all: NOT_ENOUGH_REPLICAS; reads go on", ("decided", "gone", "gone")),
        ("2 and 3 have caught up", "acks=all waits for all three", ("decided", "decided", "decided")),
    )
    for number, (what, then, kinds) in enumerate(rows):
        y = 20 + number * 76
        for broker, kind in enumerate(kinds):
            canvas.box(20 + broker * 72, y, 60, 44, f"{broker + 1}", kind)
        canvas.text(250, y + 18, what, bold=True, anchor="start")
        canvas.text(250, y + 38, then, anchor="start")
        if number:
            canvas.arrow((122, y - 30), (122, y - 3))
    return canvas


def failover() -> Canvas:
    canvas = Canvas(720, 260, "A leader's process dies")
    names = ("Client", "Broker 1", "Controller", "Broker 2")
    for number, name in enumerate(names):
        x = 90 + number * 180
        canvas.box(x - 60, 15, 120, 34, name, "gone" if number == 1 else "decided" if number == 2 else "acts")
        canvas.arrow((x, 49), (x, 245), dashed=True)
    canvas.arrow((90, 75), (266, 75), "Produce")
    canvas.text(270, 100, "kill -9", bold=True, halo=True)
    canvas.arrow((266, 120), (94, 120), "connection ends")
    canvas.arrow((274, 120), (446, 120), "connection ends")
    canvas.arrow((450, 150), (276, 150), "dials: refused, so it is fenced")
    canvas.arrow((454, 180), (626, 180), "leads, epoch + 1")
    canvas.arrow((90, 205), (626, 205), "Metadata: who leads?")
    canvas.arrow((90, 235), (626, 235), "Produce again: what was acknowledged is there")
    return canvas


def group_cases() -> Canvas:
    canvas = Canvas(720, 300, "A group of one, three and four consumers reads three partitions")
    for case, consumers in enumerate((1, 3, 4)):
        left = 15 + case * 240
        canvas.frame(left, 15, 215, 270, f"{consumers} consumer{'s' if consumers > 1 else ''}")
        for partition in range(3):
            y = 50 + partition * 76
            canvas.box(left + 15, y, 60, 40, f"P{partition}", "kept")
            reader = partition if consumers > 1 else 0
            to = 50 + reader * (76 if consumers < 4 else 56) + 20 if consumers > 1 else 146
            canvas.arrow((left + 75, y + 20), (left + 132, to))
        for consumer in range(consumers):
            y = 126 if consumers == 1 else 50 + consumer * (76 if consumers < 4 else 56)
            idle = consumer > 2
            canvas.box(left + 135, y, 68, 40, "idle" if idle else f"C{consumer}", "gone" if idle else "acts")
    return canvas


def two_groups() -> Canvas:
    canvas = Canvas(640, 240, "Two groups read the same topic, each with offsets of its own")
    canvas.text(20, 118, "orders-0", anchor="start")
    canvas.records(100, 100, [str(each) for each in range(12)], ["kept"] * 12)
    canvas.box(120, 20, 150, 40, "group billing", "acts")
    canvas.box(330, 180, 150, 40, "group reports", "acts")
    canvas.arrow((195, 60), (384, 98), "committed: 9")
    canvas.arrow((405, 180), (204, 130), "committed: 3", dashed=True)
    canvas.text(560, 118, "lag 3 and 9")
    return canvas


def two_data_centres() -> Canvas:
    canvas = Canvas(720, 310, "Two data centres, and a third place for a voter")
    for number, name in enumerate(("Data centre A: broker.rack=a", "Data centre B: broker.rack=b")):
        left = 15 + number * 360
        canvas.frame(left, 15, 330, 190, name)
        for broker in range(2):
            canvas.box(
                left + 20 + broker * 150, 45, 135, 56, f"Broker {number * 2 + broker + 1}\none copy of four", "kept"
            )
        canvas.box(left + 95, 130, 135, 50, "Controller\na voter", "decided")
    canvas.arrow((345, 73), (373, 73))
    canvas.arrow((375, 90), (347, 90))
    canvas.frame(245, 225, 230, 75, "A third place")
    canvas.box(295, 248, 135, 44, "Controller\na voter", "decided")
    canvas.arrow((300, 248), (190, 182), dashed=True)
    canvas.arrow((425, 248), (530, 182), dashed=True)
    canvas.text(120, 245, "min.insync.replicas=3:")
    canvas.text(120, 262, "what is acknowledged is in both")
    return canvas


def kubernetes() -> Canvas:
    canvas = Canvas(720, 340, "On Kubernetes: pods with names, volumes and zones of their own")
    for zone in range(3):
        left = 15 + zone * 235
        canvas.frame(left, 15, 220, 240, f"zone {'abc'[zone]} = broker.rack")
        canvas.box(left + 15, 45, 190, 50, f"odradek-broker-{zone}\nhost of its own", "acts")
        canvas.box(left + 15, 103, 190, 30, "claim: data", "kept")
        canvas.box(left + 15, 155, 190, 50, f"odradek-controller-{zone}\nhost of its own", "decided")
        canvas.box(left + 15, 213, 190, 30, "claim: data", "kept")
    canvas.box(15, 280, 330, 44, "Client: bootstrap.servers\nodradek-broker-0.…,-1.…,-2.…", "plain")
    for zone in range(3):
        canvas.arrow((180 + zone * 40, 280), (220 + zone * 200, 97), dashed=True)
    canvas.box(390, 280, 315, 44, "PodDisruptionBudgets\none broker, one controller away", "plain")
    return canvas


def rolling_restart() -> Canvas:
    canvas = Canvas(720, 210, "A rolling restart: drain, stop, start, in sync, then the next")
    steps = (
        "drain\nothers lead",
        "SIGTERM\nends clean",
        "start\nreads its log",
        "catches up\nfetches",
        "/readyz\nin sync",
    )
    for number, words in enumerate(steps):
        canvas.box(
            15 + number * 142, 40, 118, 54, words, "decided" if number == 4 else "gone" if number == 1 else "acts"
        )
        if number:
            canvas.arrow((number * 142 - 9, 67), (number * 142 + 14, 67))
    canvas.arrow((642, 94), (642, 140))
    canvas.box(560, 142, 150, 44, "the next node", "plain")
    canvas.text(280, 160, "meanwhile the two others lead, and min.insync.replicas=2 holds")
    return canvas


def spot() -> Canvas:
    canvas = Canvas(720, 230, "A spot machine goes, its volume comes back with the next")
    canvas.box(20, 40, 180, 60, "machine 10.0.1.7\nnotice: two minutes", "gone")
    canvas.box(270, 130, 180, 60, "volume of broker 21\nodradek-node-id=21", "kept")
    canvas.box(520, 40, 180, 60, "machine 10.0.2.9\nanother market", "acts")
    canvas.arrow((150, 100), (268, 158), "drain, stop, detach")
    canvas.arrow((452, 158), (570, 102), "attach, start")
    canvas.text(360, 30, "broker 21 registers at its new address,")
    canvas.text(360, 48, "and fetches what it missed")
    return canvas


FIGURE: dict[str, Callable[[], Canvas]] = {
    "components": components,
    "failover": failover,
    "group-cases": group_cases,
    "high-watermark": high_watermark,
    "in-sync": in_sync,
    "kubernetes": kubernetes,
    "record-path": record_path,
    "replication": replication,
    "rolling-restart": rolling_restart,
    "spot": spot,
    "two-data-centres": two_data_centres,
    "two-groups": two_groups,
}


def main() -> None:
    FIGURES.mkdir(exist_ok=True)
    for name, draw in FIGURE.items():
        (FIGURES / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
