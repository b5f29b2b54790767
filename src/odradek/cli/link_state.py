"""What `odradek links describe` shows: what the brokers that lead a link's mirrors say of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from odradek.cli.output import print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link, Mirror

Row = dict[str, Any]
# Of a partition of which no broker says anything.
_UNKNOWN: Row = {
    "end": None,
    "source_end": None,
    "lag": None,
    "lag_seconds": None,
    "bytes": 0,
    "cut": None,
    "why": "",
    "reason": "",
    "since_ms": -1,
}
_REASON = ("why", "reason", "since_ms")


async def described(cluster: Cluster, link: Link) -> Row:
    """The link, with a row for each partition of its mirrors, or for a mirror that has none yet."""
    from odradek.client.admin import describe_links
    from odradek.settings.link_settings import LINK_SECRETS

    answers = await describe_links(cluster)
    reports = [each for answer in answers.values() for each in answer if each.get("link") == link.name]
    of_link = next((report for report in reports if report["reason"]), {})
    topics = {topic: reason for report in reports for topic, reason in report["topics"].items()}
    known = {(row["topic"], row["partition"]): row for report in reports for row in report["partitions"]}
    rows = [
        {"topic": mirror.topic, "partition": number, "state": _state(mirror), **_UNKNOWN, **_reason(of_link)}
        | _reason(topics.get(mirror.topic, {}))
        | known.get((mirror.topic, number), {})
        for mirror, number in await _partitions(cluster, link)
    ]
    return {
        "link": link.name,
        "source": link.bootstrap_servers,
        "settings": {key: None if key in LINK_SECRETS else text for key, text in link.settings.items()},
        **{key: _UNKNOWN[key] for key in _REASON},
        **_reason(of_link),
        "beside": {what: reason for report in reports for what, reason in report["beside"].items()},
        "partitions": rows,
    }


async def _partitions(cluster: Cluster, link: Link) -> list[tuple[Mirror, int]]:
    """Those that there are here; -1 of a mirror that was not made yet."""
    if not link.mirrors:
        return []
    topics = {each.name or "": each for each in (await cluster.metadata(sorted(link.mirrors))).topics}
    found: list[tuple[Mirror, int]] = []
    for name, mirror in sorted(link.mirrors.items()):
        topic = topics.get(name)
        numbers = [] if topic is None or topic.error_code else [each.partition_index for each in topic.partitions]
        found += [(mirror, number) for number in sorted(numbers) or [-1]]
    return found


def _state(mirror: Mirror) -> str:
    return str(mirror.state) if mirror.state in ("paused", "failback") else "waiting"


def _reason(row: Row) -> Row:
    return {key: row[key] for key in _REASON} if row else {}


def show(found: Row) -> None:
    """Print it for a person."""
    say(f"{found['link']} mirrors from {found['source']}")
    for key, value in sorted(found["settings"].items()):
        say(f"  {key}={'(hidden)' if value is None else value}")
    if found["reason"]:
        say(f"nothing comes {_since(found)}: {found['reason']}")
    for what, reason in sorted(found["beside"].items()):
        say(f"{what} do not follow {_since(reason)}: {reason['reason']}")
    names = ["topic", "partition", "state", "end", "source_end", "lag", "lag_seconds", "bytes"]
    headings = [*(name.upper().replace("_", "-") for name in names), "REASON"]
    print_table(headings, [[*_cells(row[name] for name in names), _why(row)] for row in found["partitions"]])
    for row in found["partitions"]:
        if row["cut"]:
            say(cut_line(row))


def cut_line(row: Row) -> str:
    """What was done to a partition as it was failed back."""
    cut = row["cut"]
    what = f"its {cut['bytes']} bytes from there on are in {cut['file']}" if cut["file"] else "nothing was there"
    return f"{row['topic']}-{row['partition']} was cut to {cut['offset']} on broker {cut['broker']}: {what}"


def _cells(values: Iterable[Any]) -> list[str]:
    return ["-" if value is None else str(value) for value in values]


def _why(row: Row) -> str:
    return f"{row['reason']} ({_since(row)})" if row["reason"] else ""


def _since(row: Row) -> str:
    return f"since {datetime.fromtimestamp(row['since_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
