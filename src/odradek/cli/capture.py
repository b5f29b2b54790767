"""`odradek capture`: committed changes of a PostgreSQL database as records (change data capture)."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    Target,
    target,
)
from odradek.cli.errors import FAILED, NOT_FOUND, UNREACHABLE, USAGE, CliError
from odradek.cli.kafka_client import client_settings
from odradek.cli.output import JsonOption, print_json, print_table, say, say_on_stderr
from odradek.cli.retries import Retries, until_stopped

if TYPE_CHECKING:
    from odradek.capture.capture import Capture, Options
    from odradek.capture.database import Database
    from odradek.capture.formats import Format

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Capture changes of a PostgreSQL database.")

NEEDED = "capture needs psycopg: pip install 'odradek[postgres]'"

DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        help="As postgresql://user@host/database; keep the password in ~/.pgpass.",
        metavar="URL",
        envvar="ODRADEK_CAPTURE_DATABASE",
    ),
]
NameOption = Annotated[
    str, typer.Option("--name", help="Of the capture: its replication slot, publication and transactional id.")
]
TablesOption = Annotated[list[str], typer.Option("--table", help="As schema.table; repeat it.", metavar="TABLE")]
PrefixOption = Annotated[str, typer.Option("--topic-prefix", help="Topics are named PREFIX.schema.table.")]
FormatOption = Annotated[
    Literal["row", "debezium"],
    typer.Option("--format", help="Values: the row after the change, or Debezium's envelope."),
]


@app.command("run")
def run(
    database: DatabaseOption,
    table: TablesOption,
    name: NameOption = "odradek",
    topic_prefix: PrefixOption = "cdc",
    value_format: FormatOption = "row",
    schemas: Annotated[
        bool, typer.Option("--schemas", help="With --format debezium: keys and values carry their Connect schemas.")
    ] = False,
    partitions: Annotated[int, typer.Option("--partitions", help="Of topics that are created.", min=1)] = 3,
    on_truncate: Annotated[
        Literal["fail", "skip"], typer.Option("--on-truncate", help="With --format row: the effect of TRUNCATE.")
    ] = "fail",
    snapshot_again: Annotated[
        bool, typer.Option("--snapshot-again", help="Read all rows again, as after a lost slot.")
    ] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when all changes are written.")] = False,
    report: Annotated[float, typer.Option("--report", help="Seconds between two lines of progress.", min=1)] = 60,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
) -> None:
    """Write all rows, and then each change once, until Ctrl-C."""
    if schemas and value_format != "debezium":
        raise CliError("--schemas needs --format debezium", code=USAGE)
    _need_psycopg()
    from odradek.capture.capture import Options

    options = Options(
        name,
        tuple(dict.fromkeys(table)),
        topic_prefix,
        partitions,
        compacted=value_format == "row",
        skip_truncate=on_truncate == "skip",
        snapshot_again=snapshot_again,
    )
    _check_names(options)
    make_format = _format_of(value_format, topic_prefix, schemas=schemas)
    capture = _Run(target(bootstrap_server, command_config), database, options, make_format, report)
    with until_stopped():
        capture.follow(until_idle=until_idle)


@app.command("status")
def status(database: DatabaseOption, name: NameOption = "odradek", as_json: JsonOption = False) -> None:
    """Show how far the capture is behind, and how much log the database keeps for it."""
    slot = _with_database(database, name, lambda connected: connected.slot())
    if slot is None:
        raise CliError(f"the database has no slot {name}; `odradek capture run` creates it", code=NOT_FOUND)
    if as_json:
        found = {"name": name, "active": slot.active, "wal_status": slot.wal_status}
        print_json({**found, "behind_bytes": slot.behind_bytes, "retained_bytes": slot.retained_bytes})
        return
    row = [name, "yes" if slot.active else "no", slot.wal_status, slot.behind_bytes, slot.retained_bytes]
    print_table(["NAME", "ACTIVE", "WAL-STATUS", "BEHIND-BYTES", "RETAINED-BYTES"], [row])


@app.command("drop")
def drop(database: DatabaseOption, name: NameOption = "odradek", as_json: JsonOption = False) -> None:
    """Drop the slot and the publication; topics stay. The database then keeps no log for the capture."""
    if not _with_database(database, name, lambda connected: connected.drop()):
        raise CliError(f"the database has no slot {name}", code=NOT_FOUND)
    if as_json:
        print_json({"name": name, "dropped": True})
    else:
        say(f"slot {name} dropped")


class _Run:
    """`odradek capture run`: connects, and connects again when the database goes away."""

    def __init__(
        self,
        where: Target,
        url: str,
        options: Options,
        make_format: Callable[[str], Callable[[Mapping[str, list[str]]], Format]],
        report_s: float,
    ) -> None:
        self._url = url
        self._options = options
        self._make_format = make_format
        self._report_s = report_s
        self._clients, errors = client_settings(where, {}, {})
        self._retries = Retries(where, f"capture named {options.name}", errors)
        self._is_announced = False
        self._changes = 0

    def follow(self, *, until_idle: bool) -> None:
        """Raises CliError where a person must act."""
        import psycopg
        from confluent_kafka import KafkaException

        while True:
            try:
                self._connected_run(until_idle=until_idle)
                return
            except psycopg.errors.ObjectInUse as error:  # by another capture, which finds out that it is fenced
                say_on_stderr(f"the database: {_first_line(error)}; trying again")
            except psycopg.Error as error:
                # The state of something is wrong, and not the moment: a slot went further than this capture.
                is_final = isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState)
                if not self._retries.was_connected or is_final or not isinstance(error, psycopg.OperationalError):
                    raise _database_error(error) from None
                say_on_stderr(f"the database does not answer: {_first_line(error)}; trying again")
            except (KafkaException, TimeoutError) as error:
                self._retries.report_failure(error)
            self._retries.wait()

    def _connected_run(self, *, until_idle: bool) -> None:
        from odradek.capture.capture import Capture
        from odradek.capture.database import Database

        with Database(self._url, self._options.name) as database:
            if database.keeps_without_limit() and not self._retries.was_connected:
                say_on_stderr(
                    "while a capture does not run, the database keeps its log without a limit:"
                    " set max_slot_wal_keep_size there"
                )
            make_format = self._make_format(database.database_name)
            capture = Capture(database, self._clients, self._options, make_format, self._report_snapshot)
            with closing(capture):
                if not self._is_announced:
                    say_on_stderr(f"capturing {', '.join(self._options.tables)}")
                self._is_announced = self._retries.was_connected = True
                # Once it is taken, a lost connection does not ask for another one.
                self._options = replace(self._options, snapshot_again=False)
                if until_idle:
                    self._changes += capture.catch_up(database.flushed_lsn())
                    say(f"{self._changes:,} changes written")
                    return
                self._follow(capture)

    def _follow(self, capture: Capture) -> None:
        from odradek.capture.capture import PAUSE_S

        reported_s = time.monotonic()
        while True:
            began_s = time.monotonic()
            written = capture.step()
            self._changes += written
            if written and began_s - reported_s >= self._report_s:
                behind_s = max(time.time() - capture.last_commit_us / 1e6, 0.0)
                say_on_stderr(f"{self._changes:,} changes written, {behind_s:.1f} s behind the database")
                reported_s = began_s
            if not written:
                # Each look decodes the log since the oldest open transaction: a slow one is not repeated at once.
                time.sleep(max(PAUSE_S, time.monotonic() - began_s))

    def _report_snapshot(self, rows: int) -> None:
        self._retries.was_connected = True  # a connection that is lost in a long snapshot is made again
        say_on_stderr(f"{rows:,} rows of the snapshot written")


def _format_of(
    name: str, prefix: str, *, schemas: bool
) -> Callable[[str], Callable[[Mapping[str, list[str]]], Format]]:
    """A function from the database's name to the factory of the format, which gets the keys of the tables."""
    from odradek.capture.formats import DebeziumFormat, RowFormat

    if name == "row":
        return lambda database: RowFormat
    return lambda database: lambda keys: DebeziumFormat(keys, prefix, database, schemas=schemas)


