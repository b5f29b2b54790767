"""A mutating fuzzer: inputs from a corpus and from generators, changed at random, run, and kept where they fail.

Input number n of a target under a seed is the same on every machine and after any other run, as long as the corpus on
disk is the same. With `coverage`, inputs that reach new lines join the corpus in memory, which finds more and can be
repeated only from the first input on.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
# The memory that one input may add to the largest that this process ever had, and its longest time.
MAX_GROWTH_BYTES = 96 * 2**20
MAX_CPU_S = 3.0
# One in so many inputs is traced line by line; tracing costs as much as some dozen inputs.
TRACED_EVERY = 8
MAX_KEPT_IN_MEMORY = 2000
_EDGES = (0, 1, 2, 0x0A, 0x20, 0x3D, 0x5C, 0x7F, 0x80, 0xFE, 0xFF)
_NUMBERS = (-1, 0, 1, 2, 61, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**31, 2**32 - 1)
_LONG_NUMBERS = (*_NUMBERS, 2**63 - 1, -(2**63), -2)


@dataclass(frozen=True)
class Target:
    """One thing to fuzz.

    Attributes:
        generate: makes a well-formed input, or nearly so.
        run: must return for every input; an exception is a finding.
        words: pieces that mutations insert.
        max_cpu_s: seconds of processor time that one input may take.
    """

    name: str
    generate: Callable[[Random], bytes]
    run: Callable[[bytes], None]
    words: tuple[bytes, ...] = ()
    max_cpu_s: float = MAX_CPU_S


class Finding(Exception):  # noqa: N818 - what a fuzzer reports is called so
    """An input for which a target does not hold."""

    def __init__(self, target: str, data: bytes, where: str) -> None:
        super().__init__(f"{target}: {where}; input of {len(data)} bytes: {data[:200]!r}")
        self.target = target
        self.data = data


class TooMuchError(Exception):
    """An input took more memory or time than its bytes warrant."""


def corpus_of(name: str) -> list[bytes]:
    """The kept inputs of a target, in the order of their names."""
    folder = CORPUS / name
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


def keep(name: str, data: bytes, prefix: str) -> Path:
    """Write an input into the corpus under a name that its bytes decide."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{prefix}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def mutate(data: bytes, others: list[bytes], words: tuple[bytes, ...], rng: Random) -> bytes:  # noqa: C901 - a case for each mutation
    """One to eight changes: bits, bytes, numbers, cuts, copies, words, pieces of other inputs."""
    out = bytearray(data)
    for _ in range(1 << rng.randrange(4)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(10)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = rng.choice(_EDGES) if rng.random() < 0.7 else rng.randrange(256)
        elif kind == 2:
            width = rng.choice((2, 4, 4, 8))
            number = rng.choice(_LONG_NUMBERS if width == 8 else _NUMBERS)
            out[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "big")
        elif kind == 3:
            del out[at : at + _length(rng, len(out))]
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 5:
            source = rng.randrange(len(out) + 1)
            piece = out[source : source + _length(rng, len(out))]
            out[at : at + (len(piece) if rng.random() < 0.5 else 0)] = piece
        elif kind == 6 and words:
            word = rng.choice(words)
            out[at : at + (len(word) if rng.random() < 0.5 else 0)] = word
        elif kind == 7 and others:
            other = rng.choice(others)
            source = rng.randrange(len(other) + 1)
            out[at:] = other[source:] if rng.random() < 0.5 else other[source : source + 64] + out[at:]
        elif kind == 8:
            del out[at:]
        elif out:
            at %= len(out)
            out[at] = (out[at] + rng.choice((1, -1, 16, -16))) & 0xFF
    return bytes(out)


def _length(rng: Random, most: int) -> int:
    return min(most, 1 << rng.randrange(11)) if rng.random() < 0.9 else rng.randrange(most + 1)


def input_number(target: Target, corpus: list[bytes], seed: int, number: int) -> bytes:
    """The input of this number: well-formed, or a change of a well-formed or a kept one."""
    rng = Random(f"{target.name} {seed} {number}")
    fresh = target.generate(rng) if not corpus or rng.random() < 0.6 else rng.choice(corpus)
    return fresh if rng.random() < 0.1 else mutate(fresh, corpus, target.words, rng)


def run_one(target: Target, data: bytes) -> None:
    """Run one input. Raises Finding."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    try:
        target.run(data)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * (1 if sys.platform == "darwin" else 1024)
        took = time.process_time() - started
        if grown > MAX_GROWTH_BYTES:
            raise TooMuchError(f"memory grew by {grown / 2**20:.0f} MiB")
        if took > target.max_cpu_s:
            raise TooMuchError(f"{took:.1f} s of processor time")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a native library that panics raises no Exception
        raise Finding(target.name, data, f"{type(error).__name__}: {error}") from error


@dataclass
class Coverage:
    """The lines of the product that any input reached."""

    lines: set[tuple[CodeType, int]] = field(default_factory=set)
    grew: bool = False

    def trace(self, run: Callable[[], Any]) -> bool:
        """Run something; whether it reached a line that nothing reached before."""
        self.grew = False
        sys.settrace(self._call)
        try:
            run()
        finally:
            sys.settrace(None)
        return self.grew

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if "odradek/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        place = (frame.f_code, frame.f_lineno)
        if place not in self.lines:
            self.lines.add(place)
            self.grew = True
        return self._line


# New inputs of a target, however slow the machine is.
FEWEST = 20
OnFinding = Callable[[Finding], None]


def executions(
    target: Target,
    seed: int,
    seconds: float,
    *,
    coverage: Coverage | None = None,
    on_finding: OnFinding | None = None,
) -> Iterator[bytes | None]:
    """Run inputs for so long: the kept ones, then FEWEST new ones or more.

    Yields each that reached new lines, else None.

    Args:
        on_finding: called with each input that fails, and running goes on.
    Raises:
        Finding: an input failed and there is no `on_finding`.
    """

    def attempt(data: bytes) -> bool:
        try:
            run_one(target, data)
        except Finding as finding:
            if on_finding is None:
                raise
            on_finding(finding)
            return False
        return True

    # A walk of the collector through what the process had before is not the target's processor time.
    gc.collect()
    gc.freeze()
    try:
        yield from _inputs(target, seed, seconds, attempt, coverage)
    finally:
        gc.unfreeze()


def _inputs(
    target: Target, seed: int, seconds: float, attempt: Callable[[bytes], bool], coverage: Coverage | None
) -> Iterator[bytes | None]:
    corpus = []
    for data in corpus_of(target.name):
        if attempt(data):
            corpus.append(data)
        yield None
    number, until = 0, time.monotonic() + seconds
    while number < FEWEST or time.monotonic() < until:
        data = input_number(target, corpus, seed, number)
        number += 1
        if coverage is None or number % TRACED_EVERY:
            attempt(data)
            yield None
        elif coverage.trace(functools.partial(attempt, data)) and len(corpus) < MAX_KEPT_IN_MEMORY:
            corpus.append(data)
            yield data
        else:
            yield None


def signature(finding: Finding) -> str:
    """The identity of a bug: the error and the last two places in the product, or in what must hold."""
    cause = finding.__cause__
    places = traceback.extract_tb(cause.__traceback__ if cause is not None else None)[-2:]
    return " ".join([type(cause).__name__, *(f"{Path(place.filename).name}:{place.lineno}" for place in places)])


def shrink(target: Target, finding: Finding, seconds: float = 5.0) -> bytes:
    """A shorter input that fails with the same type of error."""
    wanted = signature(finding)
    data, until = finding.data, time.monotonic() + seconds
    size = max(1, len(data) // 2)
    while size and time.monotonic() < until:
        at, shorter = 0, False
        while at < len(data) and time.monotonic() < until:
            attempt = data[:at] + data[at + size :]
            try:
                run_one(target, attempt)
            except Finding as found:
                if signature(found) == wanted:
                    data, shorter = attempt, True
                    continue
            at += size
        size = size if shorter else size // 2
    return data
