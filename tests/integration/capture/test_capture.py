"""`odradek capture` over a real PostgreSQL: each change once, slots, faults, Debezium's envelope."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException

from examples.cdc import shop
from odradek.capture import capture
from odradek.capture.database import CaptureError, Database
from odradek.metadata.acls import AclOperation, AclResourceType
from tests.support.clients.cli import odradek, run_here
from tests.support.nodes.captured import LARGE, LAST, Captured, kept, rows_of
from tests.support.nodes.node import Node
from tests.support.nodes.permissions import Rule, allow_rules, node_in_process, port_of
from tests.support.nodes.postgres import Postgres
from tests.support.waiting import eventually


def test_the_command_writes_rows_and_then_changes(captured: Captured, database: Any) -> None:
    database.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
    first = captured.run()
    assert "0 changes written" in first.out and "1 rows of the snapshot written" in first.err
    database.execute("UPDATE public.stock SET pieces = 3")
    database.execute("DELETE FROM public.stock")
    second = captured.run()
    assert "2 changes written" in second.out and "snapshot" not in second.err
    rows = [{"shop": "1", "article": "lamp", "pieces": pieces} for pieces in ("2.00", "3.00")]
    assert captured.values("public.stock") == [*rows, None]
    assert {each.key() for each in captured.records("public.stock")} == {b'{"shop": "1", "article": "lamp"}'}
    status = run_here("capture", "status", "--database", captured.url, "--name", captured.name, "--json").json
    assert status["active"] is False and status["wal_status"] == "reserved" and status["behind_bytes"] < 1 << 20
    dropped = run_here("capture", "drop", "--database", captured.url, "--name", captured.name)
    assert f"slot {captured.name} dropped" in dropped.out
    for command in ("status", "drop"):
        run_here("capture", command, "--database", captured.url, "--name", captured.name, code=4)


def test_changes_that_the_database_repeats_are_written_once(captured: Captured, database: Any) -> None:
    """PostgreSQL repeats changes after a kill between the end of Kafka's transaction and the slot's confirmation."""
    first = captured.start()
    copied = "SELECT pg_copy_logical_replication_slot(%s, %s)"
    database.execute(copied, [captured.name, f"{captured.name}_before"])
    shop.work(database, 1, 40)
    while first.step():
        pass
    sent = captured.count()
    assert sent > 40
    database.execute("SELECT pg_drop_replication_slot(%s)", [captured.name])
    database.execute(copied, [f"{captured.name}_before", captured.name])
    again = captured.start()
    assert again.step() == 0
    database.execute(LAST)
    assert again.step() == 1
    assert captured.count() == sent + 1
    database.execute("DELETE FROM public.stock WHERE shop = 99")
    with pytest.raises(KafkaException):  # the first one is fenced
        first.step()


def test_debeziums_events(captured: Captured, database: Any) -> None:
    database.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
    first = captured.start(debezium=True)
    database.execute("UPDATE public.stock SET pieces = 3")
    database.execute("ALTER TABLE public.stock ADD COLUMN since date")
    database.execute("UPDATE public.stock SET since = '2026-01-02'")
    database.execute("UPDATE public.stock SET article = 'chair'")
    database.execute("DELETE FROM public.stock")
    database.execute("TRUNCATE public.stock")
    while first.step():
        pass
    lamp, chair = {"shop": 1, "article": "lamp"}, {"shop": 1, "article": "chair"}
    dated = {"pieces": "3.00", "since": 20455}
    events = [
        None if value is None else (value["op"], value["before"], value["after"])
        for value in captured.values("public.stock")
    ]
    assert events == [
        ("r", None, {**lamp, "pieces": "2.00"}),
        ("u", {**lamp, "pieces": "2.00"}, {**lamp, "pieces": "3.00"}),
        ("u", {**lamp, "pieces": "3.00", "since": None}, {**lamp, **dated}),
        ("d", {**lamp, **dated}, None),
        None,
        ("c", None, {**chair, **dated}),
        ("d", {**chair, **dated}, None),
        None,
        ("t", None, None),
    ]
    lsns = [value["source"]["lsn"] for value in captured.values("public.stock") if value is not None]
    assert lsns == sorted(lsns)


def test_a_truncate_ends_the_capture_and_leaves_no_transaction_open(captured: Captured, database: Any) -> None:
    """`read_committed` consumers would wait a quarter of an hour for its end."""
    captured.run()
    with database.transaction():
        database.execute(LAST)
        database.execute("TRUNCATE public.stock")
    refused = captured.run(code=1)
    assert refused.err.splitlines()[-1].startswith("odradek: public.stock was truncated")
    assert captured.values("public.stock") == []
    captured.run("--on-truncate", "skip")
    assert [value["shop"] for value in captured.values("public.stock")] == ["99"]


def test_the_slot_of_an_idle_table_does_not_keep_the_log(captured: Captured, database: Any) -> None:
    """Changes of other tables move it on."""
    first = captured.start()
    database.execute("CREATE TABLE public.other AS SELECT g, repeat('x', 1000) FROM generate_series(1, 2000) g")
    assert first.step() == 0
    slot = captured.database().slot()
    assert slot is not None and slot.behind_bytes is not None and slot.behind_bytes < 100_000


def test_a_lost_slot_is_an_error_that_says_what_to_do(captured: Captured, database: Any) -> None:
    captured.run()
    for _ in range(12):  # 16 MB each, of which the slot may keep 64
        database.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000))")
        database.execute("SELECT pg_switch_wal()")
    database.execute("CHECKPOINT")
    refused = captured.run(code=1)
    assert "odradek capture drop" in refused.err and "--snapshot-again" in refused.err
    run_here("capture", "drop", "--database", captured.url, "--name", captured.name)
    refused = captured.run(code=1)
    assert "--snapshot-again" in refused.err
    database.execute(LAST)
    captured.run("--snapshot-again")
    assert [value["shop"] for value in captured.values("public.stock")] == ["99"]


def test_a_row_that_is_too_large_for_its_topic_is_named(captured: Captured, database: Any) -> None:
    """It is written once the topic allows it, although the default limit of clients is 1 MB, too."""
    captured.tables = ("public.customers",)
    captured.catch_up()
    database.execute("INSERT INTO public.customers (id, name, note) VALUES (1, '', ''), (2, '', repeat('x', 2000000))")
    with pytest.raises(CaptureError, match=r'the key {"id": "2"} is a record of 2,000,\d\d\d bytes, more than'):
        captured.catch_up()
    assert captured.values("public.customers") == []
    topic = f"{captured.name}.public.customers"
    odradek(captured.node.bootstrap, "configs", "alter", "--topic", topic, "--add-config", "max.message.bytes=4000000")
    captured.catch_up()
    assert [row["id"] for row in captured.values("public.customers")] == ["1", "2"]


def test_a_database_that_has_lost_its_last_transactions_is_refused(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else new transactions at the old positions would count as written."""
    first = captured.start()
    first.catch_up(captured.database().flushed_lsn())
    monkeypatch.setattr("odradek.capture.capture.IDLE_BYTES", 0)
    captured.database().flush()
    first.step()
    monkeypatch.setattr(Database, "flushed_lsn", lambda database: 1)
    with pytest.raises(CaptureError, match="the database's log ends before the position of the topics"):
        captured.start()


