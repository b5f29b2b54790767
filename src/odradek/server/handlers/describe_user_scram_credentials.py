"""DescribeUserScramCredentials: key 50, version 0. Which users log in by SCRAM, and with how many iterations (KIP-554).

Answered from this node's metadata; salts and keys are not in the answer. Without names, or with an empty list of them,
all users are described.
"""

from __future__ import annotations

from collections import Counter

from odradek.common.errors import ErrorCode
from odradek.metadata.model import ScramCredential
from odradek.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.server.context import RequestContext


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The users asked for, each once."""
    by_user: dict[str, list[tuple[int, ScramCredential]]] = {}
    for (name, mechanism), credential in sorted(context.broker.image.scram.items(), key=lambda item: item[0]):
        by_user.setdefault(name, []).append((mechanism, credential))
    often = Counter(user.name for user in request.users or ())
    results = [_result(name, by_user.get(name), often[name]) for name in often or by_user]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _result(
    name: str, credentials: list[tuple[int, ScramCredential]] | None, often: int
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    if often > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif credentials is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=mechanism, iterations=each.iterations) for mechanism, each in credentials
        ]
    return result
