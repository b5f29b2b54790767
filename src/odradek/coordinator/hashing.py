"""The partition of a group in the offsets topic, by Kafka's hash, so that a Kafka data directory stays readable."""

from __future__ import annotations

from functools import lru_cache

INT32_MIN = -(2**31)
# Each request of a group or a transaction looks for its partition by the hash of its id. Clients choose the ids, of up
# to 32,767 characters: those of longer ones are not kept, which would take hundreds of megabytes.
MAX_CACHED_IDS = 10_000
MAX_CACHED_CHARACTERS = 256


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, wrapping at 32 bits, signed."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


cached_hash = lru_cache(MAX_CACHED_IDS)(java_string_hash)


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of __consumer_offsets for `group_id`; the hash -2^31, which has no absolute value, counts as 0."""
    value = (cached_hash if len(group_id) <= MAX_CACHED_CHARACTERS else java_string_hash)(group_id)
    return (0 if value == INT32_MIN else abs(value)) % partition_count
