"""Converts topic names by the prefix of a link: `orders` at the source is `west.orders` here.

The setting is Confluent's `cluster.link.prefix`; if it ends with a dot, the names are those of MirrorMaker 2's
DefaultReplicationPolicy (KIP-382).
"""

from __future__ import annotations

from typing import Final

from odradek.common.topic_names import MAX_NAME_LENGTH, is_legal_topic_name

PREFIX: Final = "cluster.link.prefix"


def mirror_name(prefix: str, source_topic: str) -> str:
    """The name here of the mirror of a topic."""
    return prefix + source_topic


def source_name(prefix: str, topic: str) -> str | None:
    """The name at the source of the mirror `topic`; None if no mirror can have that name."""
    name = topic.removeprefix(prefix)
    return name if name and topic.startswith(prefix) else None


def prefix_problem(text: str) -> str:
    """Why a prefix is invalid; empty if it is valid. At least one character of a name must fit behind it."""
    if is_legal_topic_name(f"{text}x") and text:
        return ""
    return f"must be 1 to {MAX_NAME_LENGTH - 1} ASCII letters, digits, '.', '_' and '-'"
