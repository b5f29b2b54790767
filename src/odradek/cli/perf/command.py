"""`odradek perf`: measures throughput and latency of producers and consumers.

Load follows a schedule, so that stalls of the brokers count as latency.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    parse_assignments,
    target,
)
from odradek.cli.errors import FAILED, INTERRUPTED, NOT_FOUND, USAGE, CliError
from odradek.cli.names import TopicArgument, TopicOption, one_topic
from odradek.cli.numbers import finite
from odradek.cli.option_groups import with_option_groups
from odradek.cli.output import JsonOption, check_writable, print_json, print_table, say_on_stderr

if TYPE_CHECKING:
    from odradek.cli.perf.consuming import Reader
    from odradek.cli.perf.load import Load, Window
    from odradek.cli.perf.producing import Sender
    from odradek.cli.perf.run import Outcome

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure throughput and latency of any cluster.")

SizeOption = Annotated[
    str, typer.Option("--size", help="Bytes of a value, or the least and the greatest: 100-2000.", metavar="BYTES")
]
RecordsOption = Annotated[int, typer.Option("--records", help="End after this number; 0: only after --seconds.", min=0)]
SecondsOption = Annotated[
    float, typer.Option("--seconds", help="End after so long; 0: only after --records.", min=0, callback=finite)
]
KeysOption = Annotated[int, typer.Option("--keys", help="How many different keys; 0 sends none.", min=0)]
ThreadsOption = Annotated[int, typer.Option("--threads", help="Producers, each a thread.", min=1, max=64)]
AcksOption = Annotated[Literal["all", "-1", "0", "1"], typer.Option("--acks", help="As producers have it.")]
CodecOption = Annotated[
    Literal["none", "gzip", "snappy", "lz4", "zstd"],
    typer.Option("--compression-codec", help="How batches are compressed."),
]
LingerOption = Annotated[
    float, typer.Option("--linger-ms", help="How long a batch waits for more.", min=0, callback=finite)
]
IntervalOption = Annotated[
    float, typer.Option("--interval", help="Seconds between two lines.", min=0.1, max=3600, callback=finite)
]
CsvOption = Annotated[Path | None, typer.Option("--csv", help="Write a line for each interval.", metavar="FILE")]
SvgOption = Annotated[Path | None, typer.Option("--svg", help="Draw rates and latencies over time.", metavar="FILE")]


@dataclass(frozen=True)
class Place:
    """The topic, the cluster, and the settings of the clients."""

    name: TopicArgument = None
    topic: TopicOption = None
    command_property: CommandPropertyOption = None
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP
    command_config: CommandConfigOption = None


@dataclass(frozen=True)
class Written:
    """The records to produce, and the producers."""

    size: SizeOption = "1024"
    keys: KeysOption = 0
    threads: ThreadsOption = 1
    acks: AcksOption = "all"
    compression_codec: CodecOption = "none"

    def load(self, rate: float, records: int, seconds: float) -> Load:
        """The load; raises CliError if it has no end."""
        from odradek.cli.perf.load import Load, parse_sizes

        if not records and not seconds:
            raise CliError("--records 0 --seconds 0 never ends; give one of them", code=USAGE)
        # Where records are named, they are the end.
        return Load(parse_sizes(self.size), rate, records, 0.0 if records else seconds, self.keys, self.threads)


@dataclass(frozen=True)
class Output:
    """The output formats and files."""

    csv: CsvOption = None
    svg: SvgOption = None
    as_json: JsonOption = False

    def check(self) -> None:
        """Raises CliError for a file that cannot be written."""
        check_writable(self.csv, self.svg)

    def show(self, outcome: Outcome, title: str) -> None:
        from odradek.cli.perf import report
        from odradek.cli.perf.picture import draw

        if self.csv is not None:
            report.write_csv(self.csv, outcome)
        if self.svg is not None:
            self.svg.write_text(draw(outcome, title), encoding="utf-8")
        if self.as_json:
            print_json(report.as_json(outcome))
        else:
            _print(outcome)
        for text, count in sorted(outcome.total.errors.items()):
            say_on_stderr(f"{count:,} records were not acknowledged: {text}")
        if outcome.interrupted:
            raise typer.Exit(INTERRUPTED)


@app.command("produce")
@with_option_groups
def produce(
    written: Written,
    rate: Annotated[
        float, typer.Option("--rate", help="Records a second; 0: as fast as it goes.", min=0, callback=finite)
    ] = 0,
    records: RecordsOption = 0,
    seconds: SecondsOption = 10,
    linger_ms: LingerOption = 5,
    interval: IntervalOption = 1,
    *,
    output: Output,
    place: Place,
) -> None:
    """Write records, and time their acknowledgements from when each was due."""
    load = written.load(rate, records, seconds)
    test = _Test(place)
    test.check_topic()
    output.check()
    outcome = _run(test.senders(load, written, linger_ms), [], interval)
    output.show(outcome, f"produce {test.topic}")
    if outcome.total.failed:
        raise typer.Exit(FAILED)


@app.command("consume")
@with_option_groups
def consume(
    records: Annotated[int, typer.Option("--records", help="End after this number; 0: at the end.", min=0)] = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", help="End after so long; 0: at the end.", min=0, callback=finite)
    ] = 0,
    threads: Annotated[int, typer.Option("--threads", help="Consumers, each a thread.", min=1, max=64)] = 1,
    interval: IntervalOption = 1,
    *,
    output: Output,
    place: Place,
) -> None:
    """Read all that a topic has now, without a group, and say how fast that was."""
    from odradek.cli.perf import report

    test = _Test(place)
    test.check_topic()
    output.check()
    readers, ends = test.readers_of_all(threads)
    started = datetime.datetime.now()
    outcome = _run([], readers, interval, ends, seconds, records)
    if not output.as_json:
        typer.echo(", ".join(report.CONSUMER_COLUMNS))
        typer.echo(report.consumer_line(outcome, started))
    output.show(outcome, f"consume {test.topic}")


@app.command("latency")
@with_option_groups
def latency(
    written: Written,
    rate: Annotated[float, typer.Option("--rate", help="Records a second.", min=0.01, callback=finite)] = 1000,
    records: RecordsOption = 0,
    seconds: SecondsOption = 10,
    linger_ms: LingerOption = 0,
    interval: IntervalOption = 1,
    *,
    output: Output,
    place: Place,
) -> None:
    """Write at a rate and read it at once: from due to acknowledged, and from due to read."""
    _write_and_read(place, written, output, written.load(rate, records, seconds), linger_ms, interval)


@app.command("soak")
@with_option_groups
def soak(
    written: Written,
    minutes: Annotated[float, typer.Option("--minutes", help="How long.", min=0.01, callback=finite)] = 60,
    rate: Annotated[float, typer.Option("--rate", help="Records a second.", min=0.01, callback=finite)] = 1000,
    linger_ms: LingerOption = 5,
    interval: IntervalOption = 10,
    *,
    output: Output,
    place: Place,
) -> None:
    """As latency, for long, while brokers stop and start: ends with 1 where an acknowledged record was not read."""
    _write_and_read(place, written, output, written.load(rate, 0, minutes * 60), linger_ms, interval)


def _write_and_read(
    place: Place, written: Written, output: Output, load: Load, linger_ms: float, interval: float
) -> None:
    """Produce and consume at the same time, and report lost records."""
    test = _Test(place)
    test.check_topic()
    output.check()
    reader = test.reader_from_now()
    outcome = _run(test.senders(load, written, linger_ms), [reader], interval)
    output.show(outcome, f"{test.topic}, {load.rate:g} records/s")
    if outcome.lost:
        raise CliError(f"{outcome.lost:,} records were acknowledged and not read", code=FAILED)
    if outcome.total.failed:
        raise typer.Exit(FAILED)


class _Test:
    """A topic, and clients for it."""

    def __init__(self, place: Place) -> None:
        self.topic = one_topic(place.name, place.topic)
        self._where = target(place.bootstrap_server, place.command_config)
        self._given = parse_assignments(place.command_property, "--command-property")
        # The records of this run have this number.
        self._run = SystemRandom().getrandbits(63)

    def check_topic(self) -> None:
        """Raises CliError if the topic does not exist: measurements create no topics."""
        from odradek.cli.kafka_client import client_settings, topic_exists

        settings, errors = client_settings(self._where, {}, {})
        if not topic_exists(settings, self._where, self.topic, errors):
            hint = f"create it with `odradek topics create {self.topic}`"
            raise CliError(f"topic {self.topic} does not exist; {hint}", code=NOT_FOUND)

    def senders(self, load: Load, written: Written, linger_ms: float) -> list[Sender]:
        from confluent_kafka import Producer

        from odradek.cli.kafka_client import client_settings, made, topic_partitions
        from odradek.cli.perf.producing import Sender

        own = {
            "acks": written.acks,
            "compression.type": written.compression_codec,
            "linger.ms": linger_ms,
            "enable.idempotence": written.acks in ("all", "-1"),
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
        found = []
        for thread in range(load.threads):
            settings, errors = client_settings(self._where, own, self._given)
            producer = made(Producer, settings)
            # Connected before the clock runs.
            topic_partitions(producer, self._where, self.topic, errors)
            found.append(Sender(producer, self.topic, load, self._run, thread))
        return found

    def _consumer(self, *, shows_ends: bool = False) -> tuple[Any, list[int]]:
        from confluent_kafka import Consumer

        from odradek.cli.kafka_client import client_settings, made, topic_partitions

        # A group is asked for by the client, and none is touched: partitions are assigned, and nothing is committed.
        own = {"group.id": "odradek-perf", "enable.auto.commit": False, "auto.offset.reset": "error"}
        own["enable.partition.eof"] = shows_ends
        settings, errors = client_settings(self._where, own, self._given)
        consumer = made(Consumer, settings)
        return consumer, topic_partitions(consumer, self._where, self.topic, errors)

    def reader_from_now(self) -> Reader:
        """One consumer that begins at the present ends of all partitions."""
        from odradek.cli.perf.consuming import Reader

        consumer, partitions = self._consumer()
        ends = {partition: high for partition, (_, high) in self._offsets(consumer, partitions).items()}
        return Reader(consumer, ends, self.topic, run=self._run)

    def readers_of_all(self, threads: int) -> tuple[list[Reader], list[dict[int, int]]]:
        """Consumers that share the partitions, and the end offset of each partition."""
        from odradek.cli.perf.consuming import Reader

        readers, ends = [], []
        for thread in range(threads):
            consumer, partitions = self._consumer(shows_ends=True)
            own = partitions[thread::threads]
            if not own:
                consumer.close()
                say_on_stderr(f"{threads} threads for {len(partitions)} partitions: {len(partitions)} read")
                break
            offsets = self._offsets(consumer, own)
            readers.append(Reader(consumer, {each: low for each, (low, _) in offsets.items()}, self.topic))
            ends.append({each: high for each, (_, high) in offsets.items()})
        return readers, ends

    def _offsets(self, consumer: Any, partitions: list[int]) -> dict[int, tuple[int, int]]:
        from confluent_kafka import KafkaException, TopicPartition

        timeout_s = self._where.timeout_ms / 1000
        try:
            return {
                each: consumer.get_watermark_offsets(TopicPartition(self.topic, each), timeout=timeout_s)
                for each in partitions
            }
        except KafkaException as error:
            consumer.close()
            raise _refused(error) from None


def _refused(error: Exception) -> CliError:
    """An error of the C client as one line."""
    return CliError(error.args[0].str() if error.args else str(error), code=FAILED)


def _run(
    senders: list[Sender],
    readers: list[Reader],
    interval: float,
    ends: list[dict[int, int]] | None = None,
    seconds: float = 0,
    records: int = 0,
) -> Outcome:
    from confluent_kafka import KafkaException

    from odradek.cli.perf.run import Run

    try:
        return Run(senders, readers, interval, _progress, ends or ()).run(seconds, records)
    except KafkaException as error:
        raise _refused(error) from None
    finally:
        for reader in readers:
            reader.close()


def _progress(at_s: float, seconds: float, window: Window) -> None:
    from odradek.cli.perf.report import MIB, producer_line

    if window.sent or window.acked:
        read = f", {window.read_us.percentile(99) / 1000:.1f} ms 99th to read" if window.read_us.count else ""
        failed = f", {window.failed} failed" if window.failed else ""
        say_on_stderr(f"{at_s:7.1f} s: {producer_line(window, seconds)}{read}{failed}")
    else:
        megabytes = window.read_bytes / MIB
        rate = f"{window.read / max(seconds, 1e-6):.1f} records/sec ({megabytes / max(seconds, 1e-6):.2f} MB/sec)"
        say_on_stderr(f"{at_s:7.1f} s: {window.read} records read, {rate}")


def _print(outcome: Outcome) -> None:
    from odradek.cli.perf import report

    if outcome.total.sent:
        typer.echo(report.producer_summary(outcome.total, outcome.seconds) + "\n")
    rows = report.latency_rows(outcome.total)
    if rows:
        print_table(report.HEADINGS, rows)
    if outcome.total.read_us.count:
        typer.echo(f"\n{outcome.total.read:,} read, {outcome.lost:,} lost, {outcome.repeated:,} repeated")
