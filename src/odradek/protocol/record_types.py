"""Values and keys of the records in the internal logs: which message they are, and how it is framed.

- metadata log: frame version (varint, 1), type id (varint), version (varint), body
- coordinators' logs (group, transaction, share): a key is its type id (int16) and the body in version 0; a value is its
  version (int16) and the body. The type id of the key says what the value is.
- control records in the metadata log (leader change, snapshot header and footer, voters) are framed by their batch and
  are plain messages.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from odradek.common.errors import ProtocolError
from odradek.protocol.apis import message_class
from odradek.protocol.codec import Buffer, append_to, decode
from odradek.protocol.declare import Message
from odradek.protocol.messages import index
from odradek.protocol.wire import read_uvarint, uvarint

METADATA_FRAME_VERSION: Final = 1

M = TypeVar("M", bound=Message)


class CoordinatorKind(Enum):
    """The coordinator in whose log a record is; each kind has its own numbers of records."""

    GROUP = "group"
    TRANSACTION = "transaction"
    SHARE = "share"


_KEYS: Final = {
    CoordinatorKind.GROUP: index.GROUP_KEYS,
    CoordinatorKind.TRANSACTION: index.TRANSACTION_KEYS,
    CoordinatorKind.SHARE: index.SHARE_KEYS,
}
_VALUES: Final = {
    CoordinatorKind.GROUP: index.GROUP_VALUES,
    CoordinatorKind.TRANSACTION: index.TRANSACTION_VALUES,
    CoordinatorKind.SHARE: index.SHARE_VALUES,
}
_loaded: dict[str, type[Message]] = {}


def _class_of(modules: dict[int, str], type_id: int, what: str) -> type[Message]:
    module = modules.get(type_id)
    if module is None:
        raise ProtocolError(f"{what} of type {type_id} does not exist")
    cls = _loaded.get(module)
    if cls is None:
        cls = _loaded[module] = message_class(module)
    return cls


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record of the metadata log.

    Raises:
        ApiError: UNSUPPORTED_VERSION, where this version cannot carry a value that must not get lost.
        ValueError: not a metadata record, or it has no such version.
    """
    if record.KIND != "metadata" or record.KEY is None:
        raise ValueError(f"{type(record).__name__} is not a metadata record")
    out = bytearray((METADATA_FRAME_VERSION,)) + uvarint(record.KEY) + uvarint(version)
    append_to(out, record, version)
    return bytes(out)


def decode_metadata_record(value: Buffer) -> tuple[Message, int]:
    """(record, its version) from the value of a record of the metadata log.

    Raises:
        ProtocolError: malformed, or of a type or version that this release does not know.
    """
    try:
        frame_version, pos = read_uvarint(value, 0)
        type_id, pos = read_uvarint(value, pos)
        version, pos = read_uvarint(value, pos)
    except IndexError as error:
        raise ProtocolError("a metadata record is cut short") from error
    if frame_version != METADATA_FRAME_VERSION:
        raise ProtocolError(f"frame version {frame_version} of a metadata record does not exist")
    cls = _class_of(index.METADATA_RECORDS, type_id, "a metadata record")
    return _decode_known(cls, value, version, pos), version


def encode_coordinator_key(key: Message, version: int = 0) -> bytes:
    """The key of a coordinator's record. Its int16 is the type id; there is only version 0 of each key.

    Raises:
        ValueError: not a coordinator's key, or it has no such version.
    """
    if key.KIND != "coordinator-key" or key.KEY is None:
        raise ValueError(f"{type(key).__name__} is not a coordinator's key")
    out = bytearray(key.KEY.to_bytes(2, "big"))
    append_to(out, key, version)
    return bytes(out)


def encode_coordinator_value(value: Message, version: int) -> bytes:
    """The value of a coordinator's record.

    Raises:
        ApiError: UNSUPPORTED_VERSION, where this version cannot carry a value that must not get lost.
        ValueError: not a coordinator's value, or it has no such version.
    """
    if value.KIND != "coordinator-value":
        raise ValueError(f"{type(value).__name__} is not a coordinator's value")
    out = bytearray(version.to_bytes(2, "big"))
    append_to(out, value, version)
    return bytes(out)


def coordinator_type_id(key: Buffer) -> int:
    """The type id of a coordinator's record from its key, known or not.

    Raises:
        ProtocolError: shorter than two bytes.
    """
    if len(key) < 2:
        raise ProtocolError("a coordinator's key is cut short")
    return int.from_bytes(key[0:2], "big", signed=True)


def decode_coordinator_key(kind: CoordinatorKind, key: Buffer) -> Message:
    """The key of a coordinator's record.

    Raises:
        ProtocolError: malformed, or of a type that this release does not know.
    """
    cls = _class_of(_KEYS[kind], coordinator_type_id(key), f"a {kind.value} coordinator's key")
    return decode(cls, key, 0, 2)


def decode_coordinator_value(kind: CoordinatorKind, type_id: int, value: Buffer) -> tuple[Message, int]:
    """(value, its version) of a coordinator's record whose key has this type id.

    Raises:
        ProtocolError: malformed, or of a type or version that this release does not know.
    """
    cls = _class_of(_VALUES[kind], type_id, f"a {kind.value} coordinator's value")
    if len(value) < 2:
        raise ProtocolError("a coordinator's value is cut short")
    version = int.from_bytes(value[0:2], "big", signed=True)
    return _decode_known(cls, value, version, 2), version


def _decode_known(cls: type[M], data: Buffer, version: int, offset: int) -> M:
    if version not in cls.VERSIONS:
        raise ProtocolError(f"{cls.__name__} version {version} is newer than this release knows")
    return decode(cls, data, version, offset)
