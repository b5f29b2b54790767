"""A Fetch of very many partitions: resolved, read and answered in several turns of the event loop.

A follower's is read at once, as it acknowledges with its first read, and skips most of its partitions. One that may not
act as a follower acknowledges nothing, and is read as a consumer's.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError
from odradek.common.turns import PARTITIONS_PER_TURN, in_slices, in_turns
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.server.long_poll import MAX_PARKED, LongPoll, read_or_wait, wait_for_data

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch_request import FetchRequest
    from odradek.server.context import BrokerServices
    from odradek.server.handlers.fetch import PendingFetch


def names_many(request: FetchRequest) -> bool:
    """Whether the partitions of a request are resolved in several turns."""
    count = len(request.topics) + len(request.forgotten_topics_data)
    for topic in request.topics:
        count += len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        count += len(forgotten.partitions)
    return count > PARTITIONS_PER_TURN


async def handle_in_turns(
    broker: BrokerServices, fetch: PendingFetch, *, is_resolved: bool
) -> FetchResponse | LongPoll:
    """Answer a Fetch whose partitions, or whose session's, are very many."""
    if not is_resolved:
        try:
            steps = broker.fetch_sessions.resolve_steps(
                fetch.request, fetch.existing_partitions, by_id=fetch.is_by_id, is_follower=fetch.is_follower
            )
            fetch.resolved(await in_turns(steps))
        except ApiError as error:
            return FetchResponse(error_code=error.code)
    if not fetch.is_long:
        return read_or_wait(broker, fetch)
    await in_turns(_read_steps(fetch))
    if not fetch.is_satisfied() and broker.replicas.parked_fetch_count < MAX_PARKED:
        await _read_until_satisfied(broker, fetch)
    return await in_turns(_response_steps(fetch))


def _read_steps(fetch: PendingFetch) -> Generator[None, None, None]:
    partitions = fetch.requested
    fetch.requested = partitions[:PARTITIONS_PER_TURN]
    fetch.read()
    fetch.requested = partitions
    for some in in_slices(partitions[PARTITIONS_PER_TURN:], PARTITIONS_PER_TURN):
        yield
        for requested in some:
            fetch.read_partition(requested, None)


def _response_steps(fetch: PendingFetch) -> Generator[None, None, FetchResponse]:
    responses, fetch.responses = fetch.responses, []
    response = fetch.response()
    if not response.throttle_time_ms:
        for some in in_slices(responses, PARTITIONS_PER_TURN):
            fetch.respond_each(some, response)
            yield
    return response


async def _read_until_satisfied(broker: BrokerServices, fetch: PendingFetch) -> None:
    """Wait and read again, in turns of the event loop, until a Fetch of very many partitions can be answered.

    Data may come to a partition while others are read: as Kafka does, all are read once more when the wait has begun.
    The connection begins no other request meanwhile.
    """
    broker.replicas.parked_fetch_count += 1
    try:
        while not fetch.is_satisfied() and not fetch.is_late():
            wait = wait_for_data(broker, fetch)
            try:
                await in_turns(_read_steps(fetch))
                if fetch.is_satisfied():
                    return
                await wait.future
            finally:
                wait.wake()
            await in_turns(_read_steps(fetch))
    finally:
        broker.replicas.parked_fetch_count -= 1
