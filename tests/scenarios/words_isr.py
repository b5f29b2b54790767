"""Words for a partition's in-sync set and high watermark, seen by its leader, which is broker 1.

`leader end=… hw=… isr=… [min=…] [replicas=…] [lag=…] [epoch-start=…]`, `fetch BROKER offset=… [at=…]`, `append COUNT`,
`isr BROKER,…` (what the controller said), `joining BROKER,…` (asked for, not answered), `shrink at=…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.replica import isr
from odradek.replica.isr import FollowerState, effective_min_in_sync
from tests.scenarios.script import Command, ScriptError

LEADER = 1


class IsrWords:
    """A leader's view of one partition."""

    def __init__(self) -> None:
        self.followers: dict[int, FollowerState] = {}
        self.isr: list[int] = []
        self.joining: list[int] = []
        self.end = self.watermark = self.epoch_start = self.minimum = self.max_lag_ms = 0

    def run(self, command: Command) -> Iterable[str]:
        act = getattr(self, f"do_{command.name}", None)
        if act is None:
            raise ScriptError(f"{command.name}: no such command")
        lines: list[str] = list(act(command))
        return lines

    def do_leader(self, command: Command) -> Iterator[str]:
        self.end, self.watermark = command.number("end"), command.number("hw")
        self.isr, self.joining = command.numbers("isr"), []
        replicas = command.numbers("replicas") or self.isr
        self.minimum = effective_min_in_sync(command.number("min", 1), len(replicas))
        self.max_lag_ms, self.epoch_start = command.number("lag", 30_000), command.number("epoch-start", 0)
        self.followers = {number: FollowerState() for number in replicas if number != LEADER}
        yield from self._advance()

    def do_append(self, command: Command) -> Iterator[str]:
        self.end += int(command.arguments[0])
        yield from self._advance()

    def do_fetch(self, command: Command) -> Iterator[str]:
        number = int(command.arguments[0])
        follower = self.followers[number]
        follower.fetched(
            fetch_offset=command.number("offset"),
            log_start_offset=0,
            leader_end_offset=self.end,
            now_ms=command.number("at", 0),
            broker_epoch=-1,
        )
        yield from self._advance()
        if number not in self.isr:
            allowed = isr.is_caught_up_to_leader(
                follower, leader_epoch_start=self.epoch_start, high_watermark=self.watermark
            )
            yield f"{number} {'may join' if allowed else 'may not join yet'}"

    def do_isr(self, command: Command) -> Iterator[str]:
        self.isr, self.joining = [int(text) for text in command.arguments[0].split(",")], []
        yield from self._advance()

    def do_joining(self, command: Command) -> Iterator[str]:
        self.joining = [int(text) for text in command.arguments[0].split(",")]
        yield from self._advance()

    def do_shrink(self, command: Command) -> Iterator[str]:
        late = isr.out_of_sync(
            isr=self.isr,
            leader_id=LEADER,
            leader_end_offset=self.end,
            followers=self.followers,
            now_ms=command.number("at"),
            max_lag_ms=self.max_lag_ms,
        )
        yield f"out of sync: {', '.join(map(str, sorted(late))) or 'none'}"

    def _advance(self) -> Iterator[str]:
        self.watermark = isr.high_watermark(
            current=self.watermark,
            leader_id=LEADER,
            leader_end_offset=self.end,
            followers=self.followers,
            isr=self.isr,
            maximal_isr=[*self.isr, *self.joining],
            min_in_sync_replicas=self.minimum,
        )
        yield f"hw={self.watermark} end={self.end}"
