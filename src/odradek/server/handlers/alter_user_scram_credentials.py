"""AlterUserScramCredentials: key 51, version 0. Sets and removes SCRAM credentials of users (KIP-554).

The controller decides. The response waits until this broker's image has the change, so that a user can log in here at
once.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.common.scram import SCRAM_BY_NUMBER, keys_of
from odradek.common.turns import Turns, built_in_turns
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ScramCredential
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.server.authorization import check_cluster
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext

# The keys of a credential take some 10 us.
CREDENTIALS_PER_TURN = 500


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change credentials, each user's on its own."""
    try:
        check_cluster(context, AclOperation.ALTER)
        response = await context.broker.controller.request(request, AlterUserScramCredentialsResponse, context)
    except ApiError as error:
        code, text = error.code, error.message or None
        names = [
            *await built_in_turns(request.deletions, lambda each: each.name),
            *await built_in_turns(request.upsertions, lambda each: each.name),
        ]
        users = list(dict.fromkeys(names))
        results = await built_in_turns(
            users, lambda name: AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text)
        )
        return AlterUserScramCredentialsResponse(results=results)
    changed = {result.user for result in response.results if not result.error_code}
    gone = {(each.name, each.mechanism) for each in request.deletions if each.name in changed}
    # The salt does not identify a password: a client may use the same salt again.
    turns, new = Turns(CREDENTIALS_PER_TURN), {}
    for each in request.upsertions:
        if each.name in changed:
            new[each.name, each.mechanism] = _credential_of(each)
            await turns.spend()
    await wait_until_seen(context.broker.publisher, lambda image: gone.isdisjoint(image.scram) and _has(image, new))
    return response


def _has(image: MetadataImage, new: dict[tuple[str, int], ScramCredential]) -> bool:
    return all(image.scram.get(key) == credential for key, credential in new.items())


def _credential_of(change: ScramCredentialUpsertion) -> ScramCredential:
    """The stored credential of a new password."""
    keys = keys_of(SCRAM_BY_NUMBER[change.mechanism], bytes(change.salted_password))
    return ScramCredential(bytes(change.salt), keys.stored_key, keys.server_key, change.iterations)
