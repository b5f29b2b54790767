"""The time to check a clean history of a million operations: sends, polls, and requests of a group's members.

The exit code is 1 if the check takes too long, or if it finds an anomaly in the clean history.
"""

from __future__ import annotations

import sys
import time

from tests.sim.history import Assigned, Commit, Heard, Marks, Operation, Outcome, Poll, Send, Step, find_anomalies

PARTITIONS = 8
# The limit of processor seconds for a million operations.
LIMIT_S = 20.0
# The number of records for each commit, and of commits for each generation of a group.
COMMIT_EVERY = 10
REBALANCE_EVERY = 1000


def clean_history(operations: int) -> list[Operation]:
    """About `operations` of them: each partition has a producer, and a member of a group that reads and commits."""
    history: list[Operation] = []
    moment = 0
    generation = 0

    def done(process: int, *steps: Step) -> None:
        nonlocal moment
        history.append(Operation(process, Outcome.OK, list(steps), moment, moment + 1))
        moment += 2

    offsets = [0] * PARTITIONS
    number = 0
    while len(history) < operations:
        at = number % PARTITIONS
        partition, offset = f"p{at}", offsets[at]
        if number % (COMMIT_EVERY * REBALANCE_EVERY) == 0:
            generation += 1
            for each in range(PARTITIONS):
                done(100 + each, Assigned("group", generation, f"member-{each}", (f"p{each}",)))
        done(at, Send(partition, number, offset))
        marks = Marks(partition, "node-1, start 1", 1, offset + 1, offset + 1)
        done(100 + at, Poll(partition, [(offset, number)]), marks)
        if offset % COMMIT_EVERY == 0:
            done(100 + at, Commit("group", partition, offset + 1, generation=generation))
            done(100 + at, Commit("group", partition, offset + 1, fetched=True))
            done(100 + at, Heard("group", generation))
        offsets[at] += 1
        number += 1
    return history


def is_too_slow(operations: int, processor_s: float) -> bool:
    """Whether so many operations took the limit or more, in proportion."""
    return processor_s * 1_000_000 >= LIMIT_S * operations


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    history = clean_history(count)
    # Processor time, because the machine may have other work.
    started, processor = time.perf_counter(), time.process_time()
    findings = find_anomalies(history)
    took, used = time.perf_counter() - started, time.process_time() - processor
    print(f"{count:,} operations in {took:.1f} s ({used:.1f} s of a processor), {len(findings)} findings")
    sys.exit(1 if findings or is_too_slow(count, used) else 0)
