"""What a link's prefix makes of the name of a topic: `orders` at the source is `west.orders` here.

The only place where one name is made of the other. The setting is Confluent's `cluster.link.prefix`; where it ends
with a dot, the names are those of MirrorMaker 2's DefaultReplicationPolicy (KIP-382).
"""

from __future__ import annotations

from typing import Final

from odradek.common.topic_names import MAX_NAME_LENGTH, is_legal_topic_name

PREFIX: Final = "cluster.link.prefix"


def mirror_name(prefix: str, source_topic: str) -> str:
    """The name here of the mirror of a topic."""
    return prefix + source_topic


def source_name(prefix: str, topic: str) -> str | None:
    """The name at the source of what is mirrored as `topic`; None where no topic there has a mirror of that name."""
    name = topic.removeprefix(prefix)
    return name if name and topic.startswith(prefix) else None


def prefix_problem(text: str) -> str:
    """What is wrong with a prefix; empty where nothing is. It leaves room for one letter of a name at least."""
    if is_legal_topic_name(f"{text}x") and text:
        return ""
    return f"must be 1 to {MAX_NAME_LENGTH - 1} ASCII letters, digits, '.', '_' and '-'"
