"""AlterClientQuotas: key 49, versions 0-1. Sets and removes client quotas (KIP-546).

The controller decides, each entity on its own. The answer waits until the changes are in force on this node.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, built_in_turns
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import QuotaEntity, quota_entity
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
        code, text = error.code, error.message
        refused = await built_in_turns(request.entries, lambda entry: _refused(entry, ApiError(code, text)))
        return answers.AlterClientQuotasResponse(entries=refused)
    if not request.validate_only:
        turns, changed = Turns(PARTITIONS_PER_TURN), []
        for entry, result in zip(request.entries, response.entries, strict=True):
            if not result.error_code:
                changed.append((quota_entity([(part.entity_type, part.entity_name) for part in entry.entity]), entry))
            await turns.spend()
        await wait_until_seen(context.broker.publisher, lambda image: all(_is_in(image, *each) for each in changed))
    return response


def _refused(entry: EntryData, error: ApiError) -> answers.EntryData:
    entity = [answers.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity]
    return answers.EntryData(error_code=error.code, error_message=error.message or None, entity=entity)


def _is_in(image: MetadataImage, entity: QuotaEntity, entry: EntryData) -> bool:
    quotas = image.client_quotas.get(entity, {})
    return all(quotas.get(each.key) == (None if each.remove else each.value) for each in entry.ops)
