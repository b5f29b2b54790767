"""The example of activity: a lake, sessions, rates and alerts are those that plain Python makes of the same lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from examples.activity import lines, pipeline, proof
from tests.support.clients.confluent import produce_all, read_committed
from tests.support.nodes.node import Node

GAP = timedelta(minutes=30)
# A line long after all others: with it every session and minute before is over.
LAST = '198.51.100.1 - - [03/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "generated \\"last\\""'
# Requests of 8 KB, with which a recursive pattern fails in the JVM; and values that Java and Python read differently.
ODD = [
    f'198.51.100.2 - {user} [03/Jan/2026:00:00:00 +0000] "GET {path} HTTP/1.1" 200 5 "-" "generated"'
    for user, path in (("-", "/" + "a" * 8192), ("-", '\\"' * 4096), ("a\u00a0b", "/"), ("-", "/\\\u2028"))
]


def hits(made: list[str]) -> list[tuple[datetime, str, int]]:
    found = []
    for line in made:
        if (at := lines.time_of(line)) is not None:
            found.append((at, line.split()[0], int(re.findall(r'" (\d{3}) ', line)[0])))
    return found


def sessions(made: list[str]) -> set[tuple[str, datetime, datetime, int, int]]:
    """Visitor, first and last hit, hits, errors."""
    running: dict[str, tuple[str, datetime, datetime, int, int]] = {}
    over = set()
    for at, visitor, status in hits(made):
        before = running.get(visitor)
        if before is not None and at - before[2] >= GAP:
            over.add(before)
            before = None
        began_at, count, errors = (before[1], before[3], before[4]) if before else (at, 0, 0)
        running[visitor] = (visitor, began_at, at, count + 1, errors + (status >= 400))
    return over | set(running.values())


def test_lines_are_the_same_each_time_and_have_one_outage() -> None:
    made = lines.generated(1, 300, broken=4)
    assert made == lines.generated(1, 300, broken=4)
    assert sum(lines.time_of(line) is None for line in made) == 4
    down = [at for at, _, status in hits(made) if status == 503]
    assert len(down) > 20
    assert max(down) - min(down) < timedelta(minutes=lines.OUTAGE_MINUTES)
    assert all(line.startswith(("203.0.113.", "generated")) for line in made)


def run(spark: Any, bootstrap: str, folder: Path) -> None:
    """Run all three queries, one after another, until each has read all records."""
    rows = {name: pipeline.hits(spark, bootstrap, name) for name in ("lake", "sessions", "rates")}
    assert pipeline.lake(rows["lake"], folder, availableNow=True).awaitTermination(400)
    assert pipeline.sessions(rows["sessions"], folder, availableNow=True).awaitTermination(400)
    assert pipeline.rates(rows["rates"], bootstrap, folder, availableNow=True).awaitTermination(400)


def published(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(m.value() or b"") for m in read_committed(bootstrap, topic, 2)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_lines_become_rows_or_dead_letters(spark: Any, tmp_path: Path, runs: int) -> None:
    """If the queries run twice, sessions that end between the runs are there once."""
    with Node(tmp_path / "node") as node:
        become_rows_or_dead_letters(spark, node.bootstrap, tmp_path, runs)


def become_rows_or_dead_letters(spark: Any, odradek: str, tmp_path: Path, runs: int) -> None:
    pipeline.create_topics(odradek)
    made = lines.generated(1, 300, broken=4)
    middle = len(made) // 2 * (runs - 1)
    for part in (made[:middle], [*made[middle:], LAST, *ODD])[2 - runs :]:
        assert lines.send(odradek, pipeline.LINES, part, 0) == len(part)
        run(spark, odradek, tmp_path)

    lake = DeltaTable(str(tmp_path / "lake"))
    assert lake.metadata().partition_columns == ["hour"]
    rows = lake.to_pyarrow_table().to_pylist()
    expected = Counter(at.strftime("%Y-%m-%d-%H") for at, _, _ in hits([*made, LAST, *ODD])) | {pipeline.UNREADABLE: 4}
    assert Counter(row["hour"] for row in rows) == expected
    unreadable = [row for row in rows if row["hour"] == pipeline.UNREADABLE]
    assert sorted(row["line"] for row in unreadable) == sorted(line for line in made if lines.time_of(line) is None)
    read = Counter((row["at"], row["visitor"], row["status"]) for row in rows if row["line"] is None)
    assert read == Counter(hits([*made, LAST, *ODD]))
    (last,) = [row for row in rows if row["visitor"] == "198.51.100.1"]
    assert (last["method"], last["path"], last["bytes"], last["agent"]) == ("GET", "/", 5, r"generated \"last\"")
    odd = [row for row in rows if row["visitor"] == "198.51.100.2"]
    assert Counter((row["user"], row["path"]) for row in odd) == Counter(
        (line.split(" ")[2], line.split(" ")[6]) for line in ODD
    )

    over = DeltaTable(str(tmp_path / "sessions")).to_pyarrow_table().to_pylist()
    columns = ("visitor", "began_at", "last_at", "hits", "errors")
    assert len(over) == len(sessions(made))
    assert {tuple(row[name] for name in columns) for row in over} == sessions(made)

    requests, errors = Counter[datetime](), Counter[datetime]()
    for at, _, status in hits(made):
        requests[at.replace(second=0)] += 1
        errors[at.replace(second=0)] += status >= 500
    rates = {datetime.fromisoformat(each["minute"]): each for each in published(odradek, pipeline.RATES)}
    assert {at.astimezone(UTC): (each["requests"], each["errors"]) for at, each in rates.items()} == {
        at: (requests[at], errors[at]) for at in requests
    }
    alerts = [datetime.fromisoformat(each["minute"]) for each in published(odradek, pipeline.ALERTS)]
    wrong = [at for at in requests if requests[at] >= 10 and errors[at] >= 0.2 * requests[at]]
    assert sorted(alerts) == sorted(wrong)
    assert 2 <= len(wrong) <= lines.OUTAGE_MINUTES + 1

    found = proof.prove(odradek, tmp_path)
    assert found.holds, str(found)
    assert (found.hours, found.sessions, found.hits) == (expected, len(over), len(hits(made)))
    assert (found.minutes, found.reported, found.alerts) == (len(requests), len(hits(made)), len(wrong))
    assert (found.waiting, found.late) == (1 + len(ODD), 0)
    # The proof must notice: a minute published twice, a line that the lake lacks, and one that it has too often.
    reported_again = json.dumps(next(iter(rates.values())))
    lines.send(odradek, pipeline.LINES, [LAST], 0)
    produce_all(odradek, pipeline.RATES, [(b"again", reported_again.encode())])
    damaged = proof.prove(odradek, tmp_path)
    assert (damaged.holds, damaged.lost, damaged.twice, damaged.wrong) == (False, 1, 0, 1)
