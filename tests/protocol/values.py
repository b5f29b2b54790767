"""Values for any message in any version, made from its declaration alone.

Styles: "default" leaves everything as it is; "low" has the least of each type, nulls and empty arrays; "high" has the
most, strings of several bytes a character and lengths whose varint takes two bytes; "random" has anything; "plain" has
small numbers that mean something everywhere (an error code, a duration), for libraries that insist on that.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from odradek.protocol.apis import API, message_class
from odradek.protocol.declare import Message
from odradek.protocol.layout import FieldLayout, layout_of
from odradek.protocol.messages import index

STYLES = ("default", "low", "high", "random")
OTHERS = (
    "aborted_txn",
    "request_header",
    "response_header",
    "consumer_protocol_assignment",
    "consumer_protocol_subscription",
    "control_record_type_schema",
    "default_principal_data",
    "end_txn_marker",
    "k_raft_version_record",
    "leader_change_message",
    "producer_snapshot",
    "quorum_state_data",
    "snapshot_footer_record",
    "snapshot_header_record",
    "voters_record",
)
RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
ALPHABET = "abz09._-é€𝄞\0"


def all_messages() -> list[type[Message]]:
    """Every whole message: requests, responses, headers, and the records of all logs."""
    classes = [cls for key in API for cls in (API[key].request, API[key].response)]
    for name, table in sorted(vars(index).items()):
        if name.endswith(("_RECORDS", "_KEYS", "_VALUES")):
            classes += [message_class(module) for module in table.values()]
    return classes + [message_class(module) for module in OTHERS]


def make(cls: type[Message], version: int, flexible: bool, style: str, rng: Random, depth: int = 0) -> Any:
    """A message of this class with values that this version can carry."""
    message = cls()
    if style == "default":
        return message
    layout = layout_of(cls, version, flexible)
    for one in (*layout.fields, *layout.tagged):
        if one.spec.tag is not None and style == "random" and rng.random() < 0.4:
            continue
        setattr(message, one.spec.name, value_of(one, version, flexible, style, rng, depth))
    if flexible and depth == 0 and style in ("high", "random"):
        message.unknown_tagged_fields = [(1000, b""), (1 << 20, b"later")]
    return message


def value_of(one: FieldLayout, version: int, flexible: bool, style: str, rng: Random, depth: int) -> Any:
    """A value of one field."""
    spec = one.spec
    if one.nullable and (style == "low" or (style == "random" and rng.random() < 0.3)):
        return None
    if spec.wire_type == "struct":
        return make(spec.element, version, flexible, style, rng, depth + 1)
    if spec.wire_type == "array":
        if style == "low":
            return []
        if isinstance(spec.element, str):
            long = 130 if style == "high" and depth < 2 else rng.randint(0, 3)
            return [scalar(spec.element, style, rng, 2) for _ in range(long)]
        count = 2 if style == "high" else rng.randint(1 if style == "plain" else 0, 2)
        return [make(spec.element, version, flexible, style, rng, depth + 1) for _ in range(count)]
    return scalar(spec.wire_type, style, rng, depth)


def scalar(wire_type: str, style: str, rng: Random, depth: int) -> Any:
    """A value of a type that holds no other."""
    if wire_type in RANGES and style == "plain":
        return rng.randint(1, 80)
    if wire_type in RANGES:
        low, high = RANGES[wire_type]
        return low if style == "low" else high if style == "high" else rng.randint(low >> rng.randint(0, 7), high)
    if wire_type == "bool":
        return style == "high" or (style != "low" and rng.random() < 0.5)
    if wire_type == "float64":
        return {"low": -1.7976931348623157e308, "high": 5e-324}.get(style, round(rng.uniform(-9, 9), 3))
    if wire_type == "uuid":
        return UUID(int={"low": 0, "high": (1 << 128) - 1}.get(style, rng.getrandbits(128)))
    if wire_type == "string":
        if style == "high":
            return "é€" * (26 if depth < 2 else 2)
        return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 6))) if style != "low" else ""
    length = {"low": 0, "high": 127 if depth < 2 else 5}.get(style, rng.randint(0, 8))
    return b"\xff" * length if style == "high" else rng.randbytes(length)


def sample(cls: type[Message], version: int, style: str, seed: int = 0) -> Any:
    """`make` with a generator of its own; the same arguments give the same message."""
    rng = Random(f"{cls.__name__} {version} {style} {seed}")
    return make(cls, version, version in cls.FLEXIBLE, style, rng)


def structs_within(cls: type[Message], version: int) -> list[type[Message]]:
    """Every struct that this version of a message may hold, each once."""
    found: list[type[Message]] = []
    waiting = [cls]
    while waiting:
        layout = layout_of(waiting.pop(), version, version in cls.FLEXIBLE)
        for one in (*layout.fields, *layout.tagged):
            element = one.spec.element
            if isinstance(element, type) and element not in found:
                found.append(element)
                waiting.append(element)
    return found
