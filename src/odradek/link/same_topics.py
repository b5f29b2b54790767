"""Which of a link's topics are still those at the source that it began with: what is asked by name may be of others."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link


async def same_topics(source: Cluster, link: Link, topics: Collection[str]) -> set[str]:
    """Those mirrors whose topic at the source has the id that the link knows. `topics` are their names here.

    Asked after something was read of them by name, it says whose that was: an id does not come back.
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
