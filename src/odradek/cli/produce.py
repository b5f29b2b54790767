"""`odradek produce`: write records from standard input or files, one a line, one a JSON line, or one a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

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
from odradek.cli.errors import BAD_CONFIG, FAILED, USAGE, CliError
from odradek.cli.kafka_client import (
    ClientErrors,
    Counter,
    client_settings,
    made,
    progress_bar,
    topic_exists,
    topic_partitions,
)
from odradek.cli.names import TopicArgument, TopicOption, one_topic
from odradek.cli.output import print_json, say_on_stderr
from odradek.cli.record_text import Header, LineFormat, OutgoingRecord, parse_header, parse_json, parse_line
from odradek.common.numbers import INT32_MAX

app = typer.Typer(add_completion=False)

AcksOption = Annotated[
    Literal["all", "-1", "0", "1"],
    typer.Option("--acks", help="Acknowledgement by all in-sync replicas, by the leader (1), or none (0)."),
]
CodecOption = Annotated[
    Literal["none", "gzip", "snappy", "lz4", "zstd"],
    typer.Option("--compression-codec", help="How batches are compressed."),
]
FormatOption = Annotated[
    Literal["lines", "json", "file"],
    typer.Option("--format", help="A record is a line, a line of JSON as `consume --json` prints, or a whole file."),
]
FLUSH_STEP_S = 0.2
# Acknowledgements are taken after so many records, or so much time: to do it for each costs as much as to send it.
POLL_RECORDS = 200
POLL_S = 0.1


@app.command()
def produce(
    name: TopicArgument = None,
    topic: TopicOption = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", help="Read this instead of standard input; may be given often.")
    ] = None,
    input_format: FormatOption = "lines",
    key: Annotated[str | None, typer.Option("--key", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="Lines are key, separator, value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="name=value, on every record; may be given often.")
    ] = None,
    parse_headers: Annotated[
        bool, typer.Option("--parse-headers", help="Lines begin with name:value,name:value and a tab.")
    ] = False,
    null_marker: Annotated[
        str | None, typer.Option("--null-marker", help="A key or value of exactly this is null.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", help="Write to this partition alone.", min=0, max=INT32_MAX)
    ] = None,
    acks: AcksOption = "all",
    compression_codec: CodecOption = "none",
    command_property: CommandPropertyOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No rate at the end.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary at the end, as JSON.")] = False,
) -> None:
    """Write records; the command ends well when all of them are acknowledged."""
    topic = one_topic(name, topic)
    _check_format(input_format, file, key, key_separator, parse_headers=parse_headers)
    how = LineFormat(_unescaped(key_separator), parse_headers, null_marker)
    common = _Common(key.encode() if key is not None else None, _headers(header), partition)
    own: dict[str, Any] = {
        "acks": acks,
        "compression.type": compression_codec,
        "linger.ms": 5,
        # A broker that is started again has time to come back; who waits longer says so with --command-property.
        "message.timeout.ms": 60_000,
        "enable.idempotence": acks in ("all", "-1"),
    }
    where = target(bootstrap_server, command_config)
    settings, errors = client_settings(where, own, parse_assignments(command_property, "--command-property"))
    with ExitStack() as opened:
        inputs = [_Input.open(path, opened) for path in file] if file else [_Input.of_standard_input()]
        records = _records(inputs, input_format, how, common)
        writer, created = _connect(where, topic, settings, errors)
        if created and not quiet:
            say_on_stderr(f"Created topic {topic}: the broker makes a topic that is written to, with its defaults.")
        try:
            _write(writer, records, inputs)
        except KeyboardInterrupt:
            if not quiet:
                say_on_stderr(writer.counter.text("written") + writer.unanswered_text())
            raise
    if as_json:
        print_json({"topic": topic, "created": created, **writer.counter.as_json()})
    if not quiet:
        say_on_stderr(writer.counter.text("written"))


def _check_format(
    input_format: str, files: list[Path] | None, key: str | None, key_separator: str | None, *, parse_headers: bool
) -> None:
    """Raises CliError for options that exclude each other."""
    if key is not None and (key_separator is not None or input_format == "json"):
        raise CliError("--key gives all records one key; leave --key-separator and --format json out", code=USAGE)
    if input_format == "file" and not files:
        raise CliError("--format file needs --file; each file is one record", code=USAGE)
    if input_format != "lines" and (key_separator is not None or parse_headers):
        raise CliError("--key-separator and --parse-headers are for --format lines", code=USAGE)


class _Common:
    """The default key, headers and partition of records."""

    def __init__(self, key: bytes | None, headers: list[Header], partition: int | None) -> None:
        self.key = key
        self.headers = headers
        self.partition = partition

    def apply(self, record: OutgoingRecord) -> OutgoingRecord:
        if self.key is not None:
            record.key = self.key
        if self.partition is not None:
            record.partition = self.partition
        record.headers = [*self.headers, *record.headers]
        return record


class _Input:
    """An input of records; `size_bytes` is None if it is no file."""

    def __init__(self, name: str, file: BinaryIO, size_bytes: int | None) -> None:
        self.name = name
        self.file = file
        self.size_bytes = size_bytes
        self.read_bytes = 0

    @property
    def is_file(self) -> bool:
        return self.size_bytes is not None

    @classmethod
    def of_standard_input(cls) -> _Input:
        return cls("standard input", sys.stdin.buffer, None)

    @classmethod
    def open(cls, path: Path, opened: ExitStack) -> _Input:
        try:
            file = opened.enter_context(path.open("rb"))
        except OSError as error:
            raise CliError(f"{path}: {error.strerror}; name a file that can be read", code=BAD_CONFIG) from None
        return cls(str(path), file, path.stat().st_size)

    def lines(self) -> Iterator[bytes]:
        for line in self.file:
            self.read_bytes += len(line)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _records(inputs: list[_Input], input_format: str, how: LineFormat, common: _Common) -> Iterator[OutgoingRecord]:
    for source in inputs:
        if input_format == "file":
            value = source.file.read()
            source.read_bytes = len(value)
            yield common.apply(OutgoingRecord(value))
            continue
        for number, line in enumerate(source.lines(), 1):
            if input_format == "json" and not line.strip():
                continue
            try:
                record = parse_json(line) if input_format == "json" else parse_line(line, how)
            except ValueError as error:
                raise CliError(
                    f"{source.name}, line {number}: {error}; the records before it are written", code=BAD_CONFIG
                ) from None
            yield common.apply(record)


def _connect(where: Target, topic: str, settings: dict[str, Any], errors: ClientErrors) -> tuple[_Writer, bool]:
    """The writer, and whether the topic was created by the lookup. Raises CliError."""
    from confluent_kafka import Producer

    producer = made(Producer, settings)
    existed = topic_exists(settings, where, topic, errors)
    return _Writer(producer, topic, topic_partitions(producer, where, topic, errors), errors), not existed


def _write(writer: _Writer, records: Iterator[OutgoingRecord], inputs: list[_Input]) -> None:
    """Send all records and wait for their acknowledgements, also after Ctrl-C. Raises CliError if one is refused."""
    if not inputs[0].is_file and sys.stdin.isatty():
        say_on_stderr("A record a line; Ctrl-D ends.")
    interrupted: KeyboardInterrupt | None = None
    try:
        _send_all(writer, records, inputs)
    except KeyboardInterrupt as error:
        interrupted = error
    finally:
        writer.flush()
    if writer.refused:
        raise writer.refusal()
    if interrupted is not None:
        raise interrupted


def _send_all(writer: _Writer, records: Iterator[OutgoingRecord], inputs: list[_Input]) -> None:
    sizes = [source.size_bytes for source in inputs]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    with progress_bar("bytes read", total, wanted=not sys.stdin.isatty() or total is not None) as bar:
        for record in records:
            if writer.send(record):
                bar.show(sum(source.read_bytes for source in inputs))
                if writer.refused:
                    return


class _Writer:
    """A producer that counts acknowledgements."""

    def __init__(self, producer: Any, topic: str, partitions: list[int], errors: ClientErrors) -> None:
        from confluent_kafka import KafkaException

        self._partitions = partitions
        self._errors = errors
        self.counter = Counter()
        self.refused: list[Any] = []
        self._sent = 0
        self._producer = producer
        self.topic = topic
        self._exception: type[Exception] = KafkaException
        self._unpolled = 0
        self._last_poll = 0.0

    def send(self, record: OutgoingRecord) -> bool:
        """Pass a record to the client, and process acknowledgements from time to time.

        Raises:
            CliError: no such partition, or what the client says of the record.
        """
        if record.partition is not None and record.partition not in self._partitions:
            raise CliError(
                f"topic {self.topic} has no partition {record.partition}; it has {len(self._partitions)}", code=USAGE
            )
        settings: dict[str, Any] = {"key": record.key, "value": record.value, "on_delivery": self._delivered}
        if record.headers:
            settings["headers"] = record.headers
        if record.partition is not None:
            settings["partition"] = record.partition
        if record.timestamp_ms is not None:
            settings["timestamp"] = record.timestamp_ms
        self._enqueue(settings, record.size_bytes)
        self._sent += 1
        self._unpolled += 1
        now = time.monotonic()
        if self._unpolled < POLL_RECORDS and now - self._last_poll < POLL_S:
            return False
        self._producer.poll(0)
        self._unpolled, self._last_poll = 0, now
        return True

    def _enqueue(self, settings: dict[str, Any], size_bytes: int) -> None:
        """Add a record to the client's queue once there is room."""
        while True:
            try:
                self._producer.produce(self.topic, **settings)
                return
            except BufferError:
                self._producer.poll(FLUSH_STEP_S)  # its queue is full: let it send
                self._errors.report()
            except self._exception as error:
                raise CliError(f"{error.args[0].str()}; {size_bytes} bytes", code=FAILED) from None

    def flush(self) -> None:
        """Wait until all records are acknowledged or one is refused; the client's limit is delivery.timeout.ms."""
        while self._producer.flush(FLUSH_STEP_S) and not self.refused:
            self._errors.report()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.counter.add(len(message.key() or b"") + len(message))
        else:
            self.refused.append(error)

    def unanswered_text(self) -> str:
        """The text to add if a user ends the wait for acknowledgements."""
        count = self._sent - self.counter.records - len(self.refused)
        return f"; {count:,} more sent, and not acknowledged yet" if count else ""

    def refusal(self) -> CliError:
        """The error for the first record that was refused."""
        from confluent_kafka import KafkaError

        error = self.refused[0]
        hint = f"see `odradek topics describe {self.topic}`"
        if error.code() == KafkaError.INVALID_RECORD:
            hint = "a compacted topic takes no record without a key: use --key-separator or --key"
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            hint = f"raise max.message.bytes with `odradek configs alter --topic {self.topic}`"
        elif error.code() == KafkaError._MSG_TIMED_OUT:
            hint = "the broker did not acknowledge in time; look at its log"
        return CliError(f"refused after {self.counter.records:,} records were written: {error.str()}; {hint}")


def _headers(items: list[str] | None) -> list[Header]:
    try:
        return [parse_header(item) for item in items or []]
    except ValueError as error:
        raise CliError(f"--header: {error}", code=USAGE) from None


def _unescaped(text: str | None) -> str | None:
    """A separator as typed in a shell: \t is a tab."""
    return text.replace("\\t", "\t") if text is not None else None
