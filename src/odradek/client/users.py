"""Administration of SCRAM credentials. Passwords are hashed here and never sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.client.cluster import Cluster, check
from odradek.common.scram import SCRAM_BY_NUMBER, ScramMechanism, salted_password
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse


async def list_users(cluster: Cluster) -> dict[str, dict[str, int]]:
    """The iterations by user and mechanism. Raises ApiError."""

    async def attempt() -> DescribeUserScramCredentialsResponse:
        asked = DescribeUserScramCredentialsRequest(users=None)
        response = await cluster.request(asked, DescribeUserScramCredentialsResponse)
        check(response.error_code, "users", response.error_message)
        return response

    found = await cluster.retried(attempt)
    return {
        each.user: {
            SCRAM_BY_NUMBER[info.mechanism].name if info.mechanism in SCRAM_BY_NUMBER else str(info.mechanism): (
                info.iterations
            )
            for info in each.credential_infos
        }
        for each in sorted(found.results, key=lambda each: each.user)
    }


async def set_password(
    cluster: Cluster, name: str, password: str, salts: Mapping[ScramMechanism, bytes], iterations: int
) -> None:
    """Set a user's password for these mechanisms. Raises ApiError."""

    upsertions = [
        ScramCredentialUpsertion(
            name=name,
            mechanism=each.number,
            iterations=iterations,
            salt=salt,
            salted_password=salted_password(each, password.encode(), salt, iterations),
        )
        for each, salt in salts.items()
    ]
    await _alter(cluster, name, AlterUserScramCredentialsRequest(upsertions=upsertions))


async def remove_user(cluster: Cluster, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
    """Remove a user's credentials of these mechanisms. Raises ApiError."""
    deletions = [ScramCredentialDeletion(name=name, mechanism=each.number) for each in mechanisms]
    await _alter(cluster, name, AlterUserScramCredentialsRequest(deletions=deletions))


async def _alter(cluster: Cluster, name: str, request: AlterUserScramCredentialsRequest) -> None:
    async def attempt() -> None:
        response = await cluster.request(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            check(result.error_code, f"user {name}", result.error_message)

    await cluster.retried(attempt)
