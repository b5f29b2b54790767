"""A query with much state is killed with -9 and started again, or a standby takes over: how long until it is live?

python -m examples.bigstate --keys 1000000                a broker of its own, a million payments, a restart
python -m examples.bigstate --keys 1000000 --standby      a second query stands by, and takes over
python -m examples.bigstate --keys 1000000 --standby --command      the gate is turned by `odradek groups switch`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer

from examples.bigstate.pipeline import DEAD, GATE, ONCE, PAYMENTS, TIMES
from examples.topics import create_topic, from_now_on, records, refuse_failure
from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.output_lease import transfer as leases
from odradek.client.output_lease.lease import lease_group, progress_group
from odradek.common.real_io import RealClock, RealNetwork
from odradek.testing import EmbeddedBroker

PARTITIONS = 2
NAMELESS = 2  # payments without an id, which become dead letters
READY_S = 1800.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.bigstate", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--live", type=float, default=20.0, help="new payments a second while the query is killed")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds of live payments before and after")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--standby", action="store_true", help="let a second query take over instead of a restart")
    parser.add_argument(
        "--command", action="store_true", help="with --standby: transfer the output lease by the command"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the queries must not outlive us
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bigstate-")))
        bootstrap = stack.enter_context(EmbeddedBroker()).bootstrap_servers
        run = Run(bootstrap, folder, given.keys, given.seed)
        stack.callback(run.close)
        print(f"{given.keys:,} payments, generated, seed {given.seed}", flush=True)
        run.load()
        filled_s = run.start("a")
        print(f"the state of all of them is built in {filled_s:.1f} s", flush=True)
        if given.standby:
            ready_s = run.start("b", standby=True)
            print(f"the standby has caught up in {ready_s:.1f} s", flush=True)
        with run.live(given.live):
            time.sleep(given.settle)
            live_s = run.take_over(by_command=given.command) if given.standby else run.restart()
            what = "the standby took over" if given.standby else "it was started again"
            print(f"killed with -9; {what}: first live output after {live_s:.2f} s", flush=True)
            time.sleep(given.settle)
        lost, twice = run.compare()
        print(f"all sent again: {run.count:,} payments, {lost:,} lost, {twice:,} twice: the state is ", end="")
        print("another" if lost or twice else "equal")
    return 1 if lost or twice else 0


class Run:
    """One run: what was paid, and the queries that let each payment through once."""

    def __init__(self, bootstrap: str, folder: Path, keys: int, seed: int) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.keys = keys
        self.random = random.Random(seed)
        self.count = 0
        self.queries: dict[str, subprocess.Popen[bytes]] = {}
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        )
        for topic in (PAYMENTS, ONCE, DEAD):
            create_topic(bootstrap, topic, PARTITIONS)

    def load(self) -> None:
        """As many payments as the state shall know, and some without an id."""
        for _ in range(NAMELESS):
            self.send(None)
        for _ in range(self.keys):
            self.pay(self.count)
        self.flush()

    def pay(self, number: int) -> None:
        """Send one payment; also one that was sent before."""
        self.send(f"generated-{number}")
        self.count = max(self.count, number + 1)

    def send(self, payment: str | None) -> None:
        """Send what bears the time at which it was sent."""
        value = str(time.time_ns() // 1_000_000)
        while True:
            try:
                self.producer.produce(PAYMENTS, value, payment, on_delivery=refuse_failure)
                break
            except BufferError:
                self.producer.poll(0.1)
        self.producer.poll(0)

    def flush(self) -> None:
        if self.producer.flush(120):
            raise TimeoutError("payments are not acknowledged after 120 s")

    def start(self, group: str, *, standby: bool = False) -> float:
        """Start a query, and wait until it has taken all that there is; seconds from its start."""
        began = time.monotonic()
        self.spawn(group, standby=standby)
        self.await_progress(group)
        return time.monotonic() - began

    def spawn(self, group: str, *, standby: bool = False) -> None:
        """A query in a process group of its own, that it can be killed with all that belongs to it."""
        folder = self.folder / group
        folder.mkdir(exist_ok=True)
        words = [sys.executable, "-m", "examples.bigstate.pipeline", self.bootstrap, group, str(folder)]
        words += ["--standby"] if standby else []
        with (folder / "driver.log").open("ab") as log:
            self.queries[group] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def await_progress(self, group: str) -> None:
        """Wait until a query is where its input ends."""
        from pyspark_odradek.client.cluster import ClientSettings
        from pyspark_odradek.client.cluster import Cluster as BlockingCluster
        from pyspark_odradek.client.offsets import TopicPartition

        cluster = BlockingCluster(ClientSettings.parse({"bootstrap.servers": self.bootstrap}))
        ends = cluster.list_offsets({TopicPartition(PAYMENTS, number): -1 for number in range(PARTITIONS)})
        name = lease_group(GATE) if group == "a" else progress_group(GATE, group)
        deadline = time.monotonic() + READY_S
        while True:
            offsets = cluster.retrying("progress", lambda: cluster.fetch_offsets(name, stable=False))
            found = {(topic, number): offset for topic, number, offset, _ in offsets}
            if all(found.get((key.topic, key.partition_id), 0) >= end for key, end in ends.items()):
                break
            self.look_after()
            if time.monotonic() > deadline:
                raise TimeoutError(f"query {group} is not ready after {READY_S:g} s")
            time.sleep(0.1)
        cluster.close()

    def look_after(self) -> None:
        """Raise where a query has ended that was not killed."""
        for group, process in self.queries.items():
            if process.poll() is not None:
                text = (self.folder / group / "driver.log").read_text(errors="replace")
                raise RuntimeError(f"query {group} ended: {text[-2000:]}")

    @contextmanager
    def live(self, rate: float) -> Iterator[None]:
        """New payments while the block runs, and as many that were sent before."""
        ended = threading.Event()

        def pay() -> None:
            while not ended.wait(1 / rate):
                self.pay(self.random.randrange(self.count))
                self.pay(self.count)

        paying = threading.Thread(target=pay)
        paying.start()
        try:
            yield
        finally:
            ended.set()
            paying.join()
            self.flush()

    def kill(self, group: str) -> None:
        """kill -9 of driver, JVM and workers."""
        process = self.queries.pop(group)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self) -> float:
        """Kill the query and start it again; seconds from the kill to the first output of a payment made after it."""
        times = self.folder / "a" / TIMES
        times.unlink(missing_ok=True)
        with self.first_after() as first:
            self.kill("a")
            self.spawn("a")
        while not times.exists():
            self.look_after()
            time.sleep(0.1)
        noted = json.loads(times.read_text())
        since = {name: noted[name] - first.began_ms / 1000 for name in ("began", "session", "batch")}
        print("  " + ", ".join(f"{name} after {seconds:.2f} s" for name, seconds in since.items()), flush=True)
        print(f"  its first batch, ms: {noted['durations_ms']}", flush=True)
        return first.seconds

    def take_over(self, *, by_command: bool) -> float:
        """Kill the query and transfer the output lease to the standby; seconds as `restart`.

        The process that notices the death runs already, and turns the gate itself. A command is a Python process
        that has to start first.
        """
        with self.first_after() as first:
            self.kill("a")
            began = time.monotonic()
            if by_command:
                command = [sys.executable, "-m", "odradek", "groups", "switch", "a", "b", "--bootstrap-server"]
                subprocess.run([*command, self.bootstrap], check=True, stdout=subprocess.DEVNULL)
            else:
                asyncio.run(turn_gate(self.bootstrap))
            took_s = time.monotonic() - began
        how = "the command" if by_command else "turning the gate"
        print(f"  {how} took {took_s:.2f} s", flush=True)
        return first.seconds

    @contextmanager
    def first_after(self) -> Iterator[First]:
        """Look for the first payment that comes out and was sent after the block began; waits for it at the end."""
        first = First(self.bootstrap)
        looking = threading.Thread(target=first.look)
        looking.start()
        try:
            yield first
            while looking.is_alive():
                self.look_after()
                looking.join(1)
        finally:
            first.ended.set()
            looking.join()

    def compare(self) -> tuple[int, int]:
        """Send all payments again; (how many never came out, how many came out more than once).

        Those without an id come out as dead letters, each once.
        """
        for number in range(self.count):
            self.pay(number)
        self.flush()
        self.await_progress("a")
        found = Counter(message.key() for message in records(self.bootstrap, ONCE, settled=True))
        lost = sum(b"generated-%d" % number not in found for number in range(self.count))
        aside = sum(1 for _ in records(self.bootstrap, DEAD, settled=True))
        return lost + max(0, NAMELESS - aside), found.total() - len(found) + max(0, aside - NAMELESS)

    def close(self) -> None:
        for group in list(self.queries):
            self.kill(group)


async def turn_gate(bootstrap: str) -> None:
    """Does what `odradek groups switch a b` does, without waiting: the standby reads only to the end of the output."""
    async with Cluster(RealNetwork(), RealClock(), parse_bootstrap(bootstrap), client_id="bigstate") as cluster:
        await leases.transfer(cluster, GATE, "a", "b")


class First:
    """The first output that could not have been made before."""

    def __init__(self, bootstrap: str) -> None:
        self.seconds = 0.0
        self.ended = threading.Event()
        self.consumer = from_now_on(bootstrap, ONCE)
        self.began_ms = time.time_ns() // 1_000_000

    def look(self) -> None:
        while not self.ended.is_set():
            message = self.consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            if int(message.value() or 0) > self.began_ms:
                self.seconds = time.time_ns() / 1e9 - self.began_ms / 1000
                break
        self.consumer.close()


if __name__ == "__main__":
    sys.exit(main())
