"""`odradek perf`: how fast records are written and read, and how long they take, at a rate that no stall slows down."""

from __future__ import annotations

import datetime
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    Target,
    parse_assignments,
    target,
)
from odradek.cli.errors import FAILED, INTERRUPTED, NOT_FOUND, CliError
from odradek.cli.names import TopicArgument, TopicOption, one_topic
from odradek.cli.numbers import finite
from odradek.cli.output import JsonOption, check_writable, note, print_json, print_table

if TYPE_CHECKING:
    from odradek.cli.perf.consuming import Reader
    from odradek.cli.perf.load import Load, Window
    from odradek.cli.perf.producing import Sender
    from odradek.cli.perf.run import Outcome

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure how fast and how soon records pass.")

SizeOption = Annotated[
    str, typer.Option("--size", help="Bytes of a value, or the least and the greatest: 100-2000.", metavar="BYTES")
]
RecordsOption = Annotated[int, typer.Option("--records", help="End after so many; 0: only after --seconds.", min=0)]
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


@app.command("produce")
def produce(
    name: TopicArgument = None,
    topic: TopicOption = None,
    size: SizeOption = "1024",
    rate: Annotated[
        float, typer.Option("--rate", help="Records a second; 0: as fast as it goes.", min=0, callback=finite)
    ] = 0,
    records: RecordsOption = 0,
    seconds: SecondsOption = 10,
    keys: KeysOption = 0,
    threads: ThreadsOption = 1,
    acks: AcksOption = "all",
    compression_codec: CodecOption = "none",
    linger_ms: LingerOption = 5,
    interval: IntervalOption = 1,
    csv: CsvOption = None,
    svg: SvgOption = None,
    command_property: CommandPropertyOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records, and time their acknowledgements from when each was due."""
    load = _load(size, rate, records, seconds, keys, threads)
    test = _Test(
        target(bootstrap_server, command_config),
        one_topic(name, topic),
        parse_assignments(command_property, "--command-property"),
    )
    test.check_topic()
    check_writable(csv, svg)
    senders = test.senders(load, acks, compression_codec, linger_ms)
    outcome = _run(senders, [], interval)
    _show(outcome, f"produce {test.topic}", csv, svg, as_json=as_json)
    if outcome.total.failed:
        raise typer.Exit(FAILED)


@app.command("consume")
def consume(
    name: TopicArgument = None,
    topic: TopicOption = None,
    records: Annotated[int, typer.Option("--records", help="End after so many; 0: at the end.", min=0)] = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", help="End after so long; 0: at the end.", min=0, callback=finite)
    ] = 0,
    threads: Annotated[int, typer.Option("--threads", help="Consumers, each a thread.", min=1, max=64)] = 1,
    interval: IntervalOption = 1,
    csv: CsvOption = None,
    svg: SvgOption = None,
    command_property: CommandPropertyOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read all that a topic has now, without a group, and say how fast that was."""
    from odradek.cli.perf import report

    test = _Test(
        target(bootstrap_server, command_config),
        one_topic(name, topic),
        parse_assignments(command_property, "--command-property"),
    )
    test.check_topic()
    check_writable(csv, svg)
    readers, ends = test.readers_of_all(threads)
    started = datetime.datetime.now()
    outcome = _run([], readers, interval, ends, seconds, records)
    if not as_json:
        typer.echo(", ".join(report.CONSUMER_COLUMNS))
        typer.echo(report.consumer_line(outcome, started))
    _show(outcome, f"consume {test.topic}", csv, svg, as_json=as_json)


@app.command("latency")
def latency(
    name: TopicArgument = None,
    topic: TopicOption = None,
    size: SizeOption = "1024",
    rate: Annotated[float, typer.Option("--rate", help="Records a second.", min=0.01, callback=finite)] = 1000,
    records: RecordsOption = 0,
    seconds: SecondsOption = 10,
    keys: KeysOption = 0,
    threads: ThreadsOption = 1,
    acks: AcksOption = "all",
    compression_codec: CodecOption = "none",
    linger_ms: LingerOption = 0,
    interval: IntervalOption = 1,
    csv: CsvOption = None,
    svg: SvgOption = None,
    command_property: CommandPropertyOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write at a rate and read it at once: from due to acknowledged, and from due to read."""
    load = _load(size, rate, records, seconds, keys, threads)
    test = _Test(
        target(bootstrap_server, command_config),
        one_topic(name, topic),
        parse_assignments(command_property, "--command-property"),
    )
    _both(test, load, (acks, compression_codec, linger_ms), interval, (csv, svg), as_json=as_json)


@app.command("soak")
def soak(
    name: TopicArgument = None,
    topic: TopicOption = None,
    minutes: Annotated[float, typer.Option("--minutes", help="How long.", min=0.01, callback=finite)] = 60,
    size: SizeOption = "1024",
    rate: Annotated[float, typer.Option("--rate", help="Records a second.", min=0.01, callback=finite)] = 1000,
    keys: KeysOption = 0,
    threads: ThreadsOption = 1,
    acks: AcksOption = "all",
    compression_codec: CodecOption = "none",
    linger_ms: LingerOption = 5,
    interval: IntervalOption = 10,
    csv: CsvOption = None,
    svg: SvgOption = None,
    command_property: CommandPropertyOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """As latency, for long, while brokers stop and start: ends with 1 where an acknowledged record was not read."""
    load = _load(size, rate, 0, minutes * 60, keys, threads)
    test = _Test(
        target(bootstrap_server, command_config),
        one_topic(name, topic),
        parse_assignments(command_property, "--command-property"),
    )
    _both(test, load, (acks, compression_codec, linger_ms), interval, (csv, svg), as_json=as_json)


def _load(size: str, rate: float, records: int, seconds: float, keys: int, threads: int) -> Load:
    from odradek.cli.perf.load import Load, parse_sizes

    if not records and not seconds:
        raise CliError("--records 0 --seconds 0 never ends; give one of them", code=2)
    # Where records are named, they are the end.
    return Load(parse_sizes(size), rate, records, 0.0 if records else seconds, keys, threads)


def _both(
    test: _Test, load: Load, how: tuple[str, str, float], interval: float, files: _Files, *, as_json: bool
) -> None:
    """Write and read, and say what got lost."""
    test.check_topic()
    check_writable(*files)
    reader = test.reader_from_now()
    outcome = _run(test.senders(load, *how), [reader], interval)
    _show(outcome, f"{test.topic}, {load.rate:g} records/s", *files, as_json=as_json)
    if outcome.lost:
        raise CliError(f"{outcome.lost:,} records were acknowledged and not read", code=FAILED)
    if outcome.total.failed:
        raise typer.Exit(FAILED)


_Files = tuple[Path | None, Path | None]


class _Test:
    """Which topic, where, and the clients for it."""

    def __init__(self, where: Target, topic: str, given: dict[str, str]) -> None:
        self.topic = topic
        self._where = where
        self._given = given
        # What this run sends is known by this number.
        self._run = SystemRandom().getrandbits(63)

    def check_topic(self) -> None:
        """Raises CliError where there is no such topic: none is made by measuring."""
        from odradek.cli.kafka_client import client_settings, topic_exists

        settings, troubles = client_settings(self._where, {}, {})
        if not topic_exists(settings, self._where, self.topic, troubles):
            hint = f"create it with `odradek topics create {self.topic}`"
            raise CliError(f"topic {self.topic} does not exist; {hint}", code=NOT_FOUND)

    def senders(self, load: Load, acks: str, codec: str, linger_ms: float) -> list[Sender]:
        from confluent_kafka import Producer

        from odradek.cli.kafka_client import client_settings, made, topic_partitions
        from odradek.cli.perf.producing import Sender

        own = {
            "acks": acks,
            "compression.type": codec,
            "linger.ms": linger_ms,
            "enable.idempotence": acks in ("all", "-1"),
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
        found = []
        for thread in range(load.threads):
            settings, troubles = client_settings(self._where, own, self._given)
            producer = made(Producer, settings)
            # Connected before the clock runs.
            topic_partitions(producer, self._where, self.topic, troubles)
            found.append(Sender(producer, self.topic, load, self._run, thread))
        return found

    def _consumer(self, *, shows_ends: bool = False) -> tuple[Any, list[int]]:
        from confluent_kafka import Consumer

        from odradek.cli.kafka_client import client_settings, made, topic_partitions

        # A group is asked for by the client, and none is touched: partitions are assigned, and nothing is committed.
        own = {"group.id": "odradek-perf", "enable.auto.commit": False, "auto.offset.reset": "error"}
        own["enable.partition.eof"] = shows_ends
        settings, troubles = client_settings(self._where, own, self._given)
        consumer = made(Consumer, settings)
        return consumer, topic_partitions(consumer, self._where, self.topic, troubles)

    def reader_from_now(self) -> Reader:
        """One consumer of what comes from now on."""
        from odradek.cli.perf.consuming import Reader

        consumer, partitions = self._consumer()
        ends = {partition: high for partition, (_, high) in self._offsets(consumer, partitions).items()}
        return Reader(consumer, ends, self.topic, run=self._run)

    def readers_of_all(self, threads: int) -> tuple[list[Reader], list[dict[int, int]]]:
        """Consumers that share the partitions, and where each is to end."""
        from odradek.cli.perf.consuming import Reader

        readers, ends = [], []
        for thread in range(threads):
            consumer, partitions = self._consumer(shows_ends=True)
            own = partitions[thread::threads]
            if not own:
                consumer.close()
                note(f"{threads} threads for {len(partitions)} partitions: {len(partitions)} read")
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
    """One line of what the C client raised."""
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
        return Run(senders, readers, interval, _progress, ends or ()).go(seconds, records)
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
        note(f"{at_s:7.1f} s: {producer_line(window, seconds)}{read}{failed}")
    else:
        megabytes = window.read_bytes / MIB
        rate = f"{window.read / max(seconds, 1e-6):.1f} records/sec ({megabytes / max(seconds, 1e-6):.2f} MB/sec)"
        note(f"{at_s:7.1f} s: {window.read} records read, {rate}")


def _show(outcome: Outcome, title: str, csv: Path | None, svg: Path | None, *, as_json: bool) -> None:
    from odradek.cli.perf import report
    from odradek.cli.perf.picture import draw

    if csv is not None:
        report.write_csv(csv, outcome)
    if svg is not None:
        svg.write_text(draw(outcome, title), encoding="utf-8")
    if as_json:
        print_json(report.as_json(outcome))
    else:
        if outcome.total.sent:
            typer.echo(report.producer_summary(outcome.total, outcome.seconds) + "\n")
        rows = report.latency_rows(outcome.total)
        if rows:
            print_table(report.HEADINGS, rows)
        if outcome.total.read_us.count:
            typer.echo(f"\n{outcome.total.read:,} read, {outcome.lost:,} lost, {outcome.repeated:,} repeated")
    for text, count in sorted(outcome.total.errors.items()):
        note(f"{count:,} records were not acknowledged: {text}")
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
