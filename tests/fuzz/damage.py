"""Damage to a directory, as a short script: so that an input is small, can be mutated, and means the same again.

A script is one byte that chooses the scene, then damages of eight bytes: what, which file, where (three bytes), a
value (three bytes). Files are taken in the order of their names.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from random import Random

from odradek.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_size, seal

STEP_BYTES = 8
KINDS = 9
LIE = 8
Files = dict[Path, bytes]


def generate_script(rng: Random) -> bytes:
    """Mostly one damage, up to four; the places at which batches' headers lie are as likely as all others."""
    steps = []
    for _ in range(1 if rng.random() < 0.6 else rng.randrange(5)):
        place = rng.randrange(1 << 24) if rng.random() < 0.6 else rng.randrange(80)
        steps.append(bytes((rng.randrange(KINDS), rng.randrange(256))) + place.to_bytes(3, "big") + rng.randbytes(3))
    return bytes((rng.randrange(256),)) + b"".join(steps)


def damaged(files: Mapping[Path, bytes], script: bytes) -> Files:
    """These files after a script; its first byte, the scene, is the caller's."""
    result = dict(files)
    steps = script[1:]
    for at in range(0, len(steps) - STEP_BYTES + 1, STEP_BYTES):
        _damage(result, steps[at : at + STEP_BYTES])
    return result


def has_lies(script: bytes) -> bool:
    """Whether a script makes a checksum right over changed bytes."""
    return any(kind % KINDS == LIE for kind in script[1::STEP_BYTES])


def _damage(files: Files, step: bytes) -> None:  # noqa: C901 - a case for each damage
    names = sorted(files)
    if not names:
        return
    path = names[step[1] % len(names)]
    data = bytearray(files[path])
    at = int.from_bytes(step[2:5], "big") % (len(data) + 1)
    value = step[5:]
    kind = step[0] % KINDS
    if kind == 0 and at < len(data):
        data[at] ^= 1 << value[0] % 8
    elif kind == 1:
        data[at : at + 1] = value[:1]
    elif kind == 2:
        # A sector that never arrived.
        start = at - at % 512
        data[start : start + 512] = bytes(len(data[start : start + 512]))
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        data += value * (1 + value[0] % 40)
    elif kind == 5 and value[0] < 64:
        del files[path]
        return
    elif kind == 6:
        data[at:at] = bytes(value[0])
    elif kind == 7:
        other = files[names[value[0] % len(names)]]
        data[at:] = other[at:]
    elif kind == LIE:
        _lie(data, at, value)
    files[path] = bytes(data)


def _lie(data: bytearray, at: int, value: bytes) -> None:
    """Change a byte of the batch at or after a place, and make its checksum right again: a bug of a writer, not of a
    disk."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        _, size = read_size(data, position)
        if size < HEADER_BYTES or position + size > len(data):
            return
        if position + size > at:
            inside = int.from_bytes(value[:2], "big") % (size - LOG_OVERHEAD_BYTES) + LOG_OVERHEAD_BYTES
            struct.pack_into("B", data, position + inside, value[2])
            seal(memoryview(data)[position : position + size])
            return
        position += size


def first_difference(before: bytes, after: bytes | None) -> int | None:
    """The first byte at which two files differ; None where they are equal."""
    if after is None:
        return 0
    if before == after:
        return None
    for position, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return position
    return min(len(before), len(after))
