"""Users of SCRAM and delegation tokens in the world of permissions: how they are changed, described and log in.

Each entry has a number: 0 where it is not there, else which password a user has, or when a token ends.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache

from odradek.client.connection import Connection, connect
from odradek.client.login import RefusedLoginError
from odradek.client.sasl import Credentials
from odradek.client.security import OutgoingSecurity
from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.scram import SCRAM_MECHANISMS, salted_password
from odradek.protocol.messages import alter_user_scram_credentials_request as alter_users
from odradek.protocol.messages import describe_user_scram_credentials_request
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token_response import DescribeDelegationTokenResponse
from odradek.protocol.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from tests.sim.clients import TIMEOUT_MS, Client
from tests.sim.world import PORT

SASL_PORT = PORT + 2
MECHANISM = SCRAM_MECHANISMS["SCRAM-SHA-256"]
ITERATIONS = 4096
SALT = bytes(range(16))
PASSWORDS = {1: "one", 2: "two"}
# The owner of the tokens, who is no SCRAM user.
OWNER, OWNERS_PASSWORD = "owner", "secret"
# Clocks jump by days; no token ends by that.
LIFE_MS = 10_000 * 86_400_000
# The error of DescribeUserScramCredentials for a user without credentials.
NO_CREDENTIALS = ErrorCode.RESOURCE_NOT_FOUND
SASL_SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.external.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.external.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{OWNER}="{OWNERS_PASSWORD}";'
    ),
    "listener.name.external.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "delegation.token.secret.key": "of all nodes",
    "delegation.token.max.lifetime.ms": str(LIFE_MS),
    "delegation.token.expiry.time.ms": str(LIFE_MS),
}


def check_code(code: int) -> None:
    """
    Raises:
        OdradekError: it was refused, or its outcome is not known.
    """
    if code:
        raise OdradekError(ErrorCode(code).name)


async def log_in(client: Client, host: str, credentials: Credentials) -> Connection:
    """A connection that has logged in; the caller closes it.

    Raises:
        RefusedLoginError: by the node. OdradekError: by the network.
    """
    return await connect(
        client.network,
        host,
        SASL_PORT,
        client_id=client.name,
        timeout_s=TIMEOUT_MS / 1000,
        security=OutgoingSecurity(sasl=lambda: credentials),
    )


async def may_log_in(client: Client, host: str, credentials: Credentials) -> tuple[bool, str]:
    """Whether a node lets them in, and its process. Raises OdradekError where it says nothing."""
    count = len(client.network.connections)
    try:
        connection = await log_in(client, host, credentials)
    except RefusedLoginError:
        return False, client.network.process_at(client.network.connections[count])
    connection.close()
    return True, client.network.process_at(connection)


def owner(client: Client) -> Credentials:
    return Credentials("PLAIN", OWNER, OWNERS_PASSWORD, client.random)


# ---- users


@cache
def _salted(password: str) -> bytes:
    return salted_password(MECHANISM, password.encode(), SALT, ITERATIONS)


async def change_user(client: Client, connection: Connection, name: str, number: int, *, keeps_salt: bool) -> None:
    """Give a user that password, or take the user away."""
    request = alter_users.AlterUserScramCredentialsRequest()
    if number:
        request.upsertions = [
            alter_users.ScramCredentialUpsertion(
                name=name,
                mechanism=MECHANISM.number,
                iterations=ITERATIONS,
                salt=SALT if keeps_salt else client.random.randbytes(len(SALT)),
                salted_password=_salted(PASSWORDS[number]),
            )
        ]
    else:
        request.deletions = [alter_users.ScramCredentialDeletion(name=name, mechanism=MECHANISM.number)]
    answer = await client.request(connection, request, AlterUserScramCredentialsResponse)
    check_code(answer.results[0].error_code)


async def has_user(client: Client, connection: Connection, name: str) -> bool:
    """Whether a node says that there is a user. Raises OdradekError."""
    named = [describe_user_scram_credentials_request.UserName(name=name)]
    request = describe_user_scram_credentials_request.DescribeUserScramCredentialsRequest(users=named)
    answer = await client.request(connection, request, DescribeUserScramCredentialsResponse)
    check_code(answer.error_code)
    (found,) = answer.results
    if found.error_code not in (ErrorCode.NONE, NO_CREDENTIALS):
        check_code(found.error_code)
    return bool(found.credential_infos)


def user(client: Client, name: str, number: int) -> Credentials:
    return Credentials(MECHANISM.name, name, PASSWORDS[number], client.random)


# ---- tokens


class Token:
    """A token that was made."""

    def __init__(self, token_id: str, secret: bytes) -> None:
        self.token_id = token_id
        self.secret = secret

    def credentials(self, client: Client) -> Credentials:
        password = b64encode(self.secret).decode()
        return Credentials(MECHANISM.name, self.token_id, password, client.random, by_token=True)


async def create_token(client: Client, connection: Connection) -> tuple[Token, int]:
    """A new token, and when it ends. Raises OdradekError."""
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=LIFE_MS
    )
    answer = await client.request(connection, request, CreateDelegationTokenResponse)
    check_code(answer.error_code)
    return Token(answer.token_id, bytes(answer.hmac)), answer.expiry_timestamp_ms


async def change_token(client: Client, connection: Connection, token: Token) -> int:
    """End a token or let it live on; returns when it ends, 0 for now. Raises OdradekError."""
    period_ms = client.random.choice((-1, LIFE_MS // 2, LIFE_MS // 2 + client.random.randrange(1000)))
    request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest
    if period_ms > 0 and client.random.random() < 0.5:
        request = RenewDelegationTokenRequest(hmac=token.secret, renew_period_ms=period_ms)
        answer = await client.request(connection, request, RenewDelegationTokenResponse)
    else:
        request = ExpireDelegationTokenRequest(hmac=token.secret, expiry_time_period_ms=period_ms)
        answer = await client.request(connection, request, ExpireDelegationTokenResponse)
    check_code(answer.error_code)
    return 0 if period_ms < 0 else int(answer.expiry_timestamp_ms)


async def end_of_token(client: Client, connection: Connection, token: Token) -> int:
    """The expiry time of a token, as a node describes it to its owner; 0 if there is none. Raises OdradekError."""
    answer = await client.request(
        connection, DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse
    )
    check_code(answer.error_code)
    return next((each.expiry_timestamp for each in answer.tokens if each.token_id == token.token_id), 0)
