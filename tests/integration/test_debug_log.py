"""A node and our commands log no secret, not even at level DEBUG (CVE-2026-33558 of Kafka)."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.sasl import Credentials
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealRandom
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.alter_configs_request import AlterableConfig as WholeConfig
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.alter_configs_request import AlterConfigsResource as WholeResource
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from tests.integration.test_sasl import PLAIN_USERS, SaslNode
from tests.integration.test_sasl_tokens import FIRST, document, show, token
from tests.support.clients.cli import odradek
from tests.support.clients.logins import log_in_as
from tests.support.clients.wire import Wire
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

USERS = "listener.name.external.plain.sasl.jaas.config"
SALTED = b"salted-password-of-robot-is-32-b"
CARELESS, DYNAMIC, REFUSED = "careless-secret", "dynamic-secret", "refused-secret"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SaslNode]:
    """Everything is logged that can be, slow requests included."""
    jwks, keys = tmp_path / "jwks.json", tmp_path / "secrets.keys"
    jwks.write_text(document(FIRST))
    keys.write_text(base64.b64encode(bytes(range(32))).decode())
    node = SaslNode(
        tmp_path / "node",
        listener__name__external__sasl__enabled__mechanisms="PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        sasl__oauthbearer__jwks__endpoint__url=f"file://{jwks}",
        sasl__oauthbearer__expected__issuer="https://issuer",
        sasl__oauthbearer__expected__audience="odradek",
        delegation__token__secret__key="of-all-nodes",
        odradek__secret__key__file=keys,
        odradek__request__slow__ms=1,
        authorizer__class__name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super__users="User:ANONYMOUS;User:admin;User:alice",
    )
    with node.start():
        levels = [AlterableConfig(name=name, value="DEBUG") for name in ("odradek", "odradek.authorizer.audit")]
        assert asked(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental(8, levels)).responses[0].error_code == 0
        yield node


def asked(node: SaslNode, key: ApiKey, version: int, request: Any) -> Any:
    with Wire(node.port) as wire:
        return wire.request(key, version, request)


def incremental(kind: int, configs: list[AlterableConfig]) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(resource_type=kind, resource_name="1", configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def log_in(node: SaslNode, mechanism: str, user: str, password: str, *, by_token: bool = False) -> bool:
    with Wire(node.sasl_port) as wire:
        answer = log_in_as(wire, Credentials(mechanism, user, password, RealRandom(), by_token=by_token))
        return bool(answer.error_code == ErrorCode.NONE)


def changed_settings(node: SaslNode) -> list[str]:
    """Users of PLAIN, taken and refused, by both APIs."""
    taken = PLAIN_USERS.replace("plain-secret", DYNAMIC)
    wrong = f'com.example.Module required user_alice="{REFUSED}";'
    for users, code in ((taken, ErrorCode.NONE), (wrong, ErrorCode.INVALID_REQUEST)):
        request = incremental(4, [AlterableConfig(name=USERS, value=users)])
        assert asked(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code == code
        configs = [WholeConfig(name=USERS, value=users)]
        whole = WholeResource(resource_type=4, resource_name="1", configs=configs)
        answer = asked(node, ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[whole]))
        assert answer.responses[0].error_code == code
    eventually(lambda: log_in(node, "PLAIN", "alice", DYNAMIC))
    return [DYNAMIC, REFUSED]


def tokens_of_alice(node: SaslNode) -> list[str]:
    """A delegation token from its first to its last day."""
    with Wire(node.sasl_port) as wire:
        log_in_as(wire, Credentials("PLAIN", "alice", DYNAMIC, RealRandom()))
        made = wire.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest(max_lifetime_ms=60_000))
        hmac = bytes(made.hmac)
        (found,) = wire.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(owners=None)).tokens
        assert bytes(found.hmac) == hmac
        password = base64.b64encode(hmac).decode()
        assert log_in(node, "SCRAM-SHA-256", made.token_id, password, by_token=True)
        assert not wire.request(ApiKey.RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest(hmac=hmac)).error_code
        ended = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        assert not wire.request(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ended).error_code
    return [password, hmac.hex(), repr(hmac)[2:-1]]


def test_no_secret_is_logged_at_any_level(node: SaslNode, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [*changed_settings(node), *tokens_of_alice(node), CARELESS, "of-all-nodes", "admin-secret"]
    upsertion = ScramCredentialUpsertion(
        name="robot", mechanism=1, iterations=4096, salt=b"salt", salted_password=SALTED
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    assert asked(node, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request).results[0].error_code == ErrorCode.NONE
    secrets += [SALTED.decode(), base64.b64encode(SALTED).decode(), SALTED.hex()]
    assert not log_in(node, "PLAIN", "alice", CARELESS)
    assert not log_in(node, "SCRAM-SHA-256", "robot", CARELESS)
    tokens = [token(), token(aud="other")]
    with Wire(node.sasl_port) as right, Wire(node.sasl_port) as wrong:
        assert show(right, tokens[0]).error_code == ErrorCode.NONE
        assert show(wrong, tokens[1]).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    password, config = tmp_path / "password", tmp_path / "admin.properties"
    password.write_text(CARELESS)
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN_USERS}\n")
    as_admin = ("--command-config", config)
    odradek(node.sasl_bootstrap, "users", "add", "carol", "--password-file", password, *as_admin)
    said = node.log_text() + caplog.text
    assert '"event": "allowed"' in said, "the level is not DEBUG"
    assert [secret for secret in secrets + tokens if secret in said] == []
