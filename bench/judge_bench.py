"""How long the judge takes for a million operations of a clean history."""

from __future__ import annotations

import sys
import time

from tests.sim.history import Operation, Outcome, Poll, Send, judge

PARTITIONS = 8


def clean_history(operations: int) -> list[Operation]:
    history = []
    offsets = [0] * PARTITIONS
    for number in range(operations // 2):
        at = number % PARTITIONS
        partition = f"p{at}"
        history.append(Operation(at, Outcome.OK, [Send(partition, number, offsets[at])], 4 * number, 4 * number + 1))
        history.append(
            Operation(100 + at, Outcome.OK, [Poll(partition, [(offsets[at], number)])], 4 * number + 2, 4 * number + 3)
        )
        offsets[at] += 1
    return history


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    history = clean_history(count)
    started = time.perf_counter()
    findings = judge(history)
    print(f"{count:,} operations in {time.perf_counter() - started:.1f} s, {len(findings)} findings")
