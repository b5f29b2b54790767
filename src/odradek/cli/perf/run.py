"""Runs the threads of a measurement: shows intervals while it runs, and returns the outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.cli.perf.consuming import Reader
from odradek.cli.perf.load import ReceivedNumbers, Window
from odradek.cli.perf.producing import Sender

TICK_S = 0.02
# After the last acknowledgement, how long nothing may come before what is missing counts as lost.
QUIET_S = 30.0


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes:
        windows: (seconds from the start to its end, what happened in it).
        seconds: from the start to the last acknowledgement or, without producers, the last record.
        lost: acknowledged and never read; unsure: not acknowledged, whether they were written or not.
    """

    windows: list[tuple[float, Window]] = field(default_factory=list)
    total: Window = field(default_factory=Window)
    seconds: float = 0.0
    lost: int = 0
    repeated: int = 0
    unsure: int = 0
    interrupted: bool = False


@dataclass
class Run:
    """Producers, and either one consumer of their records or several consumers of present records.

    Attributes:
        show: called with each interval: seconds from the start, its length, and its counts.
    """

    senders: Sequence[Sender]
    readers: Sequence[Reader]
    interval_s: float
    show: Callable[[float, float, Window], None]
    ends: Sequence[dict[int, int]] = ()
    quiet_s: float = QUIET_S
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, seconds: float = 0.0, records: int = 0) -> Outcome:
        """Run to the end; Ctrl-C ends it early, with the results so far.

        Args:
            seconds, records: when readers without producers end; 0 is at the ends.
        Raises:
            Exception: the error that ended one of the threads.
        """
        self._start_ns = time.monotonic_ns()
        self._shown_s = 0.0
        self._last_s = 0.0
        readers = self._readers()
        senders = [threading.Thread(target=each.work, args=(self._start_ns,), daemon=True) for each in self.senders]
        try:
            for thread in (*readers, *senders):
                thread.start()
            self._watch(senders or readers, seconds, records)
            self._await_read()
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        finally:
            for worker in self._workers:
                worker.stop()
            for thread in (*senders, *readers):
                thread.join()
        self._collect_windows(self._passed_s())
        self._count()
        for worker in self._workers:
            if worker.failure is not None:
                raise worker.failure
        return self.outcome

    @property
    def _workers(self) -> list[Sender | Reader]:
        return [*self.senders, *self.readers]

    def _readers(self) -> list[threading.Thread]:
        ends: Sequence[dict[int, int] | None] = self.ends or [None] * len(self.readers)
        return [
            threading.Thread(target=reader.work, args=(end,), daemon=True)
            for reader, end in zip(self.readers, ends, strict=True)
        ]

    def _passed_s(self) -> float:
        return (time.monotonic_ns() - self._start_ns) / 1e9

    def _watch(self, threads: Sequence[threading.Thread], seconds: float, records: int) -> None:
        while any(thread.is_alive() for thread in threads):
            time.sleep(TICK_S)
            passed_s = self._passed_s()
            if passed_s - self._shown_s >= self.interval_s:
                self._collect_windows(passed_s)
            if not self.senders and self._is_over(passed_s, seconds, records):
                return

    def _is_over(self, passed_s: float, seconds: float, records: int) -> bool:
        here = sum(reader.window.read for reader in self.readers)
        return bool((seconds and passed_s >= seconds) or (records and self.outcome.total.read + here >= records))

    def _await_read(self) -> None:
        """Wait until all acknowledged records are read, or no more arrive."""
        if not self.senders or not self.readers:
            return
        self._collect_windows(self._passed_s())
        last, quiet_since = -1, time.monotonic()
        # Records that were not acknowledged may be read as well: so the number of those that were read says nothing.
        while next(self._unread(), None) is not None and time.monotonic() - quiet_since < self.quiet_s:
            if (count := self._read_count()) != last:
                last, quiet_since = count, time.monotonic()
            if any(reader.failure is not None for reader in self.readers):
                return
            time.sleep(TICK_S)

    def _unread(self) -> Iterator[int]:
        return unread(self.readers[0].seen, [(sender.number, sender.unsure) for sender in self.senders])

    def _read_count(self) -> int:
        return sum(seen.count for reader in self.readers for seen in list(reader.seen.values()))

    def _collect_windows(self, passed_s: float) -> None:
        together = Window()
        for worker in self._workers:
            together.merge(worker.pop_window())
        if not (together.sent or together.acked or together.read) and passed_s - self._shown_s < self.interval_s / 2:
            return
        self.outcome.windows.append((passed_s, together))
        self.outcome.total.merge(together)
        if together.acked or together.read:
            self._last_s = passed_s
        self.show(passed_s, passed_s - self._shown_s, together)
        self._shown_s = passed_s

    def _count(self) -> None:
        outcome = self.outcome
        outcome.seconds = max(self._last_s, 1e-6)
        outcome.unsure = sum(len(sender.unsure) for sender in self.senders)
        if not self.readers or not self.senders or outcome.interrupted:
            return
        outcome.repeated = sum(seen.repeated for seen in self.readers[0].seen.values())
        outcome.lost = sum(1 for _ in self._unread())


def unread(seen: Mapping[int, ReceivedNumbers], sent: Sequence[tuple[int, Collection[int]]]) -> Iterator[int]:
    """The numbers of acknowledged records that were not read.

    Args:
        seen: the records that were read, by the thread that sent them.
        sent: of each thread how many it sent, and which of them were not acknowledged.
    """
    for thread, (count, unsure) in enumerate(sent):
        missing = seen[thread].missing(count) if thread in seen else range(count)
        yield from (number for number in missing if number not in unsure)
