"""Which of a link's topics are still those at the source that it began with: what is asked by name may be of others."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link


async def same_topics(source: Cluster, link: Link, topics: Collection[str]) -> set[str]:
    """Those that have the id at the source that the link knows.

    Asked after something was read of them by name, it says whose that was: an id does not come back.
    """
    if not topics:
        return set()
    found = {each.name: each.topic_id for each in (await source.metadata(sorted(topics))).topics if not each.error_code}
    ids = {topic: link.mirrors[topic].source_id for topic in topics if topic in link.mirrors}
    return {topic for topic, source_id in ids.items() if source_id is not None and found.get(topic) == source_id}
