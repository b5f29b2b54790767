"""A quorum of real processes grows from three voters to five under load, loses two, and shrinks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.raft.quorum_state import uuid_of
from tests.chaos.load import Writer
from tests.support.clients.confluent import create_topic
from tests.support.nodes.node import free_port
from tests.support.nodes.quorum_processes import CLUSTER_ID, QuorumProcess, described, leader_of, write
from tests.support.waiting import eventually_async

TOPIC = "kept"
PARTITIONS = 2


async def voters(nodes: list[QuorumProcess]) -> set[int]:
    found = await described(nodes)
    return set() if found is None else {each.replica_id for each in found[1].current_voters}


def directory_id(node: QuorumProcess) -> UUID:
    lines = (node.data_dir / "meta.properties").read_text().splitlines()
    return uuid_of(next(line.partition("=")[2] for line in lines if line.startswith("directory.id=")))


@asynccontextmanager
async def nodes_of(root: Path) -> AsyncIterator[tuple[list[QuorumProcess], list[QuorumProcess]]]:
    """(five controllers of which one has begun a quorum, two brokers); nothing but that one runs."""
    ports = {node_id: free_port() for node_id in range(101, 106)}
    common: dict[str, object] = {
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports.values()),
        "controller.quorum.auto.join.enable": "true",
    }
    controllers = [QuorumProcess(root, node_id, "controller", common, port) for node_id, port in ports.items()]
    for number, node in enumerate(controllers):
        node.format("--no-initial-controllers" if number else "--standalone")
    own = {"controller.quorum.bootstrap.servers": common["controller.quorum.bootstrap.servers"]}
    brokers = [QuorumProcess(root, node_id, "broker", own).format() for node_id in (1, 2)]
    try:
        controllers[0].start()
        yield controllers, brokers
    finally:
        for node in [*brokers, *controllers]:
            if node.process is not None:
                node.kill()


@pytest.mark.slow
async def test_a_quorum_grows_loses_two_and_shrinks_under_load(tmp_path: Path) -> None:
    async with nodes_of(tmp_path) as (controllers, brokers):
        three = controllers[:3]
        for node in [*three[1:], *brokers]:
            node.start()
        await eventually_async(lambda: _are(three, {101, 102, 103}), "three vote")
        bootstrap = ",".join(node.bootstrap for node in brokers)
        await asyncio.to_thread(create_topic, bootstrap, TOPIC, PARTITIONS)
        writer = Writer("w", bootstrap, TOPIC, PARTITIONS)
        writer.start()
        try:
            await write(controllers, 50_001)
            for node in controllers[3:]:
                node.start()
            await eventually_async(lambda: _are(controllers, {101, 102, 103, 104, 105}), "five vote")
            await write(controllers, 50_002)

            leader = await leader_of(controllers)
            other = next(node for node in controllers if node is not leader)
            leader.kill()
            other.kill()
            await write(controllers, 50_003)
            assert len(await voters(controllers)) == 5

            for node in (leader, other):
                await eventually_async(lambda node=node: _removed(controllers, node), f"{node.node_id} votes no more")
            left = {node.node_id for node in controllers} - {leader.node_id, other.node_id}
            assert await voters(controllers) == left
            await write(controllers, 50_004)
            # Three again: one of them may go as well.
            third = await leader_of(controllers)
            third.kill()
            await write(controllers, 50_005)
            third.start()
        finally:
            await asyncio.to_thread(writer.end)
        assert not writer.refused and not writer.unanswered
        assert sum(len(numbers) for numbers in writer.acknowledged.values()) > 100
        assert not any("Traceback" in node.log_text() for node in [*controllers, *brokers])


async def _are(nodes: list[QuorumProcess], wanted: set[int]) -> bool:
    return await voters(nodes) == wanted


async def _removed(nodes: list[QuorumProcess], gone: QuorumProcess) -> bool:
    request = RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=gone.node_id, voter_directory_id=directory_id(gone)
    )
    leader = await leader_of(nodes)
    answer = await leader.request(request, RemoveRaftVoterResponse)
    return answer.error_code in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)
