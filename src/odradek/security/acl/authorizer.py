"""Kafka's StandardAuthorizer: DENY takes precedence over ALLOW, and operations without a matching ACL are denied.

Super users may do everything, also before the metadata is loaded; until then all other principals are denied with the
reason `loading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Acl
from odradek.security.acl.index import AclIndex, find_rule


class AclDecision(NamedTuple):
    """A decision and its reason.

    Attributes:
        rule: the ACL that decides; None for other reasons.
        reason: `acl`, `super user`, `no acl` (none for the resource), `no match` (none for this principal, operation
            and host), or `loading`.
    """

    allowed: bool
    reason: str
    rule: Acl | None = None


# The cache is cleared at this size. Clients choose the names of resources: long ones are not cached.
MAX_KEPT_DECISIONS = 8192
MAX_KEPT_NAME_LETTERS = 255
# The size of the cache of a connection.
MAX_KEPT_BY_CLIENT = 32
_SUPER_USER = AclDecision(True, "super user")
_LOADING = AclDecision(False, "loading")
_NO_MATCH = AclDecision(False, "no match")


class KeptPermissions:
    """The latest allowed operations of one connection, for one epoch of the authorizer and one principal.

    The requests of a client need the same permissions: this cache takes a third of the time of the authorizer.

    Attributes:
        epoch: of the authorizer that allowed them.
        allowed: operation, type of resource and name.
        readable: the names of the topics of which it is READ. A set is never used for another epoch: the request that
            has it goes on with the permissions that held when it came.
    """

    __slots__ = ("allowed", "epoch", "readable")

    def __init__(self) -> None:
        self.epoch: object = None
        self.allowed: set[tuple[int, int, str]] = set()
        self.readable: set[str] = set()

    def add(self, epoch: object, operation: int, resource_type: int, name: str) -> None:
        """The client may do it, as decided in an epoch."""
        if self.epoch is not epoch or len(self.allowed) >= MAX_KEPT_BY_CLIENT:
            self.clear()
            self.epoch = epoch
        if len(name) <= MAX_KEPT_NAME_LETTERS:
            self.allowed.add((operation, resource_type, name))
            if operation == AclOperation.READ and resource_type == AclResourceType.TOPIC:
                self.readable.add(name)

    def clear(self) -> None:
        """The connection has another principal."""
        self.epoch = None
        self.allowed.clear()
        self.readable = set()


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
        # By principal, host, operation and type of resource; then by the name, whose hash is cached.
        self._decided: dict[tuple[str, str, int, int], dict[str, bool]] = {}
        self._kept_count = 0
        # Rises with each change of the entries.
        self.version = 0
        # A new object for each change, and for each authorizer that replaces this one.
        self.epoch = object()

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def update(self, acls: Mapping[UUID, Acl], changed: Iterable[UUID] | None = None) -> None:
        """Apply the ACLs of an image.

        Args:
            changed: the ids of changed ACLs; None: all may have changed.
        """
        before, self._acls, self.is_loaded = self._acls, acls, True
        self.version += 1
        self.epoch = object()
        self._clear_decided()
        for acl_id in dict.fromkeys([*before, *acls]) if changed is None else changed:
            old, new = before.get(acl_id), acls.get(acl_id)
            if old != new:
                if old is not None:
                    self._index.remove(old)
                if new is not None:
                    self._index.add(new)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed ACLs; a subscriber of the publisher."""
        if delta.changed_acls or not self.is_loaded:
            self.update(image.acls, delta.changed_acls if self.is_loaded else None)

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether `principal` at `host` is allowed. Decisions are cached, since requests of a client repeat them."""
        asked = principal, host, operation, resource_type
        decided = self._decided.get(asked)
        allowed = None if decided is None else decided.get(name)
        if allowed is None:
            allowed = self._decide(principal, host, operation, resource_type, name)[0]
            if self.is_loaded and len(name) <= MAX_KEPT_NAME_LETTERS:
                if self._kept_count >= MAX_KEPT_DECISIONS:
                    self._clear_decided()
                self._kept_count += 1
                self._decided.setdefault(asked, {})[name] = allowed
        return allowed

    def _clear_decided(self) -> None:
        self._decided.clear()
        self._kept_count = 0

    def why(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> AclDecision:
        """The decision with its rule."""
        return AclDecision(*self._decide(principal, host, operation, resource_type, name))

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> tuple[bool, str, Acl | None]:
        """The fields of an `AclDecision`, whose creation takes as long as the search for a rule."""
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
