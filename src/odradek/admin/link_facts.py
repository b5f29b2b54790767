"""Reads links to other clusters, and the state of their mirrors from the brokers that lead them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.admin.plan import PlanError
from odradek.client.admin import ConfigOperation, ResourceType, alter_configs, describe_configs, describe_links
from odradek.client.cluster import Cluster
from odradek.settings.link_settings import LINK_SECRETS
from odradek.settings.links import Link, Mirror, MirrorState, links_of, mirror_key
from odradek.settings.table import SEALED_PREFIX

Row = dict[str, Any]
# How long a broker may take to hear of a link that another one has created.
NEW_LINK_TIMEOUT_S = 3.0
# Of a partition of which no broker says anything.
_UNKNOWN: Row = {
    "end": None,
    "source_end": None,
    "lag": None,
    "lag_seconds": None,
    "bytes": 0,
    "skipped": 0,
    "cut": None,
    "why": "",
    "reason": "",
    "since_ms": -1,
}
_REASON = ("why", "reason", "since_ms")


class UnknownLinkError(PlanError):
    """There is no such link, or the link has no such mirror."""


async def link_settings(cluster: Cluster) -> dict[str, str]:
    """The cluster-wide dynamic settings; secrets have no value. Raises ApiError."""
    (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
    return {entry.name: SEALED_PREFIX if entry.is_sensitive else entry.value or "" for entry in found.configs}


async def links_of_cluster(cluster: Cluster) -> dict[str, Link]:
    """All links, by name. Raises ApiError."""
    return links_of(await link_settings(cluster))


async def link_of_cluster(cluster: Cluster, name: str) -> Link:
    """The link of this name.

    A link that was just created may be unknown to the broker that answers, so it is looked up again for
    `NEW_LINK_TIMEOUT_S`.

    Raises:
        UnknownLinkError: there is none. ApiError.
    """
    deadline_s = time.monotonic() + NEW_LINK_TIMEOUT_S
    while name not in (links := await links_of_cluster(cluster)):
        if time.monotonic() > deadline_s:
            raise UnknownLinkError(f"there is no link {name}")
        await asyncio.sleep(0.1)
    return links[name]


def found_link(name: str, links: Mapping[str, Link]) -> Link:
    """The link with this name. Raises UnknownLinkError."""
    if name not in links:
        raise UnknownLinkError(f"there is no link {name}")
    return links[name]


async def set_mirror_states(cluster: Cluster, link: str, topics: Sequence[str], state: MirrorState) -> None:
    """Set the target state of mirrors. Raises ApiError."""
    changes = [(mirror_key(link, "mirror", topic), ConfigOperation.SET, str(state)) for topic in topics]
    await alter_configs(cluster, ResourceType.BROKER, "", changes)


async def described_links(cluster: Cluster) -> list[Row]:
    """All links, as `described`; one request to each broker. Raises ApiError."""
    links = await links_of_cluster(cluster)
    answers = await describe_links(cluster) if links else {}
    return [await described(cluster, link, answers) for _, link in sorted(links.items())]


async def described(cluster: Cluster, link: Link, answers: Mapping[int, list[Row]] | None = None) -> Row:
    """The link, with a row for each partition of its mirrors, or one row for a mirror without a topic.

    Args:
        answers: responses of the brokers; requested if None.
    """
    if answers is None:
        answers = await describe_links(cluster)
    reports = [each for answer in answers.values() for each in answer if each.get("link") == link.name]
    of_link = next((report for report in reports if report["reason"]), {})
    topics = {topic: reason for report in reports for topic, reason in report["topics"].items()}
    known = {(row["topic"], row["partition"]): row for report in reports for row in report["partitions"]}
    rows = [
        {"topic": mirror.topic, "source_topic": mirror.source_topic, "partition": number, "state": _state(mirror)}
        | {**_UNKNOWN, **_reason(of_link)}
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
    """The partitions of the mirrors in this cluster; -1 for a mirror without a topic."""
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
    return str(mirror.state) if mirror.state in (MirrorState.PAUSED, MirrorState.FAILBACK) else "waiting"


def _reason(row: Row) -> Row:
    return {key: row[key] for key in _REASON} if row else {}
