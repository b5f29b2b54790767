"""Settings of the authorizer."""

from __future__ import annotations

from odradek.settings.formats import STANDARD_AUTHORIZER
from odradek.settings.options import config, option


@config
class AuthorizerConfig:
    """The authorizer, and its super users."""

    class_name: str = option(
        "authorizer.class.name",
        default="",
        doc=f"Empty: every client may do everything. {STANDARD_AUTHORIZER}: by the ACLs of the cluster.",
    )
    super_users: str = option(
        "super.users", default="", doc="Principals that may do everything, as User:name, separated by semicolons."
    )
    allow_if_no_acl: bool = option(
        "allow.everyone.if.no.acl.found",
        default=False,
        doc="Whether every client may do everything to a resource that no ACL names.",
    )
