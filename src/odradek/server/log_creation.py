"""Defers requests for partitions whose logs are still being created, without delaying other requests.

One request may make thousands of partitions, whose logs are made a few in each turn of the loop, or when they are asked
for. A request that asks for thousands would make all of them in one turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.server.context import RequestContext


def logs_pending(context: RequestContext, partitions: Iterable[Sequence[object]]) -> bool:
    """Whether a request had better wait while logs are made; `partitions` are those of each of its topics."""
    return not context.broker.replicas.may_create_now(sum(len(each) for each in partitions))


async def after_logs_created(
    context: RequestContext, request: Any, handle: Callable[[RequestContext, Any], Any]
) -> Any:
    """The answer of `handle`, once the logs are there."""
    await context.broker.replicas.logs_created()
    answer: Any | Coroutine[Any, Any, Any] = handle(context, request)
    return await answer if inspect.isawaitable(answer) else answer
