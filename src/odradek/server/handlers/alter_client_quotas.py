"""AlterClientQuotas: key 49, versions 0-1. Sets and removes client quotas (KIP-546).

The controller decides, each entity on its own. The answer waits until the changes are in force on this node.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import quota_entity
from odradek.protocol.messages import alter_client_quotas_response as answers
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntryData
from odradek.server.authorization import check_cluster
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AlterClientQuotasRequest) -> answers.AlterClientQuotasResponse:
    """Change quotas."""
    try:
        check_cluster(context, AclOperation.ALTER_CONFIGS)
        response = await context.broker.controller.request(request, answers.AlterClientQuotasResponse, context)
    except ApiError as error:
        return answers.AlterClientQuotasResponse(entries=[_refused(entry, error) for entry in request.entries])
    if not request.validate_only:
        pairs = zip(request.entries, response.entries, strict=True)
        changed = [entry for entry, result in pairs if not result.error_code]
        await wait_until_seen(context.broker.publisher, lambda image: all(_is_in(image, entry) for entry in changed))
    return response


def _refused(entry: EntryData, error: ApiError) -> answers.EntryData:
    entity = [answers.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity]
    return answers.EntryData(error_code=error.code, error_message=error.message or None, entity=entity)


def _is_in(image: MetadataImage, entry: EntryData) -> bool:
    entity = quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    quotas = image.client_quotas.get(entity, {})
    return all(quotas.get(each.key) == (None if each.remove else each.value) for each in entry.ops)
