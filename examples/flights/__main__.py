"""`make demo`: three nodes, a year of flights, a Spark pipeline, kill -9 of a leader midway, a proof at the end."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from examples.flights import data, page, report
from examples.flights.feed import Feed, create_topics
from examples.flights.nodes import Nodes
from examples.flights.pipeline import Pipeline, start
from examples.flights.proof import Proof, prove

# The leader is killed when this much is fed and every query has done a batch, or late in the year at any rate.
KILL_AT_RATIO = 0.4
KILL_BY_RATIO = 0.85
# So long the cluster is on its own; the pipeline and the producer go on meanwhile.
DOWN_S = 5.0
# Once all is fed, the pipeline has so long to come to its end: a stuck one must fail and not hang.
FINISH_TIMEOUT_S = 240.0


class DemoError(Exception):
    """The demo did not show what it should; the text says why."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the nodes running at the end, until Ctrl-C")
    parser.add_argument("--no-kill", action="store_true", help="let all brokers live")
    parser.add_argument("--days", type=int, help="only the first days of the year")
    parser.add_argument("--pace", type=float, default=45.0, help="seconds that the year takes at least (default 45)")
    parser.add_argument("--port", type=int, help="of the first broker, the others follow; free ones by default")
    parser.add_argument("--dir", type=Path, default=Path("build/demo"), help="for everything; emptied first")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console.width = 120
    folder = options.dir.resolve()
    if folder.exists() and not (folder / ".odradek-demo").exists() and any(folder.iterdir()):
        console.print(f"[red]{folder} holds files that are not of a demo; name another folder with --dir[/]")
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / ".odradek-demo").touch()
    demo = Demo(console, folder, Nodes(folder / "nodes", options.port), options)
    try:
        return 0 if demo.run().holds else 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except DemoError as failure:
        console.print(f"[bold red]failed:[/] {failure}")
        return 1
    finally:
        demo.close()


