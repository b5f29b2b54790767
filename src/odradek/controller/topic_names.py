"""What a topic may be called."""

from __future__ import annotations

import re

from odradek.common.errors import ApiError, ErrorCode

# Its directory is that of the metadata log: a topic of this name would be written into it.
METADATA_TOPIC = "__cluster_metadata"
MAX_NAME_LENGTH = 249
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> None:
    """Refuse what cannot be a directory's name in every file system.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not LEGAL_NAME.match(name):
        problem = f"'{name!a}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
