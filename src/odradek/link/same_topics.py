"""Checks which topics of a link were not recreated at the source: requests by name may return another topic's data."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link


async def same_topics(source: Cluster, link: Link, topics: Collection[str]) -> set[str]:
    """The mirrors whose topic at the source has the stored id. `topics` are their names here.

    A check after a read by name shows that the data was of this topic, since an id is never used again.
    """
    mirrors = {link.mirrors[topic].source_topic: link.mirrors[topic] for topic in topics if topic in link.mirrors}
    if not mirrors:
        return set()
    found = (await source.metadata(sorted(mirrors))).topics
    ids = {each.name or "": each.topic_id for each in found if not each.error_code}
    return {
        mirror.topic
        for name, mirror in mirrors.items()
        if mirror.source_id is not None and ids.get(name) == mirror.source_id
    }
