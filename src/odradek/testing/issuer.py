"""An OAuth issuer inside the process of a test, over HTTPS: `/token` gives tokens to its clients, `/keys` has its keys.

It speaks OpenID Connect as well: `/authorize` lets in whom the test has set as `person`, and sends the browser back
with a code, for which `/token` gives an ID token (with PKCE); `/logout` sends it back to where it wishes.

Clients of Kafka that fetch tokens (KIP-768, `sasl.oauthbearer.method=oidc`) ask for one with their id and secret
(`grant_type=client_credentials`), or with an assertion that they sign (KIP-1139, KIP-1258) by a key that the test has
given to `trust`; for other clients, and for tokens that a broker is to refuse, there is `token`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from odradek.testing.control_socket import HOST

KEY_BITS = 2048
# A request for a token is a few words.
MAX_REQUEST_BYTES = 65_536
TIMEOUT_S = 30.0
_BY_ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class TokenIssuer:
    """Issues tokens from `start` to `stop`.

    Concurrency: requests are served on threads of their own; `token` and `rotate` are for the test's thread.
    """

    def __init__(
        self, clients: Mapping[str, str], context: ssl.SSLContext, *, audience: str, lifetime_s: int = 3600
    ) -> None:
        """
        Args:
            clients: id → secret of those that get tokens; the id is the token's subject.
            context: the server's side of TLS.
            lifetime_s: of tokens for which the caller says nothing else.
        """
        self.audience = audience
        self._clients = clients
        self._lifetime_s = lifetime_s
        #: Claims of who logs in next at `/authorize`; they stand above those of the ID token.
        self.person: dict[str, object] = {}
        #: Whether logins get a refresh token, which is good for one more ID token.
        self.refreshes = False
        #: What browsers that logged out have asked, with the method of HTTP.
        self.logouts: list[dict[str, str]] = []
        self._refresh_tokens: dict[str, str] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self._signers: dict[str, RSAKey | ECKey] = {}
        self._assertion_ids: set[str] = set()
        self._key = _new_key()
        self._server = _Server(self, context)
        self._thread = threading.Thread(target=self._server.serve_forever, name="odradek-issuer", daemon=True)

    @property
    def url(self) -> str:
        """Its name in tokens (`iss`), and where it is."""
        return f"https://{HOST}:{self._server.server_port}"

    @property
    def token_url(self) -> str:
        """The address from which clients request tokens."""
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        """The address from which brokers read its keys (JWKS)."""
        return f"{self.url}/keys"

    def token(self, subject: str, **claims: object) -> str:
        """A signed token; `claims` stand above those that a broker accepts (`exp=0` makes one that has expired)."""
        now = int(time.time())
        accepted = {"sub": subject, "iss": self.url, "aud": self.audience, "iat": now, "exp": now + self._lifetime_s}
        return jwt.encode({"alg": "RS256", "kid": self._key.kid}, accepted | claims, self._key)

    def trust(self, client_id: str, public_key: bytes) -> None:
        """Give tokens for assertions of this client that its key signs, of RSA or the curve P-256, in PEM."""
        is_rsa = isinstance(load_pem_public_key(public_key), rsa.RSAPublicKey)
        self._signers[client_id] = (RSAKey if is_rsa else ECKey).import_key(public_key)

    def rotate(self) -> None:
        """Sign with a new key from now on; the old one is not served any more."""
        self._key = _new_key()

    def start(self) -> Self:
        """Serve requests."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End; tokens stay valid for as long as brokers have the keys."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(TIMEOUT_S)
        self._server.server_close()

    def description(self) -> dict[str, object]:
        """The document of OpenID Connect at `/.well-known/openid-configuration`."""
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": self.token_url,
            "jwks_uri": self.keys_url,
            "end_session_endpoint": f"{self.url}/logout",
        }

    def authorize(self, asked: Mapping[str, str]) -> str:
        """The address to which a browser is redirected after its login, with a code."""
        code = secrets.token_urlsafe(24)
        self._codes[code] = dict(asked)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked.get('state', '')})}"

    def exchange(self, client_id: str, secret: str, form: Mapping[str, str]) -> dict[str, object] | None:
        """The ID token for a code, once; None where client, address and verifier are not those of the code."""
        asked = self._codes.pop(form.get("code", ""), {})
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        known = self._clients.get(client_id)
        if (
            known is None
            or not secrets.compare_digest(known.encode(), secret.encode())
            or (asked.get("client_id"), asked.get("redirect_uri")) != (client_id, form.get("redirect_uri"))
            or asked.get("code_challenge") != challenge
        ):
            return None
        return self._id_token(client_id, nonce=asked.get("nonce", ""))

    def refresh(self, client_id: str, refresh_token: str) -> dict[str, object] | None:
        """Another ID token, once for each refresh token; None where there is none for it (any more)."""
        if self._refresh_tokens.pop(refresh_token, None) != client_id or not self.refreshes:
            return None
        return self._id_token(client_id)

    def _id_token(self, client_id: str, **claims: object) -> dict[str, object]:
        token = self.token("person", **{"aud": client_id, **claims, **self.person})
        granted: dict[str, object] = {"id_token": token, "token_type": "Bearer", "expires_in": self._lifetime_s}
        if self.refreshes:
            granted["refresh_token"] = secrets.token_urlsafe(24)
            self._refresh_tokens[str(granted["refresh_token"])] = client_id
        return granted

    def keys(self) -> dict[str, object]:
        """The document at `keys_url`."""
        return {"keys": [self._key.as_dict(private=False, use="sig", alg="RS256")]}

    def grant(self, client_id: str, secret: str) -> dict[str, object] | None:
        """The answer to a client's request for a token; None where id and secret do not belong together."""
        known = self._clients.get(client_id)
        if known is None or not secrets.compare_digest(known.encode(), secret.encode()):
            return None
        return self._granted(client_id)

    def grant_to_signer(self, assertion: str) -> dict[str, object] | None:
        """The answer to a client that shows an assertion: for this issuer, now, and once where it has an id."""
        for client_id, key in self._signers.items():
            try:
                claims = jwt.decode(assertion, key, algorithms=["RS256", "ES256"]).claims
            except (JoseError, ValueError):
                continue
            if claims.get("sub") == client_id:
                return self._granted(client_id) if self._accepts(claims) else None
        return None

    def _accepts(self, claims: Mapping[str, Any]) -> bool:
        """Whether an assertion is for this issuer, holds now, and was not shown before."""
        now, assertion_id = int(time.time()), claims.get("jti")
        is_new = assertion_id is None or assertion_id not in self._assertion_ids
        self._assertion_ids.add(str(assertion_id))
        is_ours = claims.get("aud") in (self.url, self.token_url)
        return is_new and is_ours and bool(claims.get("nbf", now) <= now < claims.get("exp", 0))

    def _granted(self, client_id: str) -> dict[str, object]:
        token = self.token(client_id, client_id=client_id)  # RFC 9068 wants both
        return {"access_token": token, "token_type": "Bearer", "expires_in": self._lifetime_s}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that a client keeps open do not keep `server_close` waiting.
    block_on_close = False

    def __init__(self, issuer: TokenIssuer, context: ssl.SSLContext) -> None:
        super().__init__((HOST, 0), _Handler)
        self.issuer = issuer
        # The handshake comes with the first read, on the connection's thread.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that ends its connection, or does not trust us, is no error of the test's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/keys":
            self._answer(HTTPStatus.OK, self.server.issuer.keys())
        elif path == "/.well-known/openid-configuration":
            self._answer(HTTPStatus.OK, self.server.issuer.description())
        elif path == "/authorize" and "redirect_uri=" in query:
            asked = {name: values[-1] for name, values in parse_qs(query).items()}
            self._answer(HTTPStatus.FOUND, {}, location=self.server.issuer.authorize(asked))
        elif path == "/logout":
            self._log_out({name: values[-1] for name, values in parse_qs(query).items()})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "not_found"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.path not in ("/token", "/logout") or length > MAX_REQUEST_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.BAD_REQUEST, {"error": "invalid_request"})
            return
        form = {name: values[-1] for name, values in parse_qs(self.rfile.read(length).decode("latin-1")).items()}
        if self.path == "/logout":
            self._log_out(form)
        else:
            self._grant(form)

    def _log_out(self, asked: dict[str, str]) -> None:
        """By GET or by POST (OpenID Connect RP-Initiated Logout 1.0, 2)."""
        self.server.issuer.logouts.append(asked | {"method": self.command})
        self._answer(HTTPStatus.FOUND, {}, location=asked["post_logout_redirect_uri"])

    def _grant(self, form: dict[str, str]) -> None:
        credentials = _credentials(self.headers.get("Authorization", ""), form)
        if form.get("grant_type") == "authorization_code":
            granted = self.server.issuer.exchange(*credentials, form)
        elif form.get("grant_type") == "refresh_token":
            granted = self.server.issuer.refresh(credentials[0], form.get("refresh_token", ""))
        elif form.get("grant_type") == _BY_ASSERTION:
            granted = self.server.issuer.grant_to_signer(form.get("assertion", ""))
        elif form.get("grant_type") == "client_credentials" and "client_assertion" in form:
            granted = self.server.issuer.grant_to_signer(form["client_assertion"])
        elif form.get("grant_type") == "client_credentials":
            granted = self.server.issuer.grant(*credentials)
        else:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": "unsupported_grant_type"})
            return
        if granted is None:
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
        else:
            self._answer(HTTPStatus.OK, granted)

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed into the test's output."""

    def _answer(self, status: HTTPStatus, body: Mapping[str, object], *, location: str = "") -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _credentials(authorization: str, form: Mapping[str, str]) -> tuple[str, str]:
    """A client's id and secret: by HTTP's Basic, or in the form (RFC 6749, 2.3.1)."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return form.get("client_id", ""), form.get("client_secret", "")
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return unquote(client_id), unquote(secret)


def _new_key() -> RSAKey:
    return RSAKey.generate_key(KEY_BITS, {"kid": secrets.token_hex(8)})
