"""Logins by delegation tokens: SCRAM with the token's id as the name, and the token as the password (KIP-48)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.common.delegation import token_hmac, token_password
from odradek.common.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramMechanism, keys_of, salted_password
from odradek.metadata.model import DelegationToken, ScramCredential

# Credentials are computed at the first login with a token, which takes milliseconds, and cached.
MOST_KEPT = 1000


class TokenCredentials:
    """The delegation tokens of a cluster, and their SCRAM credentials."""

    def __init__(
        self,
        secret_key: str,
        tokens: Callable[[], Mapping[str, DelegationToken]],
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """
        Args:
            secret_key: `delegation.token.secret.key`; "" disables tokens.
            tokens: returns the present tokens by id.
            now_ms: the wall clock.
        """
        self._secret_key = secret_key
        self._tokens = tokens
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._made: dict[tuple[str, int], ScramCredential] = {}

    def find(self, token_id: str, mechanism: ScramMechanism) -> tuple[str, int, ScramCredential] | None:
        """The owner, expiry (wall-clock ms) and credential of a valid token; None if there is none."""
        token = self._tokens().get(token_id)
        if token is None or not self._secret_key:
            return None
        ends_ms = min(token.max_timestamp_ms, token.expiration_timestamp_ms)
        if ends_ms < self._now_ms():
            return None
        return token.owner.partition(":")[2], ends_ms, self._credential(token_id, mechanism)

    def _credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        key = (token_id, mechanism.number)
        found = self._made.get(key)
        if found is None:
            password = token_password(token_hmac(self._secret_key, token_id)).encode()
            salt = self._random_bytes(SALT_BYTES)
            keys = keys_of(mechanism, salted_password(mechanism, password, salt, DEFAULT_ITERATIONS))
            found = ScramCredential(salt, keys.stored_key, keys.server_key, DEFAULT_ITERATIONS)
            if len(self._made) >= MOST_KEPT:
                self._made.pop(next(iter(self._made)), None)  # which another thread may have done
            self._made[key] = found
        return found
