"""CreateAclsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int8, string


class AclCreation(Message):
    """Within CreateAclsRequest."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class CreateAclsRequest(Message, kind="request", key=30, versions="1-3", flexible="2+"):
    """Request of API 30, versions 1-3, flexible 2+; listeners: broker, controller."""

    creations: list[AclCreation] = array(AclCreation, "0+")
