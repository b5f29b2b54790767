"""Allocates producer ids from blocks of the controller (KIP-730)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

if TYPE_CHECKING:
    from odradek.server.controller_gateway import Controller


class ProducerIdBlocks:
    """The present block. No id is allocated twice: the controller writes the end of a block before it returns the
    block."""

    def __init__(self, controller: Controller, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        """`broker_epoch` is of this broker's registration."""
        self._controller = controller
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._refill: asyncio.Task[None] | None = None
        self._broker_epoch = broker_epoch

    def claim_next(self) -> int | None:
        """The next id, or None where the block is used up."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next_id(self) -> int:
        """The next id; requests a block if there is none.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS if the controller returns no block now (clients retry).
        """
        while (producer_id := self.claim_next()) is None:
            if self._refill is None or self._refill.done():
                self._refill = asyncio.get_running_loop().create_task(self._fetch_block())
            await asyncio.shield(self._refill)
        return producer_id

    async def _fetch_block(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            block = await self._controller.request(request, AllocateProducerIdsResponse)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {error}") from None
        if block.error_code:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: error {block.error_code}")
        self._next, self._end = block.producer_id_start, block.producer_id_start + block.producer_id_len

    async def close(self) -> None:
        """Wait for a request under way."""
        if self._refill is not None:
            await asyncio.gather(self._refill, return_exceptions=True)
