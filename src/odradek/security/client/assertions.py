"""Assertions that authenticate a client to a token issuer (RFC 7521, RFC 7523; KIP-1139, KIP-1258).

Each request to the issuer has a new assertion, signed here, or the content of a file that another process renews.
All files are read each time, so that a renewed key is used from the next request on.
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.client.sasl import SaslSettingError
from odradek.security.sasl.config import AssertionConfig

PREFIX = "sasl.oauthbearer.assertion."
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_FILE, _KEY_FILE, _PASSPHRASE = f"{PREFIX}file", f"{PREFIX}private.key.file", f"{PREFIX}private.key.passphrase"
_ALGORITHM, _TEMPLATE_FILE = f"{PREFIX}algorithm", f"{PREFIX}template.file"
_SIGNED = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_CURVE = "secp256r1"


@dataclass(frozen=True, slots=True)
class Assertion:
    """
    Attributes:
        is_grant: whether the assertion is the grant (KIP-1139); otherwise it replaces the client secret (KIP-1258).
    """

    config: AssertionConfig = field(repr=False)
    is_grant: bool

    def form(self, client_id: str) -> dict[str, str]:
        """The fields of a token request. Raises SaslSettingError as `text`."""
        if self.is_grant:
            return {"grant_type": GRANT_TYPE, "assertion": self.text()}
        own = {"client_assertion_type": _CLIENT_ASSERTION_TYPE, "client_assertion": self.text()}
        return {"grant_type": "client_credentials", **own} | ({"client_id": client_id} if client_id else {})

    def text(self) -> str:
        """A signed assertion.

        Raises:
            SaslSettingError: a file cannot be read or used; the text begins with its setting, and holds nothing of it.
        """
        if self.config.file is None:
            return _signed(self.config)
        found = _read(_FILE, self.config.file).decode("latin-1").strip()
        if not _SIGNED.fullmatch(found):
            raise SaslSettingError(f"{_FILE}={self.config.file}: the file holds no signed assertion")
        return found


def assertion_of(config: AssertionConfig, *, is_grant: bool) -> Assertion | None:
    """The assertion that settings name; None where the client has a secret.

    Raises:
        SaslSettingError: an assertion is wanted, and neither a file with one nor a key is named.
    """
    is_wanted = is_grant or config.issuer is not None
    if config.file is None and config.key_file is None:
        if is_wanted:
            raise SaslSettingError(f"{_KEY_FILE} must name the key that signs assertions, or {_FILE} a signed one")
        return None
    return Assertion(config, is_grant)


def _signed(config: AssertionConfig) -> str:
    from joserfc import jws, jwt
    from joserfc.errors import JoseError

    algorithm, now_s = config.algorithm.upper(), int(time.time())
    template = _template(config)
    named = {"iss": config.issuer, "sub": config.subject, "aud": config.audience}
    claims = template.get("payload", {}) | {name: text for name, text in named.items() if text is not None}
    claims |= {"iat": now_s, "exp": now_s + config.lifetime_s, "nbf": now_s - config.began_s}
    if config.has_id:
        claims["jti"] = str(uuid.uuid4())
    header = template.get("header", {}) | {"alg": algorithm, "typ": "JWT"}
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    try:
        return jwt.encode(header, claims, _key(config, algorithm), registry=registry)
    except (JoseError, ValueError, TypeError) as error:
        raise SaslSettingError(f"{PREFIX}*: no assertion can be signed: {error}") from None


def _template(config: AssertionConfig) -> dict[str, dict[str, Any]]:
    """Further headers and claims."""
    if config.template_file is None:
        return {}
    try:
        found = json.loads(_read(_TEMPLATE_FILE, config.template_file))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(part, {}), dict) for part in ("header", "payload")):
        raise SaslSettingError(
            f"{_TEMPLATE_FILE}={config.template_file}: must be JSON with header and payload, both objects"
        )
    return found


def _key(config: AssertionConfig, algorithm: str) -> Any:
    """The private key, for the library that signs."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from joserfc.jwk import ECKey, RSAKey

    assert config.key_file is not None
    try:
        key = _load(_read(_KEY_FILE, config.key_file), config.passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SaslSettingError(
            f"{_KEY_FILE}={config.key_file}: holds no private key in PKCS#8, or {_PASSPHRASE} does not open it"
        ) from None
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    is_curve = isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == _CURVE
    if not (is_rsa if algorithm == "RS256" else is_curve):
        raise SaslSettingError(f"{_ALGORITHM}={algorithm}: the key of {_KEY_FILE} is of another kind")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (RSAKey if is_rsa else ECKey).import_key(pem)


def _load(data: bytes, passphrase: str | None) -> Any:
    """A key in PEM, or, as Kafka's clients read it, in base64 or DER alone; raises what the library raises."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    password = None if passphrase is None else passphrase.encode()
    if b"-----BEGIN" in data:
        return load_pem_private_key(data, password)
    return load_der_private_key(base64.b64decode(data) if data.isascii() else data, password)


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SaslSettingError(f"{setting}={path}: {error.strerror or error}") from None


def known_names(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with librdkafka's names for the grant and the template replaced by Kafka's."""
    found = dict(settings)
    if settings.get("sasl.oauthbearer.grant.type", "").lower() == GRANT_TYPE:
        found.setdefault("sasl.oauthbearer.jwt.retriever.class", "JwtBearerJwtRetriever")
    if (template := settings.get(f"{PREFIX}jwt.template.file")) is not None:
        found.setdefault(_TEMPLATE_FILE, template)
    return found
