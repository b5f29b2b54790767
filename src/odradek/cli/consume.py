"""`odradek consume`: read records to standard output or a file, as lines or as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import typer

from odradek.cli.completion import group_names, topic_names
from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    Target,
    parse_assignments,
    target,
)
from odradek.cli.errors import BAD_CONFIG, USAGE, CliError
from odradek.cli.group_coordinator import CoordinatorWatch
from odradek.cli.kafka_client import (
    CONNECT_TIMEOUT_S,
    ClientErrors,
    Counter,
    client_settings,
    failed,
    made,
    progress_bar,
    topic_partitions,
)
from odradek.cli.names import TopicsOption, some_topics
from odradek.cli.output import say_on_stderr
from odradek.cli.record_text import IncomingRecord, Printing, as_json, as_line
from odradek.common.numbers import INT32_MAX, INT64_MAX

app = typer.Typer(add_completion=False)

POLL_S = 0.2
MAX_BATCH = 1000

PartitionOption = Annotated[int | None, typer.Option("--partition", help="Only this partition.", min=0, max=INT32_MAX)]
CountOption = Annotated[int | None, typer.Option("--max-messages", help="End after this number.", min=1, max=INT64_MAX)]


@app.command()
def consume(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The topic to read; with --group several, or ^regex.", autocompletion=topic_names),
    ] = None,
    topic: TopicsOption = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Read as a member of this group, and commit. Else no group is touched.",
            autocompletion=group_names,
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="From the first record, or the group's committed offsets.")
    ] = False,
    partition: PartitionOption = None,
    offset: Annotated[
        str | None,
        typer.Option("--offset", help="Where to begin in --partition: earliest, latest, 42, -10 from the end."),
    ] = None,
    max_messages: CountOption = None,
    to_end: Annotated[bool, typer.Option("--to-end", help="End where the topic ended when the command began.")] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="End when nothing came for so long.", min=1, max=INT32_MAX)
    ] = None,
    isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation-level", help="Whether records of open and aborted transactions are shown."),
    ] = "read_uncommitted",
    print_key: Annotated[bool, typer.Option("--print-key", help="Key, separator, value.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="As name:value,name:value.")] = False,
    print_timestamp: Annotated[bool, typer.Option("--print-timestamp", help="In ms since 1970.")] = False,
    print_partition: Annotated[bool, typer.Option("--print-partition", help="The partition.")] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset", help="The offset.")] = False,
    key_separator: Annotated[str, typer.Option("--key-separator", help="Separates printed fields.")] = "\\t",
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file.")] = None,
    command_property: CommandPropertyOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No rate at the end.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    json_lines: Annotated[bool, typer.Option("--json", help="A line of JSON for each record.")] = False,
) -> None:
    """Read records; without --max-messages, --to-end or --timeout-ms until Ctrl-C."""
    topics = some_topics(names, topic)
    _check(topics, group, partition, offset, to_end=to_end)
    separator = key_separator.replace("\\t", "\t")
    shown = Printing(print_timestamp, print_partition, print_offset, print_headers, print_key, separator)
    where = target(bootstrap_server, command_config)
    own = _settings(group, from_beginning, isolation_level, to_end=to_end)
    settings, errors = client_settings(where, own, parse_assignments(command_property, "--command-property"))
    reader = _Reader(where, settings, errors, max_messages=max_messages, timeout_ms=timeout_ms)
    with ExitStack() as opened:
        sink = sys.stdout.buffer if output is None else _opened(output, opened)
        if group is not None:
            reader.subscribe(topics, group)
        else:
            reader.assign(topics[0], partition, _start(offset, from_beginning), to_end=to_end)
        try:
            line_of = _line_maker(shown, json_lines=json_lines)
            reader.run(sink, line_of, bar_wanted=output is not None or not sys.stdout.isatty())
        finally:
            reader.close()
            if not quiet:
                say_on_stderr(reader.counter.text("read"))


def _check(topics: list[str], group: str | None, partition: int | None, offset: str | None, *, to_end: bool) -> None:
    if offset is not None and partition is None:
        raise CliError("--offset needs --partition", code=USAGE)
    if group is not None and (partition is not None or to_end):
        raise CliError("a group decides on partitions; leave --partition and --to-end out, or --group", code=USAGE)
    if group is None and len(topics) != 1:
        raise CliError("several topics need --group", code=USAGE)


def _settings(group: str | None, from_beginning: bool, isolation_level: str, *, to_end: bool) -> dict[str, Any]:
    return {
        "group.id": group or "odradek-cli-without-a-group",
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        # Only offsets of printed records are committed: they are stored batch by batch, below.
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": to_end,
        # The client stops to fetch while it holds 100,000 records; by default it then sleeps a second.
        "fetch.queue.backoff.ms": 5,
        "isolation.level": isolation_level,
    }


class _Reader:
    """A consumer, from its start to the requested end."""

    def __init__(
        self,
        where: Target,
        settings: dict[str, Any],
        errors: ClientErrors,
        *,
        max_messages: int | None,
        timeout_ms: int | None,
    ) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException

        self._end_of_partition = KafkaError._PARTITION_EOF
        self._exception = KafkaException
        self._failure: CliError | None = None
        self.counter = Counter()
        self._where = where
        self._errors = errors
        self._consumer = made(Consumer, settings)
        self._max_messages = max_messages
        self._timeout_ms = timeout_ms
        # The offset (exclusive) at which each partition is done; None reads on.
        self._ends: dict[int, int] | None = None
        self._total = max_messages
        self._watch: CoordinatorWatch | None = None

    def subscribe(self, topics: list[str], group: str) -> None:
        from confluent_kafka import KafkaException

        self._watch = CoordinatorWatch(self._where, group, self._consumer)
        for name in topics:
            if not name.startswith("^"):
                topic_partitions(self._consumer, self._where, name, self._errors)
        try:
            self._consumer.subscribe(topics)
        except KafkaException as error:
            raise CliError(f"--topic: {error.args[0].str()}", code=USAGE) from None

    def assign(self, topic: str, partition: int | None, start: int, *, to_end: bool) -> None:
        """Read partitions without a group. `start` is an offset, or a negative logical one of the client."""
        from confluent_kafka import TopicPartition

        partitions = topic_partitions(self._consumer, self._where, topic, self._errors)
        if partition is not None and partition not in partitions:
            raise CliError(f"topic {topic} has no partition {partition}; it has {len(partitions)}", code=USAGE)
        chosen = partitions if partition is None else [partition]
        if to_end:
            chosen = self._set_ends(topic, chosen, start)
        self._consumer.assign([TopicPartition(topic, one, start) for one in chosen])

    def _set_ends(self, topic: str, partitions: Sequence[int], start: int) -> list[int]:
        """Stop at the present ends of the partitions; returns the partitions that have records."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            marks = {
                one: self._consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=CONNECT_TIMEOUT_S)
                for one in partitions
            }
        except KafkaException as error:
            raise failed(error, self._where, self._errors) from None
        begins = {one: _begin(start, low, high) for one, (low, high) in marks.items()}
        self._ends = {one: high for one, (_, high) in marks.items() if begins[one] < high}
        waiting = sum(high - begins[one] for one, high in self._ends.items())
        self._total = min(waiting, self._max_messages or waiting)
        return sorted(self._ends)

    def run(self, sink: BinaryIO, line_of: Callable[[Any], bytes], *, bar_wanted: bool) -> None:
        """Print records until the end. Raises CliError for an error of the client, after the records before it."""
        last_ms = time.monotonic() * 1000
        with progress_bar("records", self._total, wanted=bar_wanted) as bar:
            while not self._done():
                limit = MAX_BATCH
                if self._max_messages is not None:
                    limit = min(limit, self._max_messages - self.counter.records)
                messages = self._consumer.consume(limit, timeout=POLL_S)
                wanted = [message for message in messages if self._is_wanted(message)]
                if wanted:
                    lines = [line_of(message) for message in wanted]
                    _write_all(sink, b"".join(lines))
                    self._printed(wanted)
                    self.counter.add(sum(map(len, wanted)), records=len(wanted))
                    last_ms = time.monotonic() * 1000
                    bar.show(self.counter.records)
                    self._errors.clear()
                elif self._timeout_ms is not None and time.monotonic() * 1000 - last_ms >= self._timeout_ms:
                    self._check_coordinator(at_end=True)
                    return
                else:
                    self._errors.report()
                    self._check_coordinator()
                if self._failure is not None:
                    raise self._failure

    def close(self) -> None:
        """Leave the group; the offsets of printed records are committed."""
        self._consumer.close()

    def _check_coordinator(self, *, at_end: bool = False) -> None:
        if self._watch is not None:
            self._watch.check(at_end=at_end)

    def _done(self) -> bool:
        if self._max_messages is not None and self.counter.records >= self._max_messages:
            return True
        return self._ends is not None and not self._ends

    def _is_wanted(self, message: Any) -> bool:
        """Whether to print a message; records ends and errors."""
        error = message.error()
        if error is not None and error.code() != self._end_of_partition:
            self._record_failure(error)
            return False
        if self._ends is None:
            return error is None
        end = self._ends.get(message.partition(), 0)
        # The end of a partition shows it even where only markers of transactions, which are never handed out, are
        # left before it.
        if message.offset() >= (end if error is not None else end - 1):
            self._ends.pop(message.partition(), None)
        return error is None and message.offset() < end

    def _record_failure(self, error: Any) -> None:
        """Keep the first error that the client cannot recover from; the records before it are still printed."""
        if self._failure is None and not error.retriable():
            self._failure = failed(self._exception(error), self._where, self._errors)

    def _printed(self, messages: list[Any]) -> None:
        if self._watch is not None:
            last = {(message.topic(), message.partition()): message for message in messages}
            for message in last.values():
                self._consumer.store_offsets(message)


