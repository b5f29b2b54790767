"""The login of one connection: which requests are served before it, and the answer to each of its messages.

Before its login a client may send ApiVersions, SaslHandshake and SaslAuthenticate, in that order; any other request
closes the connection. A client that has logged in may log in again, as the same user by the same mechanism (KIP-368),
and must do so before its session ends. After SaslHandshake version 0 the messages are bare frames, without a request
around them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from odradek.common.errors import ErrorCode
from odradek.common.log_lines import get_logger
from odradek.protocol.apis import ApiKey
from odradek.security.sasl.exchange import AuthenticationError, Exchange, LoggedIn
from odradek.security.sasl.listener import ListenerSasl

# Clients log in as soon as they are connected.
LOGIN_TIMEOUT_MS = 30_000
# A login costs more than other requests, so a client that has logged in may begin another one only after this pause.
REAUTHENTICATION_PAUSE_MS = 1000
_OPEN_TO_ALL = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
_log = get_logger("server.network.login_gate")


class _State(Enum):
    HANDSHAKE = "expects SaslHandshake"
    MESSAGES = "expects messages of the mechanism"
    OPEN = "is logged in"
    FAILED = "is closed once the answer is sent"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a message of a login.

    Attributes:
        token: the message of the mechanism for the client.
        code, text: the error; NONE and "" if the login goes on, or has succeeded.
        session_ms: the time after which the client must log in again; 0 for never.
    """

    token: bytes = field(default=b"", repr=False)
    code: ErrorCode = ErrorCode.NONE
    text: str = ""
    session_ms: int = 0


