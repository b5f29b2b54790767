"""Bugs to plant in how ACLs and credentials reach the nodes; each is caught by the world of `permissions`."""

from __future__ import annotations

from tests.sim.planted import Bug

PERMISSION_BUGS = (
    Bug(
        "a removed ACL still decides",
        "security.acl.authorizer:StandardAuthorizer.update",
        "if old is not None:",
        "if old is not None and new is not None:",
        "a client may do what no ACL allows any more",
    ),
    Bug(
        "an answer does not wait for its own node",
        "server.auto_topic_creation:wait_until_seen",
        "if is_seen(publisher.image):",
        "if True:",
        "the node that has answered refuses what was allowed, and allows what was forbidden",
    ),
    Bug(
        "DeleteAcls that is sent again waits for nothing",
        "server.handlers.delete_acls:_already_deleted",
        "if not emptied:",
        "if True:",
        "the same, where the controller's first answer was lost",
    ),
    Bug(
        "a snapshot has no ACLs",
        "metadata.image:MetadataImage._security_records",
        "for acl_id, acl in self.acls.items():",
        "for acl_id, acl in ():",
        "a node that starts at a snapshot forbids what was allowed",
    ),
    Bug(
        "a snapshot has no credentials",
        "metadata.image:MetadataImage._security_records",
        "for (user, mechanism), credential in sorted(self.scram.items(), key=lambda item: item[0]):",
        "for (user, mechanism), credential in ():",
        "users can log in no more at a node that starts at a snapshot",
    ),
    Bug(
        "a snapshot leaves removed ACLs in force",
        "metadata.publisher:MetadataPublisher.load_snapshot",
        "delta.changed_acls |= dict.fromkeys(old.acls)",
        "pass",
        "a node that was behind, and gets a snapshot, allows what was forbidden meanwhile",
    ),
    Bug(
        "a user that was taken away still logs in",
        "security.sasl.scram:ScramUsers.challenge",
        "found = credentials.get((name, self.mechanism.number))",
        'found = self.__dict__.setdefault("kept", {}).setdefault(name, credentials.get((name, self.mechanism.number)))',
        "who has logged in at a node does so with a password that counts no more",
    ),
    Bug(
        "a new password is answered when there is any",
        "server.handlers.alter_user_scram_credentials:_has",
        "image.scram.get(key) == credential",
        "key in image.scram",
        "the node that has answered lets in by the old password, and not by the new one",
    ),
    Bug(
        "a token that has ended still logs in",
        "security.sasl.delegation:TokenCredentials.find",
        "token = self._tokens().get(token_id)",
        'token = self.__dict__.setdefault("kept", {}).setdefault(token_id, self._tokens().get(token_id))',
        "who has a token goes on with it at nodes that have seen it",
    ),
    Bug(
        "a token's end is answered before its node knows",
        "server.handlers.delegation:ShownToken.wait_until_it_ends",
        "return token is None or token.expiration_timestamp_ms == ends_ms",
        "return True",
        "the node that has answered lets in by a token that has ended",
    ),
    Bug(
        "a snapshot has no tokens",
        "metadata.image:MetadataImage._security_records",
        "for token in self.delegation_tokens.values():",
        "for token in ():",
        "no one logs in by a token at a node that starts at a snapshot",
    ),
)
# The first seed of the world that catches it.
CAUGHT_BY_SEED = {
    "a removed ACL still decides": 2,
    "an answer does not wait for its own node": 1,
    "DeleteAcls that is sent again waits for nothing": 42,
    "a snapshot has no ACLs": 1,
    "a snapshot has no credentials": 1,
    "a snapshot leaves removed ACLs in force": 2,
    "a user that was taken away still logs in": 5,
    "a new password is answered when there is any": 5,
    "a token that has ended still logs in": 5,
    "a token's end is answered before its node knows": 5,
    "a snapshot has no tokens": 1,
}