def _write_all(sink: BinaryIO, data: bytes) -> None:
    """Write all bytes. With PYTHONUNBUFFERED, a signal may interrupt a write to standard output."""
    left = memoryview(data)
    while left:
        left = left[sink.write(left) or 0 :]
    sink.flush()


def _line_maker(shown: Printing, *, json_lines: bool) -> Callable[[Any], bytes]:
    """A function that formats a message as a line; fast for values alone."""
    if not json_lines and shown == Printing(separator=shown.separator):
        null = shown.null_marker.encode()

        def value_line(message: Any) -> bytes:
            value: bytes | None = message.value()
            return (null if value is None else value) + b"\n"

        return value_line

    def full_line(message: Any) -> bytes:
        kind, timestamp_ms = message.timestamp()
        record = IncomingRecord(
            message.topic(),
            message.partition(),
            message.offset(),
            timestamp_ms if kind else None,
            message.key(),
            message.value(),
            message.headers() or (),
        )
        return as_json(record) if json_lines else as_line(record, shown)

    return full_line


def _start(offset: str | None, from_beginning: bool) -> int:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    if offset is None:
        return int(OFFSET_BEGINNING if from_beginning else OFFSET_END)
    if offset in ("earliest", "latest"):
        return int(OFFSET_BEGINNING if offset == "earliest" else OFFSET_END)
    try:
        number = int(offset)
    except ValueError:
        raise CliError(f"--offset {offset}: must be earliest, latest or a number", code=USAGE) from None
    if abs(number) > INT64_MAX - 2000:
        raise CliError(
            f"--offset {offset}: no offset is that far; `odradek topics describe` knows the topic", code=USAGE
        )
    # The C client's form of "so many before the end".
    return number if number >= 0 else -2000 + number


def _begin(start: int, low: int, high: int) -> int:
    if start >= 0:
        return max(start, low)
    if start <= -2000:
        return max(high + start + 2000, low)
    return low if start == -2 else high


def _opened(path: Path, opened: ExitStack) -> BinaryIO:
    try:
        return opened.enter_context(path.open("wb"))
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}; name a file that can be written", code=BAD_CONFIG) from None
