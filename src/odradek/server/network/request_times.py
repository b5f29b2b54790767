"""The time of requests, in Kafka's phases; measured if metrics are served, see docs/metrics.md.

    queue      from the last byte of a request until it is begun: others before it, a muted connection
    local      decoding it and deciding
    remote     waiting: for replicas, for data, for a coordinator or the controller
    throttle   how long the client is to wait for its quota, which is no part of the total
    send       from the decision until the last byte of the answer is with the system: its turn, and a slow reader
    total      all but throttle

To time a request costs some readings of the timer and an append for each phase; histograms are made of that later. So
that the most frequent requests pay little for it, one in SAMPLED_EVERY of them is timed, on average: were it just each
eighth, two kinds of requests that take turns would never both be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Histogram
from odradek.common.spread import FOLD_AT, Spread, durations, sizes
from odradek.server.network.slow_requests import Sender

if TYPE_CHECKING:
    from odradek.server.context import RequestContext
    from odradek.server.network.slow_requests import SlowRequests

SAMPLED_EVERY = 8
_NS_PER_MS = 1_000_000
Labels = tuple[tuple[str, str], ...]
# So many are drawn once, and then repeated.
DRAWN_GAPS = 1024


@cache
def _draw_gaps(every: int) -> tuple[int, ...]:
    """The number of requests between two that are timed: as C's rand draws them, from 0 to twice `every`."""
    gaps, drawn = [], 0
    for _ in range(DRAWN_GAPS if every > 1 else 1):
        drawn = (drawn * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        gaps.append((drawn >> 16) % (2 * every - 1))
    return tuple(gaps)


class RouteTimes:
    """The times and sizes of one API's requests.

    `queue`, `remote` and `throttle` have only the requests that waited.

    Attributes:
        untimed: how many requests come before the next that is timed; the code that begins one counts it down.
        gaps: the next values of `untimed`, without end.
        followers: the same for requests of followers, which count only there; None if there were none.
    """

    __slots__ = (
        "followers",
        "gaps",
        "local",
        "queue",
        "remote",
        "request_bytes",
        "response_bytes",
        "send",
        "slow",
        "throttle",
        "total",
        "untimed",
    )

    def __init__(self, every: int = 1, slow: SlowRequests | None = None) -> None:
        """
        Args:
            every: one request in so many is timed on average, beginning with the first.
            slow: sees each that is timed.
        """
        self.slow = slow
        self.followers: RouteTimes | None = None
        self.gaps = cycle(_draw_gaps(every))
        self.untimed = 0
        self.queue, self.local, self.remote = durations(), durations(), durations()
        self.throttle, self.send, self.total = durations(), durations(), durations()
        self.request_bytes, self.response_bytes = sizes(), sizes()

    def phases(self) -> Iterator[tuple[str, Spread]]:
        """All, by name, in the order in which a request has them."""
        for name in ("queue", "local", "remote", "throttle", "send", "total"):
            yield name, getattr(self, name)

    def fold(self) -> None:
        """Sort all that was added, so that memory is free again."""
        for _, spread in self.phases():
            spread.fold()
        self.request_bytes.fold()
        self.response_bytes.fold()


class RequestTimes:
    """The times of one request in nanoseconds of the timer.

    Attributes:
        waiting_since_ns: since when it has waited to be begun; 0: it has not.
        decided_ns: when the handler went on to wait; 0: it answered at once.
        ready_ns: when the answer was encoded.
        end_position: of the answer, in the bytes of the connection.
        sender: the client, if slow requests are logged.
    """

    __slots__ = (
        "began_ns",
        "decided_ns",
        "end_position",
        "ready_ns",
        "request_bytes",
        "response_bytes",
        "sender",
        "throttle_ms",
        "times",
        "waiting_since_ns",
    )

    def __init__(self, times: RouteTimes, waiting_since_ns: int, began_ns: int, request_bytes: int) -> None:
        self.times = times
        self.waiting_since_ns = waiting_since_ns
        self.began_ns = began_ns
        self.request_bytes = request_bytes
        self.sender: Sender | None = None
        self.decided_ns = self.ready_ns = self.throttle_ms = self.end_position = self.response_bytes = 0

    def count_as_follower(self) -> None:
        """A follower sent it."""
        if self.times.followers is None:
            self.times.followers = RouteTimes(slow=self.times.slow)
        self.times = self.times.followers

    def sent(self, now_ns: int) -> None:
        """The last byte of the answer is with the system."""
        times, began_ns, ready_ns = self.times, self.began_ns, self.ready_ns
        came_ns = self.waiting_since_ns or began_ns
        if came_ns != began_ns:
            times.queue.added.append(began_ns - came_ns)
        if self.decided_ns:
            times.local.added.append(self.decided_ns - began_ns)
            times.remote.added.append(ready_ns - self.decided_ns)
        else:
            times.local.added.append(ready_ns - began_ns)
        if self.throttle_ms:
            times.throttle.added.append(self.throttle_ms * _NS_PER_MS)
        times.send.added.append(now_ns - ready_ns)
        times.total.added.append(now_ns - came_ns)
        times.request_bytes.added.append(self.request_bytes)
        times.response_bytes.added.append(self.response_bytes)
        if len(times.total.added) >= FOLD_AT:
            times.fold()
        if times.slow is not None:
            times.slow.check(self, now_ns)


def begin_timing(context: RequestContext, times: RouteTimes, request_bytes: int) -> RequestTimes:
    """The times of a request that begins now, and is the next to be timed."""
    times.untimed = next(times.gaps)
    connection = context.connection
    timer = connection.quotas.timer
    begun = RequestTimes(times, connection.waiting_since_ns, timer(), request_bytes)
    if times.slow is not None:
        begun.sender = Sender(context)
    return begun


def request_time_families(routes: Iterable[tuple[RouteTimes, Labels]]) -> Iterator[Family]:
    """Histograms for each API that was asked for."""
    phases: list[Histogram] = []
    request_bytes: list[Histogram] = []
    response_bytes: list[Histogram] = []
    for times, labels in routes:
        count = times.total.count
        if count:
            for name, spread in times.phases():
                phases.append(spread.histogram((*labels, ("phase", name)), zeros=count - spread.count))
            request_bytes.append(times.request_bytes.histogram(labels))
            response_bytes.append(times.response_bytes.histogram(labels))
    sampled = f"of Produce and Fetch one in {SAMPLED_EVERY}"
    yield Family(
        "odradek_request_seconds",
        "histogram",
        f"Time of requests, {sampled}, by API and phase: queue, local, remote, throttle, send, total.",
        histograms=tuple(phases),
    )
    yield Family(
        "odradek_request_size_bytes", "histogram", f"Size of requests, {sampled}.", histograms=tuple(request_bytes)
    )
    yield Family(
        "odradek_response_size_bytes", "histogram", f"Size of responses, {sampled}.", histograms=tuple(response_bytes)
    )
