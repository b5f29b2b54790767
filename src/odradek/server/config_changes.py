"""AlterConfigs and IncrementalAlterConfigs before the controller: permissions, and checks that need this node.

Each resource of a request has its own result. The broker of a security setting checks it, because only this broker has
the files and the other settings; the controller checks all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from odradek.common.errors import ApiError, ConfigError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, built_in_turns
from odradek.controller.bounds import check_size
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import ResourceType
from odradek.protocol.declare import Message
from odradek.server.authorization import check_configs
from odradek.server.context import RequestContext
from odradek.settings.listener_changes import changes_listeners

M = TypeVar("M", bound=Message)


async def alter_configs(
    context: RequestContext,
    request: Any,
    response: type[M],
    answer: Callable[[Any, ErrorCode, str | None], Any],
    decide_here: Callable[[Any], Awaitable[bool]],
    unchangeable: ResourceType | None = None,
) -> M:
    """Serve a request of either API.

    Args:
        answer: builds the result of one resource.
        decide_here: whether a resource is handled here, without the controller; raises ApiError.
        unchangeable: the type of resources that the API never changes.
    """
    allowed, answered = await _allowed(context, request, answer, unchangeable)
    request.resources = allowed
    try:
        check_size(request)
    except ApiError as error:
        code, text = error.code, error.message
        refused: M = response()
        refused.responses = [*await built_in_turns(allowed, lambda each: answer(each, code, text)), *answered]  # type: ignore[attr-defined]  # both APIs' responses have it
        return refused
    turns = Turns(PARTITIONS_PER_TURN)
    others: list[Any] = []
    for each in allowed:
        await turns.spend(1 + len(each.configs))
        try:
            is_done = await decide_here(each)
        except ApiError as error:
            answered.append(answer(each, error.code, error.message or None))
            continue
        if is_done:
            answered.append(answer(each, ErrorCode.NONE, None))
        else:
            others.append(each)
    found: Any = response()
    if others or not answered:
        request.resources = others
        try:
            found = await context.broker.controller.request(request, response, context)
        except ApiError as error:
            found.responses = [answer(each, error.code, error.message or None) for each in others]
    found.responses = [*found.responses, *answered]
    served: M = found
    return served


async def _allowed(
    context: RequestContext,
    request: Any,
    answer: Callable[[Any, ErrorCode, str | None], Any],
    unchangeable: ResourceType | None,
) -> tuple[list[Any], list[Any]]:
    """The resources that the client may change, and the results of the others."""
    allowed: list[Any] = []
    answered: list[Any] = []
    turns = Turns(PARTITIONS_PER_TURN)
    for each in request.resources:
        await turns.spend()
        try:
            if each.resource_type == unchangeable:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"this API changes no resource of type {each.resource_type}")
            check_configs(context, AclOperation.ALTER_CONFIGS, each.resource_type, each.resource_name)
        except ApiError as error:
            answered.append(answer(each, error.code, error.message or None))
        else:
            allowed.append(each)
    return allowed, answered


async def check_connections(
    context: RequestContext,
    resource: Any,
    changes_of: Callable[[Mapping[str, str]], Mapping[str, str | None]],
) -> None:
    """Check that the security settings and the listeners of this broker stay valid.

    Args:
        resource: whose settings are changed.
        changes_of: returns the changes, given the stored settings; None for a deleted one.
    Raises:
        ApiError: INVALID_REQUEST, the new settings are invalid, or those of another broker.
    """
    if resource.resource_type != ResourceType.BROKER or not resource.resource_name:
        return
    changes = changes_of(context.broker.image.config(ResourceType.BROKER, resource.resource_name))
    if not any("ssl." in key or "sasl." in key for key in changes) and not changes_listeners(changes):
        return
    own = str(context.broker.node_id)
    if resource.resource_name == own:
        try:
            await context.broker.check_changes(context.broker.image, changes)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, "; ".join(error.problems)) from None
    elif not context.on_controller_listener:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own}, but received {resource.resource_name}: its files are there",
        )
