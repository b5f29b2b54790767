"""A fast check of every record of a batch against its header, which finds the smallest and the largest timestamp.

This is the broker's inner loop for produced batches, so it is written for speed: varints are read in place, and if many
records in a row have one size, as those of counters, sensors and benchmarks have, a whole column of them is compared at
once. It knows only records as client libraries write them. It returns None for any others, and
`reader.outline_records` decides whether they are invalid.
"""

from __future__ import annotations

from odradek.common.ports import Buffer
from odradek.record.varint import read_zigzag

# Offset deltas below have one byte, two, and three.
_ONE_BYTE_DELTAS = 64
_TWO_BYTE_DELTAS = 8192
_THREE_BYTE_DELTAS = 1 << 20
_LAST_OF_TWO_BYTES = (1 << 14) - 1
# The length of a key or value that is null, as it is written.
_NULL = 1
# The bytes of the offset deltas with one byte; the first and second byte of those with two; the second of those with
# three, which begins again every 8192 deltas as the first one does.
_ONLY_BYTES = bytes(range(0, 128, 2))
_LOW_BYTES = bytes(delta << 1 & 0x7F | 0x80 for delta in range(_TWO_BYTE_DELTAS))
_HIGH_BYTES = bytes(delta >> 6 for delta in range(_TWO_BYTE_DELTAS))
_MIDDLE_BYTES = bytes(byte | 0x80 for byte in _HIGH_BYTES)
_LAST_BYTES = bytes(range(128))
_INNER_BYTES = bytes(range(128, 256))
# A run of equal sizes is looked for after so many records; after so many more each time that none was found.
_FIRST_BLOCK = 16
_LARGEST_BLOCK = 1024
_SHORTEST_RUN = 8


# The smallest and the largest timestamp delta of a batch.
TimeDeltas = tuple[int, int]


def walk(data: bytes | bytearray | memoryview, count: int, *, keyed: bool = False) -> TimeDeltas | None:
    """Check all records of a batch.

    Args:
        data: the batch's records, decompressed; a memoryview costs more for each record.
        count: how many there must be, with offset deltas from 0 on.
        keyed: a record without a key is something else.
    Returns:
        None where they are not as client libraries write them, which need not be wrong.
    """
    times: dict[int, None] = {}
    position, delta, block = 0, 0, _FIRST_BLOCK
    has_columns = not isinstance(data, memoryview)
    try:
        if count == 1:  # no run of equal records begins with it
            position, delta = _walk_plain(data, position, delta, count, keyed, times)
        while delta < count:
            behind = _walk_one(data, position, delta, keyed, times)
            run = 0
            if has_columns and data[behind : behind + 1] == data[position : position + 1]:
                run = _equal_records(data, position, behind - position, delta, count, times)
            if run:
                position, delta, block = position + (behind - position) * run, delta + run, _FIRST_BLOCK
                continue
            stop = min(count, delta + block, _THREE_BYTE_DELTAS)
            position, delta = _walk_plain(data, behind, delta + 1, stop, keyed, times)
            block = min(2 * block, _LARGEST_BLOCK)
    except (IndexError, ValueError):
        return None
    return _extremes(times) if times and position == len(data) else None


def _extremes(times: dict[int, None]) -> TimeDeltas:
    """The smallest and the largest of timestamp deltas in zigzag encoding; there is at least one."""
    if len(times) == 1:  # most batches are of one record, or of one millisecond
        (time,) = times
        delta = (time >> 1) ^ -(time & 1)
        return delta, delta
    deltas = [(time >> 1) ^ -(time & 1) for time in times]
    return min(deltas), max(deltas)


def _walk_plain(  # noqa: C901 - one inlined loop: a call for each record costs more than the loop
    data: Buffer, position: int, delta: int, stop: int, keyed: bool, times: dict[int, None]
) -> tuple[int, int]:
    """Check records from `delta` at `position` on, at most to `stop`; returns the first one that is not plain or valid.

    It is one loop, as calls would cost more than their work.
    """
    last_time = -1
    while delta < stop:
        length, at = data[position], position + 1
        if length >= 0x80:
            length, at = length & 0x7F | data[at] << 7, at + 1
        end = at + (length >> 1)
        time, at = data[at + 1], at + 2
        if time >= 0x80:
            time, at = time & 0x7F | data[at] << 7, at + 1
        if delta >= _TWO_BYTE_DELTAS:
            place = delta & _TWO_BYTE_DELTAS - 1
            if data[at] != _LOW_BYTES[place] or data[at + 1] != _MIDDLE_BYTES[place] or data[at + 2] != delta >> 13:
                break
            at += 3
        elif delta >= _ONE_BYTE_DELTAS:
            if data[at] != _LOW_BYTES[delta] or data[at + 1] != _HIGH_BYTES[delta]:
                break
            at += 2
        elif data[at] != delta << 1:
            break
        else:
            at += 1
        key, at = data[at], at + 1
        if key >= 0x80:
            key, at = key & 0x7F | data[at] << 7, at + 1
        if not key & 1:
            at += key >> 1
        elif key != _NULL or keyed:
            break
        value, at = data[at], at + 1
        if value >= 0x80:
            value, at = value & 0x7F | data[at] << 7, at + 1
        # A varint of more than two bytes gives a number above those of two; odd lengths are negative.
        if length | time | key | value > _LAST_OF_TWO_BYTES or length & 1:
            break
        if not value & 1:
            at += value >> 1
        elif value != _NULL:
            break
        at = _skip_headers(data, at, end) if data[at] else at + 1
        if at != end:
            break
        if time != last_time:
            last_time = time
            times[time] = None
        position, delta = end, delta + 1
    return position, delta


