"""Valid names of topics, the names of internal topics, the name of the metadata topic, and names of partitions."""

from __future__ import annotations

import re

# A topic's name and the index of one of its partitions.
TopicPartition = tuple[str, int]

# The cluster's metadata: a log, and no topic that a client sees. Its directory is that of the metadata log.
METADATA_TOPIC = "__cluster_metadata"
METADATA_LOG = f"{METADATA_TOPIC}-0"
# Topics that the cluster itself writes.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """Why a topic's name is invalid: it must be a valid directory name in every file system. None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.match(name):
        return f"'{name!a}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def is_legal_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of letters, digits, '.', '_' and '-', and neither '.' nor '..'."""
    return topic_name_problem(name) is None