class Demo:
    """One run."""

    def __init__(self, console: Console, folder: Path, nodes: Nodes, options: argparse.Namespace) -> None:
        self.console = console
        self.folder = folder
        self.nodes = nodes
        self.options = options
        self.status = report.Status()
        self.began = time.monotonic()
        self.spark: Any = None
        self.feed: Feed | None = None
        self.pipeline: Pipeline | None = None
        self.interrupted = False
        self._reported = -1
        self._batches_at_kill: dict[str, int] = {}

    def run(self) -> Proof:
        """All of it; raises DemoError."""
        from pyspark_odradek import session

        self.listen()
        say = self.console.print
        started_s = self.nodes.start()
        say(f"three nodes up on {self.nodes.bootstrap} after {started_s:.2f} s")
        csv_folder = data.unpack(self.folder / "source")
        days = data.days(csv_folder, limit=self.options.days)
        self.feed = feed = Feed(self.nodes.bootstrap, csv_folder, days, self.options.pace * len(days) / 366)
        create_topics(self.nodes.bootstrap)
        feed.send_tables()
        say(f"{feed.total:,} flights of {len(days)} days are ready; Spark starts")
        self.spark = session("flights", master="local[2]", log_file=self.folder / "spark.log", config=SPARK)
        self.listen()  # once more: Spark has put a handler of its own there
        self.heed()
        self.pipeline = start(self.spark, self.nodes.bootstrap, self.folder)
        self.status.nodes = f"three up on {self.nodes.bootstrap}"
        feed.start()
        with self.live():
            self.while_feeding()
            self.tell("all days are sent; the pipeline comes to its end")
            self.finish()
        self.pipeline.stop()
        self.heed()
        proof, database = prove(self.nodes, csv_folder, self.folder, days)
        report.show_results(self.console, database)
        report.show_proof(self.console, proof)
        page.draw(database, self.folder / "chart.png", self.status.killed_on)
        run = page.Run(len(days), self.seconds, self.status.killed_on, datetime.now(UTC))
        page.write_page(self.folder / "report.html", database, proof, run)
        say(f"chart {self.folder / 'chart.png'}, page {self.folder / 'report.html'}, {self.seconds:.0f} s in all")
        say(f"[bold {'green' if proof.holds else 'red'}]{proof.summary}[/]")
        if proof.holds and self.options.keep:
            self.keep()
        return proof

    def listen(self) -> None:
        """Let Ctrl-C, a terminal's hang-up and a plain kill end the demo in order, with the nodes stopped."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.interrupt)

    def interrupt(self, *_: object) -> None:
        """Remember it until `heed`: in the midst of a call to the JVM an exception would leave that half done."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def heed(self) -> None:
        """Raise KeyboardInterrupt where a signal asked to end."""
        if self.interrupted:
            raise KeyboardInterrupt

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def while_feeding(self) -> None:
        """Wait for the feed to end; kill a leader once, where the year is at KILL_AT_RATIO."""
        assert self.feed is not None
        while self.feed.is_alive():
            if not self.options.no_kill and self.status.killed_on is None and self.is_time_to_kill():
                self.kill_and_restart()
            self.look_after()
            time.sleep(0.1)
        self.look_after()

    def is_time_to_kill(self) -> bool:
        """Whether feed and pipeline are both under way."""
        assert self.feed is not None and self.pipeline is not None
        if self.feed.done_ratio >= KILL_BY_RATIO:
            return True
        return self.feed.done_ratio >= KILL_AT_RATIO and min(self.pipeline.batches().values()) > 0

    def kill_and_restart(self) -> None:
        """kill -9 of a leader, a while in which the others serve, and a start over the same files."""
        assert self.feed is not None and self.pipeline is not None
        self.status.killed_on = self.feed.date
        before = self.feed.acknowledged
        self._batches_at_kill = self.pipeline.batches()
        node_id, led = self.nodes.kill_leader("flights")
        killed_at = time.monotonic()
        partitions = " and ".join(f"flights-{partition_id}" for partition_id in led)
        self.status.nodes = f"node {node_id} KILLED with -9, the others go on"
        self.tell(
            f"broker {node_id}, the leader of {partitions}, killed with -9; {before:,} flights were acknowledged, "
            f"and the queries had done {sum(self._batches_at_kill.values())} batches"
        )
        whole_day = self.feed.day + 1
        acknowledged = False
        while time.monotonic() < killed_at + DOWN_S or not acknowledged:
            self.look_after()
            if not acknowledged and self.feed.day > whole_day:
                acknowledged = True
                after_s = time.monotonic() - killed_at
                self.tell(f"the others have acknowledged a whole day more, {after_s:.1f} s after the kill")
            time.sleep(0.02)
        meanwhile = self.feed.acknowledged - before
        started_s = self.nodes.restart()
        self.status.nodes = f"three up on {self.nodes.bootstrap}"
        self.tell(f"broker {node_id} is back over its files in {started_s:.2f} s; {meanwhile:,} flights came meanwhile")

    def tell(self, event: str) -> None:
        """Put a line below the display."""
        self.status.events.append(f"{self.seconds:.0f} s: {event}")

    def finish(self) -> None:
        """Wait until each query has read all and its watermark has passed everything. Raises DemoError."""
        assert self.pipeline is not None and self.feed is not None
        last_day = self.feed.days[-1].date
        deadline = time.monotonic() + FINISH_TIMEOUT_S
        while not all(self.is_finished(name, last_day) for name in self.pipeline.queries):
            self.look_after()
            if time.monotonic() > deadline:
                raise DemoError(f"the pipeline did not come to its end in {FINISH_TIMEOUT_S:g} s")
            time.sleep(0.1)
        for query in self.pipeline.queries.values():
            query.processAllAvailable()

    def is_finished(self, name: str, last_day: str) -> bool:
        """Whether a query has read to the end and, if it has a watermark, run a batch with it behind the last day."""
        assert self.pipeline is not None
        progress: Any = self.pipeline.queries[name].lastProgress
        if progress is None or any(source.endOffset != source.latestOffset for source in progress.sources):
            return False
        watermark = progress.eventTime.get("watermark")
        return watermark is None or str(watermark)[:10] > last_day

    def look_after(self) -> None:
        """Raise DemoError where something ended that must not; tell progress where there is no terminal to draw on."""
        assert self.pipeline is not None and self.feed is not None
        self.heed()
        failure = self.pipeline.failure() or (f"the feed ended: {self.feed.failure}" if self.feed.failure else None)
        if failure:
            raise DemoError(failure)
        waiting = self._batches_at_kill
        if waiting and all(count > waiting[name] for name, count in self.pipeline.batches().items()):
            self._batches_at_kill = {}
            self.tell("producer and all four queries have gone on by themselves")
        tenth = int(self.feed.done_ratio * 10)
        if not self.console.is_terminal and tenth != self._reported:
            self._reported = tenth
            self.console.print(self.frame())

    def frame(self) -> Any:
        """The live display as it is now."""
        assert self.feed is not None
        return report.live_view(self.status, self.feed, self.pipeline, self.seconds)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Draw while the block runs; without a terminal only at its end."""
        if not self.console.is_terminal:
            yield
            self.console.print(self.frame())
            return
        with Live(get_renderable=self.frame, console=self.console, refresh_per_second=4):
            yield

    def keep(self) -> None:
        """Leave the nodes up for playing with, until Ctrl-C."""
        address = self.nodes.bootstrap.partition(",")[0]
        self.console.print(
            f"\nThe nodes stay up on {self.nodes.bootstrap} until Ctrl-C. Try, in another terminal:\n"
            f"  odradek topics list --bootstrap-server {address}\n"
            f"  odradek consume --topic delays-by-hour --from-beginning --max-messages 5 --bootstrap-server {address}\n"
        )
        while not self.interrupted:
            time.sleep(0.2)

    def close(self) -> None:
        """Stop everything that was started, in the reverse order; another Ctrl-C does not shorten it."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        steps: list[Callable[[], Any]] = []
        if self.feed is not None:
            steps.append(self.feed.stopping.set)
        if self.pipeline is not None:
            steps.append(self.pipeline.stop)
        if self.spark is not None:
            steps.append(self.spark.stop)
        steps.append(self.nodes.stop)
        for step in steps:
            try:
                step()
            except Exception as error:  # the rest must be stopped all the same
                self.console.print(f"[yellow]while stopping: {type(error).__name__}: {str(error)[:200]}[/]")


# Two partitions on two cores: state stores cost files and time, and this state is small.
SPARK = {"spark.sql.shuffle.partitions": 2, "spark.sql.streaming.minBatchesToRetain": 10, "spark.driver.memory": "2g"}

if __name__ == "__main__":
    sys.exit(main())
