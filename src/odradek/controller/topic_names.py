"""Refuses topics whose name is not legal."""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import topic_name_problem


def check_topic_name(name: str) -> None:
    """
    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