def test_the_permissions_of_the_page_are_enough(
    tmp_path: Path, captured: Captured, server: Postgres, database: Any
) -> None:
    """They are enough for topics that exist; creating a missing topic needs one more."""
    with node_in_process(tmp_path / "node") as guarded:
        place = Captured(captured.node, server, database, ["public.stock"])
        topic, positions = f"{place.name}.public.stock", f"odradek-capture.{place.name}"
        rules: list[Rule] = [
            (AclOperation.WRITE, AclResourceType.TOPIC, topic),
            (AclOperation.WRITE, AclResourceType.TOPIC, positions),
            (AclOperation.READ, AclResourceType.TOPIC, positions),
            (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, f"odradek-capture-{place.name}"),
        ]
        allow_rules(guarded, *rules)
        bootstrap = f"127.0.0.1:{port_of(guarded)}"
        with pytest.raises(CaptureError, match="this user may not create the topic"), place.open:
            place.start(bootstrap=bootstrap)
        allow_rules(guarded, *rules, *((AclOperation.CREATE, kind, name) for _, kind, name in rules[:2]))
        with place.open:
            place.start(bootstrap=bootstrap)
        allow_rules(guarded, *rules)
        database.execute(LAST)
        with place.open:
            assert place.start(bootstrap=bootstrap).catch_up(captured.database().flushed_lsn()) == 1


