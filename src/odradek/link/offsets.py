"""Copies committed offsets of groups from the source, for groups without members here.

Each broker does this for the groups that it coordinates. The offset of a mirrored topic is committed for the mirror
once the mirror has reached it; before that a consumer would be out of range. Groups with members here are skipped,
since the coordinator refuses commits from outside. If a topic is promoted during a round, its consumers commit here
from then on, so each commit checks the present state of the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from odradek.client.connection import UnreachableError
from odradek.client.groups import CommittedOffset, committed_offsets, list_groups
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.link.same_topics import same_topics
from odradek.settings.link_filters import follows_group, parse_group_filters
from odradek.settings.link_settings import GROUP_FILTERS, OFFSETS

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link

PartitionKey = tuple[str, int]
Offsets = Mapping[PartitionKey, CommittedOffset]
# The group has members here, or another broker coordinates it now.
_NOT_OURS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class GroupsHere(Protocol):
    """The groups of this cluster."""

    async def coordinates(self, group_id: str) -> bool:
        """Whether this broker coordinates the group; creates the topic of the coordinators if needed."""
        ...

    async def committed(self, group_id: str) -> Offsets:
        """The committed offsets of a group. Raises ApiError."""
        ...

    async def commit(self, group_id: str, offsets: Offsets) -> None:
        """Commit for a group without members. Raises ApiError."""
        ...

    async def ends(self, keys: Iterable[PartitionKey]) -> Mapping[PartitionKey, int]:
        """The end offsets of partitions here, without those whose leader does not respond."""
        ...


class OffsetFollower:
    """Copies the offsets of the groups that one broker coordinates."""

    def __init__(self, here: GroupsHere) -> None:
        self._here = here

    async def follow(self, source: Cluster, present: Callable[[], Link]) -> None:
        """One round over all groups; an error of one does not stop the rest.

        Args:
            present: the link as it is now.
        Raises:
            OdradekError: an error of the source or of this cluster, of the first group that failed.
        """
        if not parse_group_filters(present().settings.get(GROUP_FILTERS, "")) or not present().mirrors:
            return
        silent: list[int] = []
        failures: list[OdradekError] = []
        for listed in await list_groups(source, silent=silent):
            if listed.group_type == "share" or not _follows(present(), listed.group_id):
                continue
            try:
                if await self._here.coordinates(listed.group_id):
                    await self._follow_group(source, present, listed.group_id)
            except OdradekError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        if silent:
            raise UnreachableError(f"broker {min(silent)} of the source did not list its groups")

    async def _follow_group(self, source: Cluster, present: Callable[[], Link], group: str) -> None:
        there = await committed_offsets(source, group)
        mirrors = present().by_source
        wanted = {(mirrors[name].topic, number): each for (name, number), each in there.items() if name in mirrors}
        try:
            here = await self._here.committed(group)
            changed = {key: each for key, each in wanted.items() if here.get(key) != each}
            ends = await self._here.ends(changed) if changed else {}
            reached = {key: each for key, each in changed.items() if each.offset <= ends.get(key, -1)}
            same = await same_topics(source, present(), {topic for topic, _ in reached})
            link = present()
            still = {key: each for key, each in reached.items() if key[0] in same and key[0] in link.mirrors}
            if still and _follows(link, group):
                await self._here.commit(group, still)
        except ApiError as error:
            if error.code not in _NOT_OURS:
                raise


def _follows(link: Link, group: str) -> bool:
    is_on = OFFSETS.interval_ms(link.settings) is not None
    return is_on and follows_group(parse_group_filters(link.settings.get(GROUP_FILTERS, "")), group)
