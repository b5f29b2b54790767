"""Decodes the records of internal logs as text: metadata, groups, transactions, share groups, control records."""

from __future__ import annotations

import base64
import re
from enum import Enum
from typing import Any

from odradek.common.errors import ApiError, ProtocolError
from odradek.common.topic_names import METADATA_TOPIC
from odradek.protocol.declare import Message, parse_versions
from odradek.record.control import ControlType, control_type, marker_coordinator_epoch
from odradek.record.record import Record


class Decoder(Enum):
    """The decoders of records."""

    NONE = "none"
    CLUSTER_METADATA = "cluster-metadata"
    GROUP = "group"
    TRANSACTION = "transaction"
    SHARE = "share"

    @classmethod
    def of_directory(cls, name: str) -> Decoder:
        """The decoder of a partition's directory, by its topic."""
        topic = name.rpartition("-")[0]
        return next((decoder for decoder, of in _TOPICS.items() if of == topic), cls.NONE)

    @property
    def topic(self) -> str:
        """The topic whose records it reads."""
        return _TOPICS[self]


_TOPICS = {
    Decoder.CLUSTER_METADATA: METADATA_TOPIC,
    Decoder.GROUP: "__consumer_offsets",
    Decoder.TRANSACTION: "__transaction_state",
    Decoder.SHARE: "__share_group_state",
}


def decode_record(record: Record, decoder: Decoder, *, is_control: bool) -> dict[str, Any] | str:
    """ "key" and "value" of a record, or "control"; a text is the reason why it cannot be decoded."""
    try:
        if is_control:
            return {"control": _control(record)}
        if decoder is Decoder.CLUSTER_METADATA:
            return {"key": text_of(record.key), "value": _metadata(record)}
        if decoder is not Decoder.NONE:
            return _coordinator(record, decoder)
    except (ProtocolError, ApiError) as error:
        return str(error)
    return as_they_are(record)


def as_they_are(record: Record) -> dict[str, Any]:
    """Key and value, not decoded."""
    return {"key": text_of(record.key), "value": text_of(record.value)}


def text_of(data: bytes | None) -> Any:
    """Bytes as text; {"base64": …} where they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain(message: Any, version: int | None = None) -> Any:
    """A message as JSON values: structs as objects, ids in Kafka's form, bytes as base64.

    Args:
        version: leaves out fields that this version of the message does not carry.
    """
    from uuid import UUID

    if isinstance(message, Message):
        return {
            spec.name: plain(getattr(message, spec.name), version)
            for spec in message.FIELDS
            if version is None or version in parse_versions(spec.versions)
        }
    if isinstance(message, list | tuple):
        return [plain(item, version) for item in message]
    if isinstance(message, UUID):
        from odradek.raft.quorum_state import uuid_text

        return uuid_text(message)
    if isinstance(message, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(message)).decode()
    return message


def type_name(message: Message) -> str:
    """`TopicRecord` → TOPIC_RECORD, as in Kafka's dumper."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(message).__name__).upper()


def _metadata(record: Record) -> dict[str, Any]:
    from odradek.protocol.record_types import decode_metadata_record

    if record.value is None:
        raise ProtocolError("a metadata record without a value")
    message, version = decode_metadata_record(record.value)
    _hide_secret(message)
    return {"type": type_name(message), "version": version, "data": plain(message, version)}


def _hide_secret(message: Message) -> None:
    """Hide a secret of a broker that an older release, or Kafka, has stored in plain text."""
    from odradek.protocol.messages.config_record import ConfigRecord
    from odradek.security.sealing import is_sealed
    from odradek.settings.table import is_secret

    if isinstance(message, ConfigRecord) and message.value and is_secret(message.name) and not is_sealed(message.value):
        message.value = "(hidden)"


def _coordinator(record: Record, decoder: Decoder) -> dict[str, Any]:
    from odradek.protocol.record_types import (
        CoordinatorKind,
        coordinator_type_id,
        decode_coordinator_key,
        decode_coordinator_value,
    )

    kind = CoordinatorKind(decoder.value)
    if record.key is None:
        raise ProtocolError("a coordinator's record without a key")
    key = decode_coordinator_key(kind, record.key)
    found: dict[str, Any] = {"key": {"type": type_name(key), "data": plain(key)}, "value": None}
    if record.value is not None:
        value, version = decode_coordinator_value(kind, coordinator_type_id(record.key), record.value)
        data = plain(value, version)
        _open_members(value, data)
        found["value"] = {"type": type_name(value), "version": version, "data": data}
    return found


def _open_members(value: Message, data: dict[str, Any]) -> None:
    """Decode the metadata and assignments of consumers in classic groups, which are opaque to the coordinator."""
    from odradek.client.groups import CONSUMER_PROTOCOL, decode_assignment, decode_subscription
    from odradek.protocol.messages.group_metadata_value import GroupMetadataValue

    if not isinstance(value, GroupMetadataValue) or value.protocol_type != CONSUMER_PROTOCOL:
        return
    for member, shown in zip(value.members, data["members"], strict=True):
        shown["subscription"] = decode_subscription(member.subscription)
        shown["assignment"] = [f"{topic}-{index}" for topic, index in decode_assignment(member.assignment)]


def _control(record: Record) -> dict[str, Any]:
    from odradek.protocol.codec import decode
    from odradek.raft.batches import CONTROL_TYPES

    kind = control_type(record)
    if kind is None:
        return {"type": "UNKNOWN", "data": text_of(record.value)}
    if kind in (ControlType.COMMIT, ControlType.ABORT):
        return {"type": kind.name, "data": {"coordinator_epoch": marker_coordinator_epoch(record)}}
    cls = CONTROL_TYPES[kind]
    value = record.value or b""
    version = min(int.from_bytes(value[:2], "big"), cls.VERSIONS.last)
    return {"type": kind.name, "data": plain(decode(cls, value, version), version)}
