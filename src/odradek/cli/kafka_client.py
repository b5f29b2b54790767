"""librdkafka for `odradek produce` and `odradek consume`: settings, errors as one line, and rates."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odradek.cli.connect import Target, unreachable
from odradek.cli.errors import BAD_CONFIG, FAILED, NOT_FOUND, UNREACHABLE, CliError
from odradek.cli.output import say_on_stderr

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

# A bootstrap address that takes a connection answers within the sum of these, or it is no broker. In between, the
# client is asked whether it has already seen a refused connection.
ANSWER_STEPS_S = (0.3, 0.7, 3.0, 6.0)
CONNECT_TIMEOUT_S = sum(ANSWER_STEPS_S)
# Below both of these a rate would be that of starting and ending, or of a person's typing.
RATED_RECORDS = 1000
RATED_BYTES = 1_000_000
# How long a topic that was just created may take to have leaders.
NEW_TOPIC_TIMEOUT_S = 5.0
# How long a broker may take to hear of a topic that another one has created.
UNKNOWN_TOPIC_TIMEOUT_S = 1.0

NO_KERBEROS = (
    "the librdkafka of confluent-kafka's wheel has no GSSAPI: build confluent-kafka for one that has it"
    " (pip install --no-binary confluent-kafka confluent-kafka), or log in by another mechanism"
)

# Settings of Java clients that the C client does not have; they change nothing that matters to these commands.
_JAVA_ONLY = frozenset(
    {
        "auto.include.jmx.reporter",
        "buffer.memory",
        "client.dns.lookup",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "partitioner.class",
        "request.timeout.ms",
        "value.deserializer",
        "value.serializer",
    }
)


class ClientErrors:
    """The errors that the client reported while it ran."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.all_down = False
        self._reported = False

    def add(self, error: KafkaError) -> None:
        """Record an error; the client calls this."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
        else:
            self.texts.append(error.str())

    def report(self) -> None:
        """Print once that no broker can be reached; the client keeps trying."""
        if self.all_down and not self._reported:
            say_on_stderr("odradek: no broker answers any more; waiting for one to come back")
            self._reported = True

    def clear(self) -> None:
        """Records flow again: report the next error."""
        self.all_down = self._reported = False

    def text(self, otherwise: str) -> str:
        """The first error as text."""
        # The client begins with its own name of the connection, and ends with how often it tried.
        first = self.texts[0] if self.texts else otherwise
        refused = any("refused" in text for text in self.texts)
        return "connection refused" if refused else first.rpartition("/bootstrap: ")[2].partition(" (after ")[0]


def client_settings(where: Target, own: dict[str, Any], given: dict[str, str]) -> tuple[dict[str, Any], ClientErrors]:
    """The settings for the C client, and the errors that its callback collects.

    Settings of the command are overridden by those of the file, and these by --command-property.
    """
    errors = ClientErrors()

    settings = {
        "bootstrap.servers": where.bootstrap,
        "client.id": "odradek-cli",
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
        # Its messages for standard error go to `errors`.
        "log_level": 0,
        "error_cb": errors.add,
    }
    return {**settings, **own, **_translated(where.properties), **given}, errors


def _translated(properties: dict[str, str]) -> dict[str, Any]:
    """A file for Kafka's tools with the names of librdkafka. Raises CliError."""
    from odradek.client.sasl import SaslSettingError
    from odradek.security.client.settings import librdkafka_settings
    from odradek.security.tls.config import TlsSettingError

    try:
        found = librdkafka_settings({key: value for key, value in properties.items() if key not in _JAVA_ONLY})
    except SaslSettingError as error:
        raise CliError(f"--command-config: {error}", code=BAD_CONFIG) from None
    except TlsSettingError as error:
        raise CliError(f"TLS: {error}", code=BAD_CONFIG) from None
    found.pop("bootstrap.servers", None)
    return found


def made(client: type[Any], settings: dict[str, Any]) -> Any:
    """A Producer or Consumer. Raises CliError for an invalid setting."""
    from confluent_kafka import KafkaException

    try:
        return client(settings)
    except KafkaException as error:
        text = error.args[0].str() if error.args else str(error)
        if "No provider for SASL mechanism GSSAPI" in text:
            raise CliError(NO_KERBEROS, code=BAD_CONFIG) from None
        raise CliError(f"{text}; correct it in --command-config or --command-property", code=BAD_CONFIG) from None


