"""Access logs as they happen: lines are sent at their own pace, and what becomes of them is reported.

python -m examples.activity                            made-up lines, a broker inside this process, 600 times as fast
python -m examples.activity --file access.log.gz --pace 3600
python -m examples.activity --bootstrap HOST:PORT --folder lake
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer

from examples.activity import lines, pipeline
from examples.activity.proof import Proof, prove
from examples.place import Place, arguments, place
from examples.starting import start_all

SEED, VISITS, BROKEN = 1, 600, 3


def main() -> int:
    parser = arguments("activity", __doc__)
    parser.add_argument("--file", type=Path, help="an access log in the combined format; made-up lines otherwise")
    parser.add_argument("--pace", type=float, default=600.0, help="how many times as fast as it happened; 0: at once")
    given = parser.parse_args()
    sent = lines.of_file(given.file) if given.file else lines.generated(SEED, VISITS, broken=BROKEN)
    with place("activity", given) as found:
        return 0 if run(found, sent, given.pace).holds else 1


def run(at: Place, sent: Iterable[str], pace: float) -> Proof:
    """Send lines to the three queries, tell alerts as they are raised, and prove what came out."""
    pipeline.create_topics(at.bootstrap)
    often = {"processingTime": "1 second"}
    with alerts_delivered(at.bootstrap):
        queries = start_all(
            lambda: pipeline.lake(pipeline.hits(at.spark, at.bootstrap, "lake"), at.folder, **often),
            lambda: pipeline.sessions(pipeline.hits(at.spark, at.bootstrap, "sessions"), at.folder, **often),
            lambda: pipeline.rates(pipeline.hits(at.spark, at.bootstrap, "rates"), at.bootstrap, at.folder, **often),
        )
        try:
            for query in queries:
                query.processAllAvailable()  # they stand ready
            print(f"{lines.send(at.bootstrap, pipeline.LINES, sent, pace):,} lines sent", flush=True)
            for query in queries:
                query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
    proof = prove(at.bootstrap, at.folder)
    print(proof)
    return proof


@contextmanager
def alerts_delivered(bootstrap: str) -> Iterator[None]:
    """Print alerts as they are raised; this is where a message to somebody's telephone would be sent."""
    over = threading.Event()

    def tell() -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "on-call", "auto.offset.reset": "earliest"})
        consumer.subscribe([pipeline.ALERTS])
        while True:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                print("ALERT", (message.value() or b"").decode(), flush=True)
            elif over.is_set():
                break
        consumer.close()

    telling = threading.Thread(target=tell)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()


if __name__ == "__main__":
    sys.exit(main())
