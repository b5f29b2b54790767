"""AlterConfigs and IncrementalAlterConfigs up to the controller: who may, and what this node must be able to use.

Each resource of a request is answered on its own. What makes connections secure is checked by the broker whose setting
it is, as its files and its other settings are nowhere else; the controller checks all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from odradek.common.errors import ApiError, ConfigError, ErrorCode
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import ResourceType
from odradek.protocol.declare import Message
from odradek.server.authorization import check_configs
from odradek.server.context import RequestContext

M = TypeVar("M", bound=Message)
_OF_CONNECTIONS = ("ssl.", "sasl.")


async def alter_configs(
    context: RequestContext,
    request: Any,
    response: type[M],
    answer: Callable[[Any, ErrorCode, str | None], Any],
    decide_here: Callable[[Any], bool],
    unchangeable: ResourceType | None = None,
) -> M:
    """Serve a request of either API.

    Args:
        answer: of one resource.
        decide_here: whether a resource is answered with that, and the controller not asked; raises ApiError.
        unchangeable: the type of resources that the API changes for no client.
    """
    answered: list[Any] = []
    others: list[Any] = []
    for each in request.resources:
        try:
            if each.resource_type == unchangeable:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"this API changes no resource of type {each.resource_type}")
            check_configs(context, AclOperation.ALTER_CONFIGS, each.resource_type, each.resource_name)
            is_done = decide_here(each)
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


def check_connections(
    context: RequestContext,
    resource: Any,
    changes_of: Callable[[Mapping[str, str]], Mapping[str, str | None]],
) -> None:
    """Whether the broker could still make its connections secure.

    Args:
        resource: whose settings are changed.
        changes_of: gives what they would be, where something is stored now; None for one that is taken away.
    Raises:
        ApiError: INVALID_REQUEST, where the new ones could not be used, or are another broker's.
    """
    if resource.resource_type != ResourceType.BROKER or not resource.resource_name:
        return
    changes = changes_of(context.broker.image.config(ResourceType.BROKER, resource.resource_name))
    if not any(part in key for key in changes for part in _OF_CONNECTIONS):
        return
    own = str(context.broker.node_id)
    if resource.resource_name == own:
        try:
            context.broker.check_security(context.broker.image, changes)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, "; ".join(error.problems)) from None
    elif not context.on_controller_listener:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own}, but received {resource.resource_name}: its files are there",
        )
