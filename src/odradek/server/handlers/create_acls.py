"""CreateAcls: key 30, versions 1-3. The controller decides; the answer waits until they are in force on this node.

Versions: 1 patterns (KIP-290), 2 flexible, 3 users (KIP-373).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.acl_messages import acl_from_creation
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from odradek.server.authorization import check_acls
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create each by itself."""
    try:
        check_acls(context, AclOperation.ALTER)
        response = await context.broker.controller.request(request, CreateAclsResponse, context)
    except ApiError as error:
        refused = AclCreationResult(error_code=error.code, error_message=error.message or None)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    pairs = zip(request.creations, response.results, strict=True)
    made = {acl_from_creation(creation) for creation, result in pairs if not result.error_code}

    def seen(image: MetadataImage) -> bool:
        return made.issubset(image.acls.values())

    await wait_until_seen(context.broker.publisher, seen)
    return response