def client_threads() -> int:
    """The number of threads of librdkafka in this process, whose names begin with `rdk:`."""
    count = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            count += (thread / "comm").read_text().startswith("rdk:")
    return count


def test_a_capture_that_cannot_start_leaves_no_client(captured: Captured) -> None:
    """Nor while its exception is referred to: the client would go on and connect."""
    captured.catch_up()
    captured.open.close()
    before = client_threads()
    with pytest.raises(CaptureError) as kept:
        captured.start(debezium=True)
    eventually(lambda: client_threads() <= before)
    assert kept.tb is not None


def test_topics_of_another_format_are_refused(captured: Captured) -> None:
    captured.catch_up()
    with pytest.raises(CaptureError, match="records of the format row, not debezium: choose another --name"):
        captured.start(debezium=True)


def test_a_slot_of_another_database_is_not_touched(captured: Captured, server: Postgres) -> None:
    captured.catch_up()
    words = ["--database", server.url, "--name", captured.name]
    for command in ("status", "drop"):
        refused = run_here("capture", command, *words, code=1)
        assert "belongs to another database of this server" in refused.err
    assert captured.database().slot() is not None


def test_a_fenced_capture_does_not_confirm_changes_that_it_skipped(captured: Captured, database: Any) -> None:
    """The first one captures fewer tables, and would let the database drop the log of the others."""
    captured.tables = ("public.customers",)
    first = captured.start()
    captured.tables = tuple(shop.TABLES)
    second = captured.start()
    database.execute(LAST)
    with pytest.raises(KafkaException):
        first.step()
    second.step()
    assert [row["shop"] for row in captured.values("public.stock")] == ["99"]