class LoginGate:
    """The login of one connection on a listener with SASL.

    Attributes:
        user: the name of the user who has logged in; "" before that.
        by_token: whether the user logged in by a delegation token.
        uses_raw_tokens: whether frames are messages of the mechanism, without a request around them.
    """

    __slots__ = (
        "_began_ms",
        "_ends_ms",
        "_exchange",
        "_listener",
        "_mechanism",
        "_next_login_ms",
        "_state",
        "by_token",
        "user",
        "uses_raw_tokens",
    )

    def __init__(self, listener: ListenerSasl, now_ms: int) -> None:
        """Times are monotonic ms unless a name says otherwise."""
        self._listener = listener
        self._state = _State.HANDSHAKE
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._began_ms = now_ms
        self._ends_ms: int | None = None
        self._next_login_ms = now_ms
        self.user = ""
        self.by_token = False
        self.uses_raw_tokens = False

    @property
    def listener(self) -> ListenerSasl:
        return self._listener

    @property
    def is_open(self) -> bool:
        """Whether the client has logged in, and is not in the middle of another login."""
        return self._state is _State.OPEN

    @property
    def expects_token(self) -> bool:
        """Whether the next message must be one of the mechanism."""
        return self._state is _State.MESSAGES

    @property
    def blocks(self) -> bool:
        """Whether `step` may block, or compute for long, for the next message."""
        return self._mechanism in self._listener.off_loop

    def restart_timeout(self, now_ms: int) -> None:
        """Begin the time for a login again: until now the node did not serve clients."""
        self._began_ms = now_ms

    def refusal(self, api_key: int, now_ms: int) -> str:
        """Why a request is not served now; "" if it is."""
        state = self._state
        if state is _State.OPEN:
            if self._ends_ms is None or now_ms < self._ends_ms or api_key == ApiKey.SASL_HANDSHAKE:
                return ""
            self._listener.sessions_expired += 1
            return f"the session of {self.user!r} ended, and it did not log in again (connections.max.reauth.ms)"
        if state is _State.HANDSHAKE and api_key in _OPEN_TO_ALL:
            return ""
        if state is _State.MESSAGES and api_key == ApiKey.SASL_AUTHENTICATE:
            return ""
        return f"API key {api_key} came before the client had logged in"

    def slowness(self, now_ms: int) -> str:
        """Why a login takes too long; "" if it does not."""
        if self._state is _State.OPEN or self.user or now_ms - self._began_ms < LOGIN_TIMEOUT_MS:
            return ""
        return f"the client did not log in within {LOGIN_TIMEOUT_MS} ms"

    def begin(self, mechanism: str, version: int, now_ms: int) -> ErrorCode:
        """Begin a login by a mechanism. After UNSUPPORTED_SASL_MECHANISM the connection must be closed."""
        if self._state is _State.OPEN and now_ms < self._next_login_ms:
            return ErrorCode.ILLEGAL_SASL_STATE
        begin = self._listener.mechanisms.get(mechanism)
        if begin is None or (self.user and mechanism != self._mechanism):
            self._state = _State.FAILED
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self.user:
            self._next_login_ms = now_ms + REAUTHENTICATION_PAUSE_MS
        self._mechanism = mechanism
        self._exchange = begin()
        next(self._exchange)
        self.uses_raw_tokens = version == 0
        self._state = _State.MESSAGES
        return ErrorCode.NONE

    def evaluate(self, message: bytes, peer: str, now_ms: int, wall_ms: int) -> Answer:
        """Answer one message of the mechanism.

        Args:
            peer: for the log.
            wall_ms: the wall clock, for the expiry of tokens.
        """
        return self.apply_result(self.step(message), peer, now_ms, wall_ms)

    def step(self, message: bytes) -> bytes | LoggedIn | AuthenticationError:
        """Pass a message to the mechanism. This changes only the exchange, so it may run in a thread."""
        exchange = self._exchange
        assert exchange is not None, "a mechanism is chosen first"
        try:
            if len(message) > self._listener.config.max_receive_bytes:
                raise AuthenticationError("a message is larger than sasl.server.max.receive.size")
            return exchange.send(message)
        except StopIteration as end:
            login: LoggedIn = end.value
            return login
        except AuthenticationError as error:
            return error

    def apply_result(
        self, outcome: bytes | LoggedIn | AuthenticationError, peer: str, now_ms: int, wall_ms: int
    ) -> Answer:
        """Apply the outcome of `step`; arguments as of `evaluate`."""
        if isinstance(outcome, LoggedIn):
            return self._logged_in(outcome, peer, now_ms, wall_ms)
        if isinstance(outcome, AuthenticationError):
            return self._failed(str(outcome), peer, outcome.reason)
        return Answer(outcome)

    def _logged_in(self, login: LoggedIn, peer: str, now_ms: int, wall_ms: int) -> Answer:
        if self.user and login.name != self.user:
            return self._failed("Cannot change principals during re-authentication", peer)
        counts = self._listener.counts_of(self._mechanism)
        if self.user:
            counts.reauthentications += 1
        else:
            counts.succeeded += 1
        max_reauth_ms = self._listener.max_reauth_ms.get(self._mechanism, 0)
        limits = [max_reauth_ms] if max_reauth_ms > 0 else []
        if login.expires_at_ms is not None:
            limits.append(max(1, login.expires_at_ms - wall_ms))
        session_ms = min(limits, default=0)
        self._ends_ms = now_ms + session_ms if limits else None
        self._exchange, self.uses_raw_tokens = None, False
        self.user, self.by_token = login.name, login.by_token
        self._state = _State.OPEN
        return Answer(login.final_token, session_ms=session_ms)

    def _failed(self, text: str, peer: str, reason: str = "") -> Answer:
        counts = self._listener.counts_of(self._mechanism)
        if self.user:
            counts.reauthentications_failed += 1
        else:
            counts.failed += 1
        self._state, self._exchange = _State.FAILED, None
        name, why = self._listener.name, reason or text
        _log.warning("login failed", alike=name + why, peer=peer, listener=name, mechanism=self._mechanism, reason=why)
        return Answer(code=ErrorCode.SASL_AUTHENTICATION_FAILED, text=text)
