"""A thread that sends records on schedule, and counts acknowledgements."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from odradek.cli.perf.load import Counting, Load, marked, payloads

# Acknowledgements are taken at least so often while nothing is due.
POLL_S = 0.05
# Without a rate, after so many records.
POLL_RECORDS = 100
FLUSH_STEP_S = 0.1
# After Ctrl-C, for what is under way.
PATIENCE_S = 5.0


class Sender(Counting):
    """One producer."""

    def __init__(self, producer: Any, topic: str, load: Load, run: int, thread: int) -> None:
        super().__init__()
        # Numbers of records that were not acknowledged: what becomes of them is not known.
        self.unsure: set[int] = set()
        self.number = 0
        self._producer = producer
        self._topic = topic
        self._load = load
        self._run = run
        self._thread = thread
        self._payloads = payloads(load.sizes, thread)

    def work(self, start_ns: int) -> None:
        """Send all records, and wait for outstanding acknowledgements. An error ends it and is stored."""
        try:
            self._send_all(start_ns)
            self._await_answers()
        except Exception as error:
            self.failure = error

    def _await_answers(self) -> None:
        """Wait until no request is outstanding; at most until the client's delivery timeout, or Ctrl-C."""
        given_up_at = None
        while self._producer.flush(FLUSH_STEP_S):
            if self.stopping.is_set() and given_up_at is None:
                given_up_at = time.monotonic() + PATIENCE_S
            if given_up_at is not None and time.monotonic() >= given_up_at:
                self._producer.purge()

    def _send_all(self, start_ns: int) -> None:
        interval_ns, records = self._load.interval_ns(), self._load.of_thread(self._thread)
        # Threads take turns: together they send at an even pace.
        first_ns = start_ns + round(interval_ns * self._thread / self._load.threads)
        end_ns = start_ns + round(self._load.seconds * 1e9)
        while not self.stopping.is_set():
            now_ns = time.monotonic_ns()
            due_ns = first_ns + round(self.number * interval_ns) if interval_ns else now_ns
            if (self._load.records and self.number >= records) or (self._load.seconds and due_ns >= end_ns):
                return
            if due_ns > now_ns:
                self._producer.poll(min(POLL_S, (due_ns - now_ns) / 1e9))
            else:
                self._send(due_ns, now_ns)

    def _send(self, due_ns: int, now_ns: int) -> None:
        number = self.number
        value = marked(self._payloads[number % len(self._payloads)], self._run, self._thread, number, due_ns)
        key = b"%d" % (number % self._load.keys) if self._load.keys else None
        on_delivery = partial(self._answered, number, due_ns, len(value))
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=on_delivery)
                break
            except BufferError:
                # The client's queue is full. The record stays due since it was due.
                self._producer.poll(POLL_S)
                if self.stopping.is_set():
                    return
        self.number += 1
        with self.lock:
            self.window.sent += 1
            self.window.late_us.add((now_ns - due_ns) // 1000)
        if number % POLL_RECORDS == 0 or self._load.rate:
            self._producer.poll(0)

    def _answered(self, number: int, due_ns: int, size_bytes: int, error: Any, message: Any) -> None:
        taken_us = (time.monotonic_ns() - due_ns) // 1000
        with self.lock:
            window = self.window
            if error is None:
                window.acked += 1
                window.acked_bytes += size_bytes
                window.ack_us.add(taken_us)
                return
            window.failed += 1
            window.errors[error.str()] = window.errors.get(error.str(), 0) + 1
        self.unsure.add(number)