def test_an_idle_database_is_not_read_for_changes(
    captured: Captured, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read costs the database work, and lines in its log."""
    running, looks, changes = captured.start(), [], Database.changes

    def look(database: Database, **options: Any) -> Any:
        looks.append(options)
        return changes(database, **options)

    monkeypatch.setattr(Database, "changes", look)
    while captured.database().flushed_lsn() > running._read_lsn:
        running.step()
    seen = len(looks)
    assert running.step() == 0 and len(looks) == seen


def test_a_wrong_command_line_is_an_error_of_one_line(captured: Captured) -> None:
    where = ["--database", captured.url]
    for words, text in [
        (["--table", "orders"], "schema.table"),
        (["--table", "public.orders", "--name", "My-Slot"], "--name"),
        (["--table", "public.orders", "--schemas"], "--format debezium"),
        (["--table", "public.orders", "--topic-prefix", "a b"], "cannot be a topic"),
        (
            ["--table", "public.a b", "--table", "public.a+b"],
            "public.a b and public.a+b have one topic, cdc.public.a_b",
        ),
    ]:
        assert text in run_here("capture", "run", *where, *words, code=2).err
    for secret in ("postgresql://u:sec%zzret@127.0.0.1/x", "host=127.0.0.1 password=secret bogus"):
        refused = run_here("capture", "status", "--database", secret, code=2)
        assert "--database is not a connection string" in refused.err and "ret" not in refused.err
    nowhere = ["--database", "postgresql://postgres@127.0.0.1:1/x", "--table", "public.orders"]
    assert "PostgreSQL: " in run_here("capture", "run", *nowhere, "-b", captured.node.bootstrap, code=3).err


@pytest.mark.slow  # a server of its own, that is killed
def test_a_capture_continues_after_faults_until_another_starts(node: Node, tmp_path: Path) -> None:
    with Postgres("wal_level=logical") as server, psycopg.connect(server.url, autocommit=True) as first:
        first.execute(shop.SCHEMA)
        place = Captured(node, server, first, ["public.stock"])
        tables = ["--table", "public.stock", "--partitions", "1", "--topic-prefix", place.name, "--name", "again"]
        command = [sys.executable, "-m", "odradek", "capture", "run", "--database", server.url, *tables]
        command += ["-b", node.bootstrap]
        with (tmp_path / "errors").open("w") as errors, subprocess.Popen(command, stderr=errors) as process:
            first.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
            eventually(lambda: exists(node, f"{place.name}.public.stock") and len(place.records("public.stock")) == 1)
            server.kill()
            server.start()
            with psycopg.connect(server.url, autocommit=True) as second:
                second.execute(LAST)
                eventually(lambda: len(place.records("public.stock")) == 2)
                node.kill()
                second.execute("INSERT INTO public.stock VALUES (3, 'lamp', 2)")
            node.start()
            eventually(lambda: len(place.records("public.stock")) == 3)
            assert [value["shop"] for value in place.values("public.stock")] == ["1", "99", "3"]
            with subprocess.Popen(command) as other, psycopg.connect(server.url, autocommit=True) as third:

                def is_fenced() -> bool:
                    third.execute("UPDATE public.stock SET pieces = pieces + 1")
                    return process.poll() is not None

                eventually(is_fenced)
                eventually(lambda: kept(place, "public.stock") == rows_of(third, "public.stock"))
                other.terminate()
                assert other.wait(60) == 0
    assert process.returncode == 1
    assert "has started and fenced this one" in (tmp_path / "errors").read_text().splitlines()[-1]


def exists(node: Node, topic: str) -> bool:
    return topic in odradek(node.bootstrap, "topics", "list").out.split()


@pytest.mark.slow  # fifteen thousand rows
def test_a_large_transaction_stays_whole_with_long_values(captured: Captured, database: Any) -> None:
    """More changes than a producer's queue takes, in one transaction; and rows as many that are there at first."""
    database.execute("CREATE TABLE public.flags (id int PRIMARY KEY, yes boolean, at timestamptz, long text)")
    database.execute("ALTER TABLE public.flags ALTER long SET STORAGE EXTERNAL")
    database.execute("INSERT INTO public.flags VALUES (1, true, 'infinity', repeat('x', 50000)), (2, NULL, NULL, NULL)")
    database.execute(f"INSERT INTO public.stock SELECT 1, g, 1 FROM generate_series(1, {LARGE}) g")
    assert capture.QUEUE < LARGE
    captured.tables = (*shop.TABLES, "public.flags")
    first = captured.start()
    assert len(captured.records("public.stock")) == LARGE
    with database.transaction():
        database.execute("UPDATE public.stock SET pieces = 2")
        database.execute("UPDATE public.flags SET yes = NOT yes")
    assert first.step() == LARGE + 2
    assert captured.start().step() == 0
    found = captured.records("public.stock")
    assert [len(found), sum(b'"2.00"' in (m.value() or b"") for m in found)] == [2 * LARGE, LARGE]
    before, after = (row for row in captured.values("public.flags") if row["id"] == "1")
    assert before == {"id": "1", "yes": "t", "at": "infinity", "long": "x" * 50000}
    assert after == before | {"yes": "f"}
