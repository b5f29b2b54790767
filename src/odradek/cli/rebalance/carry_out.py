"""Executes a plan: some partitions at a time, throttled. Completed moves are skipped, so that it can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from odradek.cli.errors import CliError
from odradek.cli.partition_moves import View, end_throttle, load_view, progress, throttle_moves
from odradek.cli.partition_plan import Assignment, Replicas
from odradek.cli.partitions import refused
from odradek.cli.rebalance.balance import Weights
from odradek.client.cluster import Cluster
from odradek.client.reassignment import (
    PREFERRED,
    Move,
    elect_leaders,
    is_needless,
    move_replicas,
    ongoing_reassignments,
    replica_sizes,
)
from odradek.common.topic_names import TopicPartition
from odradek.protocol.messages.metadata_response import MetadataResponsePartition

POLL_S = 0.5
MOST_IDLE_POLLS = 60


async def weigh(cluster: Cluster, view: View, watch_s: float) -> dict[TopicPartition, Weights]:
    """The bytes of each partition and their growth, from two samples of the leader's size. Raises ApiError."""
    awake = sorted(view.racks.keys() - view.resting)
    before = await replica_sizes(cluster, awake)
    await asyncio.sleep(watch_s)
    after = await replica_sizes(cluster, awake)
    found = {}
    for key, partition in view.partitions.items():
        disk = max((after.get((key, broker), 0) for broker in partition.replica_nodes), default=0)
        there = after.get((key, partition.leader_id), 0), before.get((key, partition.leader_id), 0)
        found[key] = Weights(disk, max(0.0, (there[0] - there[1]) / watch_s))
    return found


async def left_of(cluster: Cluster, wanted: Assignment) -> dict[TopicPartition, Replicas]:
    """The moves of a plan that are not complete."""
    rows = await progress(cluster, wanted)
    return {
        key: wanted[key]
        for row in rows
        if row["state"] in ("moving", "differs") and (key := (row["topic"], row["partition"]))
    }


async def carry_out(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Replicas],
    *,
    throttle: int,
    at_once: int,
    note: Callable[[str], None],
) -> dict[TopicPartition, Any]:
    """Execute the remaining moves, then elect preferred leaders; returns the errors of failed elections.

    Args:
        throttle: bytes a second that each broker copies at most.
        at_once: partitions whose replicas are copied at the same time.
        note: takes a line of progress.
    Raises:
        CliError: a partition was refused; moves in progress continue.
        ApiError.
    """
    known = (await load_view(cluster)).partitions
    present = {key: replicas for key, replicas in wanted.items() if key in known}
    left = sorted((await left_of(cluster, present)).items())
    note(f"{len(present) - len(left)} of {len(present)} partitions are in place")
    while left:
        batch = dict(left[:at_once])
        await _move(cluster, batch, throttle)
        await _await_moved(cluster, batch)
        left = left[at_once:]
        note(f"{len(present) - len(left)} of {len(present)} partitions are in place")
    # Those of a run that was broken off are limited still.
    await end_throttle(cluster, present)
    results = await elect_leaders(cluster, PREFERRED, present.keys()) if present else {}
    return {key: error for key, error in results.items() if error and not is_needless(error)}


async def _move(cluster: Cluster, batch: dict[TopicPartition, Replicas], throttle: int) -> None:
    view = await load_view(cluster)
    batch = {key: replicas for key, replicas in batch.items() if key in view.partitions}
    ongoing = await ongoing_reassignments(cluster, batch)
    for key, move in ongoing.items():
        # As before the move, so that its new replicas are limited as followers, now by this rate.
        there = [broker for broker in move.replicas if broker not in move.adding]
        view.partitions[key] = MetadataResponsePartition(replica_nodes=there)
    await throttle_moves(cluster, view, batch, throttle)
    # One that moves to where it shall is left alone: to ask again would begin it again.
    goals = {key: _goal(move) for key, move in ongoing.items()}
    new = {key: replicas for key, replicas in batch.items() if goals.get(key) != replicas}
    refused(await move_replicas(cluster, new) if new else {})


def _goal(move: Move) -> Replicas:
    """The target replicas of a move in progress."""
    return tuple(broker for broker in move.replicas if broker not in move.removing)


async def _await_moved(cluster: Cluster, batch: dict[TopicPartition, Replicas]) -> None:
    """Wait until all moves are complete. Raises CliError if they were cancelled."""
    idle = 0
    while idle < MOST_IDLE_POLLS:
        states = [row["state"] for row in await progress(cluster, batch)]
        if not {"moving", "differs"} & set(states):
            await end_throttle(cluster, batch)
            return
        # A broker may show what was before for a moment after a move has ended.
        idle = 0 if "moving" in states else idle + 1
        await asyncio.sleep(POLL_S)
    await end_throttle(cluster, batch)
    raise CliError("moves were called off, by another tool or user")
