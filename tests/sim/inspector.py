"""Asks in the end what tools ask: of groups, transactions and producers, until all answers say that nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from odradek.client.cluster import check
from odradek.client.connection import Connection
from odradek.common.errors import ErrorCode, OdradekError
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_groups_response import DescribeGroupsResponse
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.world import World

LATE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND)
AT_REST = ("Empty", "CompleteCommit", "CompleteAbort")
GROUP, TRANSACTION = 0, 1
NO_TRANSACTION = -1


class Inspector(Client):
    """Compares the answers of nodes. Attributes: `differs`: the differences in the last answers."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.differs: list[str] = []

    async def see_groups_empty(self, groups: Sequence[str]) -> None:
        """Groups whose members have all left or died are there, and have none."""
        await self._until(partial(self._groups, groups))

    async def see_transactions_ended(self, producers: dict[str, int], topic: str, partitions: int) -> None:
        """Transactional ids are at rest, on every broker, and no partition has an open transaction.

        Args:
            producers: the last producer of each transactional id; -1 where it is not known.
        """
        await self._until(partial(self._transactions, producers, topic, partitions))

    async def _until(self, ask: Callable[[], Awaitable[list[str]]]) -> None:
        while True:
            try:
                self.differs = await ask()
            except OdradekError as error:
                self.differs = [str(error)]
            if not self.differs:
                return
            await asyncio.sleep(RETRY_S)

    async def _groups(self, groups: Sequence[str]) -> list[str]:
        wrong = []
        for group in groups:
            request = DescribeGroupsRequest(groups=[group])
            (found,) = (
                await self.request(await self._coordinator(group, GROUP), request, DescribeGroupsResponse)
            ).groups
            check(found.error_code, group)
            if found.group_state != "Empty" or found.members:
                wrong.append(f"group {group} is {found.group_state}, with {len(found.members)} members")
        listed: list[tuple[str, str]] = []
        for connection in await self._brokers():
            response = await self.request(connection, ListGroupsRequest(), ListGroupsResponse)
            check(response.error_code, "groups")
            listed += [(each.group_id, each.group_state) for each in response.groups if each.group_id in groups]
        if sorted(listed) != sorted((group, "Empty") for group in groups):
            wrong.append(f"the groups that are listed are {listed}")
        return wrong or [each for group in groups for each in await self._late_commit(group)]

    async def _late_commit(self, group: str) -> list[str]:
        """A commit of a member that has left, in a generation that is over, is refused."""
        topic = next(each for each in (await self.cluster.metadata()).topics if not each.is_internal)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        asked = OffsetCommitRequestTopic(name=topic.name or "", topic_id=topic.topic_id, partitions=[partition])
        request = OffsetCommitRequest(group_id=group, member_id="left", generation_id_or_member_epoch=1, topics=[asked])
        response = await self.request(await self._coordinator(group, GROUP), request, OffsetCommitResponse)
        code = response.topics[0].partitions[0].error_code
        return [] if code in LATE else [f"group {group} answers a late commit with {code}"]

    async def _transactions(self, producers: dict[str, int], topic: str, partitions: int) -> list[str]:
        wrong = []
        listed: dict[str, str] = {}
        for connection in await self._brokers():
            response = await self.request(connection, ListTransactionsRequest(), ListTransactionsResponse)
            check(response.error_code, "transactions")
            listed |= {each.transactional_id: each.transaction_state for each in response.transaction_states}
        wrong += [f"{name} is listed as {state}" for name, state in listed.items() if state not in AT_REST]
        for name, producer_id in producers.items():
            wrong += await self._transactional_id(name, producer_id, listed.get(name))
        for partition in range(partitions):
            asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
            connection = await self.leader_of(topic, partition)
            (found,) = (await self.request(connection, asked, DescribeProducersResponse)).topics[0].partitions
            check(found.error_code, f"{topic}-{partition}")
            wrong += [
                f"producer {each.producer_id} has a transaction open from {each.current_txn_start_offset}"
                for each in found.active_producers
                if each.current_txn_start_offset != NO_TRANSACTION
            ]
        return wrong

    async def _transactional_id(self, name: str, producer_id: int, listed: str | None) -> list[str]:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        connection = await self._coordinator(name, TRANSACTION)
        (found,) = (await self.request(connection, request, DescribeTransactionsResponse)).transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND and self._expires():
            return []
        check(found.error_code, name)
        wrong = []
        if found.transaction_state != listed or found.topics:
            wrong.append(f"{name} is {found.transaction_state} with {len(found.topics)} topics, and listed as {listed}")
        if producer_id not in (-1, found.producer_id):
            wrong.append(f"{name} has producer {found.producer_id}, not {producer_id}")
        return wrong

    def _expires(self) -> bool:
        """Whether an id may be forgotten that is not used."""
        return "transactional.id.expiration.ms" in self.world.settings or bool(self.world.swarm.every_s["clock"])

    async def _brokers(self) -> list[Connection]:
        brokers = (await self.cluster.metadata()).brokers
        return [await self.cluster.connection_to(each.node_id) for each in brokers]

    async def _coordinator(self, key: str, key_type: int) -> Connection:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        response: Any = await self.cluster.request(request, FindCoordinatorResponse)
        (found,) = response.coordinators
        check(found.error_code, key)
        return await self.cluster.connection_to(found.node_id)