def _walk_one(data: Buffer, position: int, delta: int, keyed: bool, times: dict[int, None]) -> int:
    """The position behind one record; IndexError or ValueError where it is not right."""
    length, at = read_zigzag(data, position)
    end = at + length
    time, at = read_zigzag(data, at + 1)
    found, at = read_zigzag(data, at)
    key, at = read_zigzag(data, at)
    value, at = read_zigzag(data, at + max(0, key))
    if length < 0 or found != delta or key < (0 if keyed else -1) or value < -1:
        raise ValueError
    if _skip_headers(data, at + max(0, value), end) != end:
        raise ValueError
    times[time << 1 ^ time >> 63] = None
    return end


def _skip_headers(data: Buffer, position: int, end: int) -> int:
    """Raises IndexError, ValueError where they are not what their lengths say, or their names are not a text."""
    count, position = read_zigzag(data, position)
    if not 0 <= count <= end - position:
        raise ValueError
    for _ in range(count):
        length, position = read_zigzag(data, position)
        behind = position + length
        if length < 0:
            raise ValueError
        bytes(data[position:behind]).decode()
        length, position = read_zigzag(data, behind)
        position += max(0, length)
    return position


def _equal_records(data: Buffer, position: int, size: int, delta: int, count: int, times: dict[int, None]) -> int:
    """The number of records from `delta` on that have the layout of the one at `position`, which is known to be right.

    Layout: the size of the record and of its key and value, no headers, and as many bytes for the deltas.
    """
    zone = _ONE_BYTE_DELTAS if delta < _ONE_BYTE_DELTAS else (delta // _TWO_BYTE_DELTAS + 1) * _TWO_BYTE_DELTAS
    run = min(count, zone, _THREE_BYTE_DELTAS) - delta
    run = min(run, (len(data) - position) // size)
    if run < _SHORTEST_RUN:
        return 0
    run = _same(data, position, size, run)
    if run < _SHORTEST_RUN:
        return 0
    fixed, at_time, at_delta = _layout(data, position)
    if data[fixed[-1]] or fixed[-1] != position + size - 1:
        return 0
    for at in fixed:
        run = _same(data, at, size, run)
    run = _same_widths(data, at_time, at_delta, size, run)
    if run < _SHORTEST_RUN or not _deltas_follow(data, at_delta, size, delta, run):
        return 0
    _add_times(data, at_time, at_delta, size, run, times)
    return run


def _layout(data: Buffer, position: int) -> tuple[list[int], int, int]:
    """The positions of the bytes that records of a layout share, of the timestamp delta and of the offset delta.

    The last of the first positions is that of the number of headers.
    """
    _, at = read_zigzag(data, position)
    at_time = at + 1
    fixed = [*range(position + 1, at)]
    _, at_delta = read_zigzag(data, at_time)
    _, at_key = read_zigzag(data, at_delta)
    key_bytes, at = read_zigzag(data, at_key)
    fixed += range(at_key, at)
    at_value = at + max(0, key_bytes)
    value_bytes, at = read_zigzag(data, at_value)
    fixed += range(at_value, at)
    return [*fixed, at + max(0, value_bytes)], at_time, at_delta


def _column(data: Buffer, at: int, size: int, run: int) -> bytes:
    return bytes(data[at : at + (run - 1) * size + 1 : size])


def _same(data: Buffer, at: int, size: int, run: int) -> int:
    """The number of the next `run` records that have the byte at `at` in common."""
    column = _column(data, at, size, run)
    return run if column.count(column[0]) == run else run - len(column.lstrip(column[:1]))


def _same_widths(data: Buffer, at_time: int, at_delta: int, size: int, run: int) -> int:
    """The number of records with timestamp deltas of so many bytes: the first one has."""
    for at in range(at_time, at_delta):
        column = _column(data, at, size, run)
        run -= len(column.lstrip(_LAST_BYTES if at == at_delta - 1 else _INNER_BYTES))
    return run


def _deltas_follow(data: Buffer, at: int, size: int, delta: int, run: int) -> bool:
    """Whether the offset deltas are those from `delta` on, all of as many bytes."""
    if delta < _ONE_BYTE_DELTAS:
        return _column(data, at, size, run) == _ONLY_BYTES[delta : delta + run]
    place = delta % _TWO_BYTE_DELTAS
    behind = place + run
    if _column(data, at, size, run) != _LOW_BYTES[place:behind]:
        return False
    if delta < _TWO_BYTE_DELTAS:
        return _column(data, at + 1, size, run) == _HIGH_BYTES[place:behind]
    is_middle_right = _column(data, at + 1, size, run) == _MIDDLE_BYTES[place:behind]
    return is_middle_right and _column(data, at + 2, size, run) == bytes((delta >> 13,)) * run


def _add_times(data: Buffer, at_time: int, at_delta: int, size: int, run: int, times: dict[int, None]) -> None:
    columns = [_column(data, at, size, run) for at in range(at_time, at_delta)]
    for written in dict.fromkeys(zip(*columns, strict=True)):
        time = 0
        for shift, byte in enumerate(written):
            time |= (byte & 0x7F) << 7 * shift
        times[time] = None
