"""A secret is in no `repr` of what holds it: that may get into a log or a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.connect import Target
from odradek.common.scram import ScramKeys
from odradek.controller.tokens import DelegationTokenConfig
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ScramCredential
from odradek.protocol.messages.alter_user_scram_credentials_request import ScramCredentialUpsertion
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.security.sasl.config import SaslConfig
from odradek.security.tls.config import TlsConfig
from odradek.server.startup.format import FormatOptions
from odradek.settings.broker import BrokerSettings
from odradek.settings.config_providers import Sources
from odradek.settings.resources import BrokerLayers

SECRET = "open sesame"
_BYTES = SECRET.encode()
_SETTINGS = {"ssl.key.password": SECRET}


@pytest.mark.parametrize(
    "holder",
    [
        TlsConfig(keystore_key=SECRET, keystore_password=SECRET, key_password=SECRET, truststore_password=SECRET),
        SaslConfig(jaas_config=SECRET),
        DelegationTokenConfig(secret_key=SECRET),
        BrokerSettings(_SETTINGS, dict(_SETTINGS), (), ()),
        BrokerLayers(_SETTINGS, _SETTINGS),
        MetadataImage(configs={(4, "1"): _SETTINGS}),
        Sources(_SETTINGS, Path.read_text),
        Target("localhost:9092", dict(_SETTINGS)),
        FormatOptions(scram_users=[f"SCRAM-SHA-256=[name=alice,password={SECRET}]"]),
        ScramKeys(_BYTES, _BYTES),
        ScramCredential(_BYTES, _BYTES, _BYTES, 4096),
        ScramCredentialUpsertion(name="alice", salt=_BYTES, salted_password=_BYTES),
        CreateDelegationTokenResponse(hmac=_BYTES),
        SaslAuthenticateRequest(auth_bytes=_BYTES),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_no_repr_shows_a_secret(holder: object) -> None:
    assert SECRET not in repr(holder)
    assert type(holder).__name__ in repr(holder)


def test_a_repr_shows_what_is_no_secret() -> None:
    assert "keystore_location='/node.pem'" in repr(TlsConfig(keystore_location="/node.pem"))
