"""DeleteAcls: key 31, versions 1-3. The controller decides; the answer waits until they are gone on this node.

Versions: 1 patterns (KIP-290), 2 flexible, 3 users (KIP-373).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.controller.acls import filter_of_deletion
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Acl, acl_of
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from odradek.server.authorization import check_acls
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the ACLs that match the filters."""
    try:
        check_acls(context, AclOperation.ALTER)
        response = await context.broker.controller.request(request, DeleteAclsResponse, context)
    except ApiError as error:
        refused = DeleteAclsFilterResult(error_code=error.code, error_message=error.message or None)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    gone = {acl_of(each) for result in response.filter_results for each in result.matching_acls if not each.error_code}
    gone |= await _already_deleted(context.broker.image, request, response)

    def seen(image: MetadataImage) -> bool:
        return gone.isdisjoint(image.acls.values())

    await wait_until_seen(context.broker.publisher, seen)
    return response


async def _already_deleted(image: MetadataImage, request: DeleteAclsRequest, response: DeleteAclsResponse) -> set[Acl]:
    """The ACLs of this image for filters that matched nothing at the controller.

    If a response of the controller was lost, the request is sent again, and the ACLs are deleted already.
    """
    pairs = zip(request.filters, response.filter_results, strict=True)
    emptied = [filter_of_deletion(each) for each, result in pairs if not result.error_code and not result.matching_acls]
    if not emptied:
        return set()
    exact = {acl for each in emptied if (acl := each.exact) is not None}
    others = dict.fromkeys(each for each in emptied if each.exact is None)
    found = exact.intersection(image.acls.values())
    turns = Turns(PARTITIONS_PER_TURN)
    for each in others:
        for acl in image.acls.values():
            if each.matches(acl):
                found.add(acl)
            await turns.spend()
    return found