def topic_partitions(client: Any, where: Target, topic: str, errors: ClientErrors) -> list[int]:
    """The partitions of a topic, once all of them have leaders.

    Raises:
        CliError: no broker answers, or there is no such topic.
    """
    from confluent_kafka import KafkaError, KafkaException

    absent = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
    began = time.monotonic()
    while True:
        try:
            found = _metadata(client, topic, errors).topics[topic]
        except KafkaException as error:
            raise failed(error, where, errors) from None
        if found.error is None and found.partitions:
            return sorted(found.partitions)
        if found.error is not None and found.error.code() not in absent:
            raise CliError(f"topic {topic}: {found.error.str()}", code=FAILED)
        unknown = found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if time.monotonic() - began > (UNKNOWN_TOPIC_TIMEOUT_S if unknown else NEW_TOPIC_TIMEOUT_S):
            raise CliError(
                f"topic {topic} does not exist; create it with `odradek topics create {topic}`", code=NOT_FOUND
            )
        time.sleep(0.2)


def topic_exists(settings: dict[str, Any], where: Target, topic: str, errors: ClientErrors) -> bool:
    """Whether a topic exists. A producer's lookup would create it; a consumer's does not. Raises CliError."""
    from confluent_kafka import Consumer, KafkaError, KafkaException

    client = made(Consumer, {**settings, "group.id": "odradek-cli-without-a-group"})
    try:
        found = _metadata(client, topic, errors).topics[topic]
    except KafkaException as error:
        raise failed(error, where, errors) from None
    finally:
        client.close()
    return found.error is None or found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART


def failed(error: KafkaException, where: Target, errors: ClientErrors) -> CliError:
    """The error of the C client as one line."""
    from confluent_kafka import KafkaError

    reason = error.args[0]
    if reason.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
        return unreachable(where, f"cannot connect to {where.bootstrap}: {errors.text(reason.str())}")
    if reason.code() == KafkaError._RESOLVE:
        return CliError(f"{where.bootstrap}: the name cannot be resolved; correct --bootstrap-server", code=UNREACHABLE)
    return CliError(reason.str(), code=FAILED)


def _metadata(client: Any, topic: str, errors: ClientErrors) -> Any:
    from confluent_kafka import KafkaException

    for step_s in ANSWER_STEPS_S:
        try:
            return client.list_topics(topic, timeout=step_s)
        except KafkaException as error:
            last = error
            client.poll(0)  # in which the client reports its errors
            if errors.all_down:
                break
    raise last


class Counter:
    """The number and rate of records."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._began = time.monotonic()
        self._last = self._began

    def add(self, size_bytes: int, *, records: int = 1) -> None:
        self.records += records
        self.bytes += size_bytes
        self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time from the start to the last record, without waiting for more."""
        return max(self._last - self._began, 1e-6)

    @property
    def _rated(self) -> bool:
        return self.records >= RATED_RECORDS or self.bytes >= RATED_BYTES

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.records / self.seconds, 1) if self._rated else None,
        }

    def text(self, what: str) -> str:
        """`1,000 records (10.0 MB) written in 0.50 s: 2,000 records/s, 20.0 MB/s`, or `1 record (5 bytes) written`."""
        if not self.records:
            return f"0 records {what}"
        said = f"{self.records:,} record{'s' * (self.records != 1)} ({size_text(self.bytes)}) {what}"
        if not self._rated:
            return said
        rate = f"{self.records / self.seconds:,.0f} records/s, {size_text(self.bytes / self.seconds)}/s"
        return f"{said} in {self.seconds:,.2f} s: {rate}"


def size_text(size_bytes: float) -> str:
    """A size as text: `812 bytes`, `1.2 kB`, `3.4 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} byte{'s' * (round(size_bytes) != 1)}"
    if size_bytes < 100_000:
        return f"{size_bytes / 1e3:,.1f} kB"
    return f"{size_bytes / 1e6:,.1f} MB"


class Bar:
    """A progress bar on standard error, or nothing."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task
        self._next_update = 0.0

    def show(self, done: int) -> None:
        """Update the bar; cheap enough for every record."""
        if self._progress is None:
            return
        now = time.monotonic()
        if now >= self._next_update:
            self._progress.update(self._task, completed=done)
            self._next_update = now + 0.1


@contextmanager
def progress_bar(what: str, total: int | None, *, wanted: bool = True) -> Iterator[Bar]:
    """A progress bar on a terminal while the block runs; rich is imported only then.

    Args:
        total: in the unit of `show`; None where it is not known.
        wanted: False where the terminal is needed for the records themselves.
    """
    if not wanted or not sys.stderr.isatty():
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    if total is not None:
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task(what, total=total))
