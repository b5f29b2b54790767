"""The keys of records, found without decoding the records: the only loop of compaction that runs for each record.

A record is: length, attributes (one byte), timestamp delta, offset delta, key length and key, value length and value,
headers; numbers are zigzag varints. Only the key is copied; of the value only its absence is read. The result is one
mark for each record: it stays, a later record has its key, or it is a tombstone.

Whole keys are stored, not digests, so that different keys never count as equal.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.varint import read_zigzag, zigzag

# Marks of records; 0 for those that stay.
DEAD = 1
TOMBSTONE = 2
# The memory of a key beside its bytes, measured on CPython 3.11: the bytes object, the number, the dict entry.
ENTRY_BYTES = 144


class OffsetMap:
    """The keys of a log's dirty part, each with the number of its last record.

    Records are numbered in their order, from 0, so that gaps between offsets cost nothing. Source: Kafka
    SkimpyOffsetMap.

    Args:
        budget_bytes: the memory limit; at least one batch fits, of any size.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._last: dict[bytes, int] = {}
        self._key_bytes = 0
        self.marks = bytearray()

    def __len__(self) -> int:
        return len(self._last)

    @property
    def used_bytes(self) -> int:
        """The estimated memory."""
        return len(self._last) * ENTRY_BYTES + self._key_bytes + len(self.marks)

    def has_room(self, record_count: int, payload_bytes: int) -> bool:
        """Whether so many records would fit if all their keys were new."""
        if not self.marks:
            return True
        return self.used_bytes + record_count * (ENTRY_BYTES + 1) + payload_bytes <= self._budget_bytes

    def skip(self, record_count: int) -> None:
        """Count records whose keys do not matter: aborted records and markers."""
        self.marks += bytes(record_count)

    def put_batch(self, data: bytes, position: int, end: int, record_count: int) -> None:
        """Add the keys of one batch; earlier records with these keys are dead.

        Args:
            data: holds the batch's decompressed records from `position` to `end`.
        Raises:
            ApiError: CORRUPT_MESSAGE, the bytes are not so many records.
        """
        keys, tombstones = _keys_of(data, position, end, record_count)
        first = len(self.marks)
        self.marks += bytes(record_count)
        marks, last, known_bytes = self.marks, self._last, 0
        get = last.get
        for number, key in enumerate(keys, first):
            if key is None:
                marks[number] = DEAD
                continue
            older = get(key)
            if older is None:
                known_bytes += len(key)
            else:
                marks[older] = DEAD
            last[key] = number
        for number in tombstones:
            # If it is dead already, the same batch has its key again.
            marks[first + number] = marks[first + number] or TOMBSTONE
        self._key_bytes += known_bytes

    def get_batch(self, data: bytes, position: int, end: int, record_count: int) -> bytearray:
        """The marks of a batch before all batches of the map; arguments and errors as `put_batch`."""
        keys, tombstones = _keys_of(data, position, end, record_count)
        marks = bytearray(record_count)
        last = self._last
        for number in tombstones:
            marks[number] = TOMBSTONE
        for number, key in enumerate(keys):
            if key is None or key in last:
                marks[number] = DEAD
        return marks


def _keys_of(  # noqa: C901 - one inlined loop: a call for each record costs a twelfth of it
    data: bytes, position: int, end: int, record_count: int
) -> tuple[list[bytes | None], list[int]]:
    """(the key of each record, the numbers of the tombstones); arguments and errors as `put_batch`.

    A record without a key has None: Kafka removes such records too.
    """
    keys: list[bytes | None] = []
    keep = keys.append
    tombstones = []
    try:
        for number in range(record_count):
            size = data[position]
            position += 1
            if size >= 0x80:
                more = data[position]
                if more < 0x80:  # two bytes, as of most records
                    size += (more - 1) << 7
                    position += 1
                else:
                    size, position = _longer(data, position, size)
            following = position + (size >> 1)
            position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            length = data[position]
            position += 1
            if length >= 0x80:
                length, position = _longer(data, position, length)
            if length & 1:
                keep(None)
                position = following
                continue
            value = position + (length >> 1)
            if value >= following:
                raise _malformed(number)
            keep(data[position:value])
            if data[value] == 1:
                tombstones.append(number)
            position = following
    except IndexError:
        raise _malformed(record_count) from None
    if position != end:
        raise _malformed(record_count)
    return keys, tombstones


def _longer(data: bytes, position: int, byte: int) -> tuple[int, int]:
    """The rest of a varint of several bytes, still zigzag, and the position behind it."""
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise _malformed(0)


def live_records(data: bytes, position: int, marks: bytes | bytearray) -> tuple[bytes, int]:
    """(the records that are not dead, concatenated, and their largest timestamp delta).

    Args:
        data: holds the batch's decompressed records from `position` on.
        marks: one for each record; at least one is not dead.
    """
    pieces: list[bytes] = []
    newest = -(2**63)
    begun = -1  # the start of a run of records that stay
    for mark in marks:
        start = position
        size = data[position]
        position += 1
        if size >= 0x80:
            size, position = _longer(data, position, size)
        following = position + (size >> 1)
        if mark == DEAD:
            if begun >= 0:
                pieces.append(data[begun:start])
                begun = -1
        else:
            if begun < 0:
                begun = start
            delta, position = data[position + 1], position + 2
            if delta >= 0x80:
                delta, position = _longer(data, position, delta)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta > newest:
                newest = delta
        position = following
    if begun >= 0:
        pieces.append(data[begun:position])
    return b"".join(pieces), newest


def shifted_live_records(data: bytes, position: int, marks: bytes | bytearray, shift_ms: int) -> tuple[bytes, int]:
    """As `live_records`, but adds `shift_ms` to all timestamp deltas; the returned delta is the one before."""
    pieces: list[bytes] = []
    newest = -(2**63)
    for mark in marks:
        length, body = read_zigzag(data, position)
        position = body + length
        if mark == DEAD:
            continue
        delta, rest = read_zigzag(data, body + 1)
        newest = max(newest, delta)
        stamp = zigzag(delta + shift_ms)
        pieces += (zigzag(position - rest + len(stamp) + 1), data[body : body + 1], stamp, data[rest:position])
    return b"".join(pieces), newest


def _malformed(number: int) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"record {number} of the batch is malformed")
