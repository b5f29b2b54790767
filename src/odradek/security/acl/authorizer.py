"""Kafka's StandardAuthorizer: a rule that denies wins over one that allows, and what no rule names is denied.

Super users may do everything, also before the metadata is loaded; until then all others are denied, with the reason
`loading`, and a node refuses to decide for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Acl
from odradek.security.acl.index import AclIndex, find_rule


class AclDecision(NamedTuple):
    """What was decided, and why.

    Attributes:
        rule: the entry that decides; None where `reason` does.
        reason: `acl`, `super user`, `no acl` (nothing speaks of the resource), `no match` (nothing speaks of this
            principal, operation and host), or `loading`.
    """

    allowed: bool
    reason: str
    rule: Acl | None = None


# Then they are all forgotten. Clients choose the names that they ask for: of a long one nothing is kept.
MAX_KEPT_DECISIONS = 8192
MAX_KEPT_NAME_LETTERS = 255
# What a connection keeps for itself.
MAX_KEPT_BY_CLIENT = 32
_SUPER_USER = AclDecision(True, "super user")
_LOADING = AclDecision(False, "loading")
_NO_MATCH = AclDecision(False, "no match")


class KeptPermissions:
    """What the client of one connection was allowed last. It holds in one epoch of the authorizer, for one principal.

    A client asks the same with each request: to find it here takes a third of what it takes to ask the authorizer.
    """

    __slots__ = ("allowed", "epoch")

    def __init__(self) -> None:
        self.epoch: object = None
        self.allowed: set[tuple[int, int, str]] = set()

    def keep(self, epoch: object, operation: int, resource_type: int, name: str) -> None:
        """The client may do it, as decided in an epoch."""
        if self.epoch is not epoch or len(self.allowed) >= MAX_KEPT_BY_CLIENT:
            self.epoch = epoch
            self.allowed.clear()
        if len(name) <= MAX_KEPT_NAME_LETTERS:
            self.allowed.add((operation, resource_type, name))

    def forget(self) -> None:
        """The connection has another principal."""
        self.epoch = None
        self.allowed.clear()


class StandardAuthorizer:
    """Decides by the entries of the newest image."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        """
        Args:
            super_users: principals as `User:name`.
            allow_if_no_acl: `allow.everyone.if.no.acl.found`.
        """
        self._super_users = frozenset(super_users)
        self._no_acl = AclDecision(allow_if_no_acl, "no acl")
        self._index = AclIndex()
        self._acls: Mapping[UUID, Acl] = {}
        # Whether the entries are known.
        self.is_loaded = False
        # By principal, host, operation and type of resource; then by its name, whose hash is known.
        self._decided: dict[tuple[str, str, int, int], dict[str, bool]] = {}
        self._kept_count = 0
        # Rises with each change of the entries.
        self.version = 0
        # Another object for each change, of this authorizer or by another one in its place.
        self.epoch = object()

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def update(self, acls: Mapping[UUID, Acl], changed: Iterable[UUID] | None = None) -> None:
        """Follow the image's table of entries.

        Args:
            changed: ids of those that differ from the table given before; None: any may.
        """
        before, self._acls, self.is_loaded = self._acls, acls, True
        self.version += 1
        self.epoch = object()
        self._forget()
        for acl_id in dict.fromkeys([*before, *acls]) if changed is None else changed:
            old, new = before.get(acl_id), acls.get(acl_id)
            if old != new:
                if old is not None:
                    self._index.remove(old)
                if new is not None:
                    self._index.add(new)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over what changed; a subscriber of the publisher."""
        if delta.changed_acls or not self.is_loaded:
            self.update(image.acls, delta.changed_acls if self.is_loaded else None)

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether `principal` at `host` may do it. Decisions are kept: a client asks the same again and again."""
        asked = principal, host, operation, resource_type
        decided = self._decided.get(asked)
        allowed = None if decided is None else decided.get(name)
        if allowed is None:
            allowed = self._decide(principal, host, operation, resource_type, name)[0]
            if self.is_loaded and len(name) <= MAX_KEPT_NAME_LETTERS:
                if self._kept_count >= MAX_KEPT_DECISIONS:
                    self._forget()
                self._kept_count += 1
                self._decided.setdefault(asked, {})[name] = allowed
        return allowed

    def _forget(self) -> None:
        self._decided.clear()
        self._kept_count = 0

    def why(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> AclDecision:
        """The decision, and the rule that makes it."""
        return AclDecision(*self._decide(principal, host, operation, resource_type, name))

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> tuple[bool, str, Acl | None]:
        """As `AclDecision`, which takes as long to make as a rule to find."""
        if principal in self._super_users:
            return _SUPER_USER
        if not self.is_loaded:
            return _LOADING
        patterns = self._index.matching(resource_type, name)
        if not patterns:
            return self._no_acl
        for pattern in patterns:
            if pattern.denied and (rule := find_rule(pattern.denied, principal, operation, host)) is not None:
                return False, "acl", rule
        for pattern in patterns:
            if pattern.allowed and (rule := find_rule(pattern.allowed, principal, operation, host)) is not None:
                return True, "acl", rule
        return _NO_MATCH

    def authorize_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether `principal` may do it to some resource of the type (KIP-679)."""
        if self.authorize(principal, host, operation, resource_type, "hardcode"):
            return True
        return self.is_loaded and self._index.allows_any(principal, operation, host, resource_type)
