"""Access logs as they happen: lines are sent at their own pace, and what becomes of them is told.

python -m examples.activity                            made-up lines, a broker inside this process, 600 times as fast
python -m examples.activity --file access.log.gz --pace 3600
python -m examples.activity --bootstrap HOST:PORT --folder lake
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from deltalake import DeltaTable

from examples.activity import lines, pipeline
from odradek.testing import EmbeddedBroker
from pyspark_odradek import session


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.activity", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster that runs already")
    parser.add_argument("--file", type=Path, help="an access log in the combined format; made-up lines otherwise")
    parser.add_argument("--pace", type=float, default=600.0, help="how many times as fast as it happened")
    parser.add_argument("--folder", type=Path, help="keeps tables and checkpoints; a temporary one otherwise")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        bootstrap = given.bootstrap or stack.enter_context(EmbeddedBroker()).bootstrap_servers
        pipeline.create_topics(bootstrap)
        spark = session("activity", log_file=folder / "spark.log")
        stack.callback(spark.stop)
        over = threading.Event()
        telling = threading.Thread(target=tell_alerts, args=[bootstrap, over])
        telling.start()
        stack.callback(telling.join)
        stack.callback(over.set)
        often = {"processingTime": "1 second"}
        queries = [
            pipeline.lake(pipeline.hits(spark, bootstrap, "lake"), folder, **often),
            pipeline.sessions(pipeline.hits(spark, bootstrap, "sessions"), folder, **often),
            pipeline.rates(pipeline.hits(spark, bootstrap, "rates"), bootstrap, folder, **often),
        ]
        for query in queries:
            query.processAllAvailable()  # they stand ready
        sent = lines.of_file(given.file) if given.file else lines.generated(1, 600, broken=3)
        print(f"{lines.send(bootstrap, pipeline.LINES, sent, given.pace):,} lines sent")
        for query in queries:
            query.processAllAvailable()
            query.stop()
        report(folder)


def tell_alerts(bootstrap: str, over: threading.Event) -> None:
    """Print alerts as they are raised; this is where a message to somebody's telephone would be sent."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "on-call", "auto.offset.reset": "earliest"})
    consumer.subscribe([pipeline.ALERTS])
    while not over.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            print("ALERT", (message.value() or b"").decode(), flush=True)
    consumer.close()


def report(folder: Path) -> None:
    """What the tables hold; each is made by its first rows."""
    hours = Counter(row["hour"] for row in rows_of(folder / "lake", "hour"))
    for hour, count in sorted(hours.items()):
        print(f"lake, hour {hour}: {count:,} lines")
    over = rows_of(folder / "sessions", "hits")
    print(f"{len(over):,} sessions that are over, {sum(row['hits'] for row in over):,} hits in them")


def rows_of(path: Path, column: str) -> list[dict[str, Any]]:
    """One column of a Delta table; nothing where there is no table yet."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table(columns=[column]).to_pylist()
    return found


if __name__ == "__main__":
    main()
