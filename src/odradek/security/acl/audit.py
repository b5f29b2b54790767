"""The audit log: denied operations with principal, host and rule; optionally allowed ones too.

Each line is a JSON object. Denied operations have the level WARN: of many by the same client (principal, host,
operation, type of resource, API) the first few are written, and the number of the others. Allowed ones are written at
DEBUG, which `kafka-configs --entity-type broker-loggers` turns on. Of a request only the names of resources are
written.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING

from odradek.common.log_lines import ROOT, get_json_logger
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.apis import ApiKey, api_name

if TYPE_CHECKING:
    from odradek.metadata.model import Acl
    from odradek.security.acl.authorizer import AclDecision

AUDIT_LOGGER = "authorizer.audit"
# Longer than any valid name of a topic; names from clients can have any length.
MAX_NAME_LETTERS = 300
_log = get_json_logger(AUDIT_LOGGER)
# If other parts of a node log at DEBUG, this logger still does not write a line for each request.
_log.set_level(logging.WARNING)


# Whether allowed operations are written too. If the level of `AUDITING` is above DEBUG, they are not: each request
# compares the two, and a call would cost it more than the rest of the check of a permission.
audits_allowed = partial(_log.is_enabled_for, logging.DEBUG)
AUDITING = logging.getLogger(f"{ROOT}.{AUDIT_LOGGER}")
DEBUG = logging.DEBUG


def audit(
    decision: AclDecision,
    *,
    principal: str,
    host: str,
    operation: int,
    resource_type: int,
    name: str,
    api_key: int,
    client_id: str,
) -> None:
    """Write a decision, if the logger's level includes it."""
    fields = {
        "principal": principal[:MAX_NAME_LETTERS],
        "host": host,
        "operation": AclOperation(operation).name,
        "resource_type": AclResourceType(resource_type).name,
        "resource": name[:MAX_NAME_LETTERS],
        "api": api_name(ApiKey(api_key)),
        "client_id": client_id[:MAX_NAME_LETTERS],
        "reason": decision.reason,
        "rule": None if decision.rule is None else rule_text(decision.rule)[: 2 * MAX_NAME_LETTERS],
    }
    if decision.allowed:
        _log.debug("allowed", **fields)
    else:
        who = (principal, host, fields["operation"], fields["resource_type"], fields["api"])
        _log.warning("denied", alike=json.dumps(who), **fields)


def rule_text(acl: Acl) -> str:
    """An ACL in one line: `ALLOW User:alice from * READ TOPIC PREFIXED orders`."""
    return " ".join(
        (
            PermissionType(acl.permission_type).name,
            acl.principal,
            "from",
            acl.host,
            AclOperation(acl.operation).name,
            AclResourceType(acl.resource_type).name,
            PatternType(acl.pattern_type).name,
            acl.resource_name,
        )
    )
