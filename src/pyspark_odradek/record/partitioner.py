"""The partition of a record: murmur2 of its key, as Kafka's Java client places it, for a whole column at once.

Keys of one length are hashed together, four bytes of each in a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_SEED = 0x9747B28C
_MIXER = np.uint32(0x5BD1E995)


def partitions_of(keys: Any, count: int) -> npt.NDArray[np.int32]:
    """The partition of each key of an Arrow array of type binary, out of `count`; null keys get that of no bytes."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def murmur2(keys: Any) -> npt.NDArray[np.uint32]:
    """Kafka's murmur2 (seed 0x9747b28c, 32 bits) of each element of an Arrow array of type binary."""
    bounds, data = binary_buffers(keys)
    lengths = np.diff(bounds)
    hashes = np.empty(len(lengths), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hash_of_one_length(data, bounds[rows], length)
    return hashes


def binary_buffers(array: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The bounds of the elements of an Arrow array of type binary, and the bytes that they lie in; nulls are empty."""
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _hash_of_one_length(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint32]:
    state = np.full(len(at), _SEED ^ length & 0xFFFFFFFF, np.uint32)
    whole = length & ~3
    for position in range(0, whole, 4):
        word = _little_endian(data, at + position, 4) * _MIXER
        word = (word ^ word >> np.uint32(24)) * _MIXER
        state = state * _MIXER ^ word
    if whole < length:
        state = (state ^ _little_endian(data, at + whole, length - whole)) * _MIXER
    state = (state ^ state >> np.uint32(13)) * _MIXER
    return state ^ state >> np.uint32(15)


def _little_endian(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for byte in range(1, size):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
