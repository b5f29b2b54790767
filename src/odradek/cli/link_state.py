"""The output of `odradek links describe`, `promote` and `failover`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from odradek.cli.output import print_table, say

Row = dict[str, Any]
_MISSING = ("topic", "partition", "end", "source_end", "missing", "reason")


def show(found: Row) -> None:
    """Print a link and its mirrors."""
    say(f"{found['link']} mirrors from {found['source']}")
    for key, value in sorted(found["settings"].items()):
        say(f"  {key}={'(hidden)' if value is None else value}")
    if found["reason"]:
        say(f"mirrors nothing {_since(found)}: {found['reason']}")
    for what, reason in sorted(found["beside"].items()):
        say(f"{what} are not copied {_since(reason)}: {reason['reason']}")
    names = ["topic", "partition", "state", "end", "source_end", "lag", "lag_seconds", "bytes"]
    if any(row["source_topic"] != row["topic"] for row in found["partitions"]):
        names.insert(1, "source_topic")
    headings = [*(name.upper().replace("_", "-") for name in names), "REASON"]
    print_table(headings, [[*_cells(row[name] for name in names), _why(row)] for row in found["partitions"]])
    for row in found["partitions"]:
        if row["skipped"]:
            where = f"{row['topic']}-{row['partition']}"
            say(f"{where}: the source deleted {row['skipped']} offsets before they were fetched")
        if row["cut"]:
            say(cut_line(row))


def cut_line(row: Row) -> str:
    """The cut of a partition in a failback."""
    cut = row["cut"]
    # A leader that found nothing to cut does not know the failback file of an earlier leader.
    what = "the removed records are not known; an earlier leader may have a .failback- file in its log.dirs"
    if cut["file"]:
        what = f"its {cut['bytes']} bytes from there on are in {cut['file']}"
    return f"{row['topic']}-{row['partition']} was cut to {cut['offset']} on broker {cut['broker']}: {what}"


def _cells(values: Iterable[Any]) -> list[str]:
    return ["-" if value is None else str(value) for value in values]


def _why(row: Row) -> str:
    return f"{row['reason']} ({_since(row)})" if row["reason"] else ""


def _since(row: Row) -> str:
    return f"since {datetime.fromtimestamp(row['since_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def show_missing(rows: list[Row]) -> None:
    """Print the missing offsets before mirrors are promoted."""
    headings = [name.upper().replace("_", "-") for name in _MISSING]
    print_table(headings, [_cells(row[name] for name in _MISSING) for row in rows])
    say("Missing offsets are counted up to the last known end of the source; later records are not known here.")
