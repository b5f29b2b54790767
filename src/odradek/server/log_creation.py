"""Defers requests for partitions whose logs are still being created, without delaying other requests.

One request may create thousands of partitions. Their logs are created a few at a time, or at the first access. A
request for thousands of partitions would create all logs at once, and block the event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.server.context import RequestContext


def logs_pending(context: RequestContext, partitions: Iterable[Sequence[object]]) -> bool:
    """Whether a request should wait for the creation of logs; `partitions` are those of each of its topics."""
    return not context.broker.replicas.may_create_now(sum(len(each) for each in partitions))


async def after_logs_created(
    context: RequestContext, request: Any, handle: Callable[[RequestContext, Any], Any]
) -> Any:
    """The answer of `handle`, once the logs are there."""
    await context.broker.replicas.logs_created()
    answer: Any | Coroutine[Any, Any, Any] = handle(context, request)
    return await answer if inspect.isawaitable(answer) else answer