def _check_names(options: Options) -> None:
    """Raises CliError for names that PostgreSQL or Kafka would refuse later, and tables of one topic."""
    if not re.fullmatch(r"[a-z0-9_]{1,63}", options.name):
        raise CliError("--name is also the slot's: use lower-case letters, digits and '_', at most 63", code=USAGE)
    tables: dict[str, str] = {}
    for table in options.tables:
        if not re.fullmatch(r"[^.]+\.[^.]+", table):
            raise CliError(f"--table {table}: name tables as schema.table", code=USAGE)
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", options.topic_of(table)):
            text = f"{options.topic_of(table)} cannot be a topic: use letters, digits, '.', '_' and '-', at most 249"
            raise CliError(text, code=USAGE)
        other = tables.setdefault(options.topic_of(table), table)
        if other != table:
            text = f"{other} and {table} have one topic, {options.topic_of(table)}: capture one of them apart, under"
            raise CliError(f"{text} another --name and --topic-prefix", code=USAGE)


def _need_psycopg() -> None:
    if importlib.util.find_spec("psycopg") is None:
        raise CliError(NEEDED)


def _with_database(url: str, name: str, work: Callable[[Database], Any]) -> Any:
    """Run `work` with a connected database and return its result. Raises CliError."""
    _need_psycopg()
    import psycopg

    from odradek.capture.database import Database

    try:
        with Database(url, name) as database:
            return work(database)
    except psycopg.Error as error:
        raise _database_error(error) from None


def _database_error(error: Exception) -> CliError:
    """An error of PostgreSQL or libpq as one line."""
    import psycopg

    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        # libpq repeats what it cannot read, which may have the password.
        return CliError("--database is not a connection string: postgresql://user@host/database", code=USAGE)
    code = UNREACHABLE if isinstance(error, psycopg.OperationalError) else FAILED
    return CliError(f"PostgreSQL: {_first_line(error)}; see --database", code=code)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
