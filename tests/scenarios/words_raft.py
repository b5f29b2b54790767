"""Words for the quorum: nodes without logs and sockets, whose messages are handed over one by one.

Timeouts are not random here: an election is due `election timeout` after the last sign of life, a fetch timeout is
twice as long. `voters N`, `tick NODE… ms=…`, `deliver [FROM>TO]`, `stabilize`, `drop [FROM>TO]`,
`ask FROM>TO epoch=… log=…`, `cut NODE…`, `heal`, `append NODE count=… [epoch=…]`, `fetch NODE`, `synced NODE`,
`restart NODE`, `resign NODE`, `full NODE`, `space NODE`, `change NODE… voters=…`, `refused FROM>TO`, `status`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from uuid import UUID

from odradek.raft.messages import EpochBegun, EpochEnded, Fetched, LogEnd, Message, Ready, VoteAnswered, VoteRequested
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import NO_NODE, ElectionState
from odradek.raft.roles import Role
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from tests.scenarios.script import Command, ScriptError


class NoChance(Random):
    """Draws the least there is."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


def describe(message: Message) -> str:
    if isinstance(message, VoteRequested):
        kind = "PreVote?" if message.pre_vote else "Vote?"
        return f"{kind} epoch={message.leader_epoch} log={message.log_end.last_epoch}:{message.log_end.end_offset}"
    if isinstance(message, VoteAnswered):
        kind = "PreVote" if message.pre_vote else "Vote"
        answer = "granted" if message.granted else "denied"
        return f"{kind} {answer} epoch={message.leader_epoch} leader={named(message.leader_id)}"
    if isinstance(message, EpochBegun):
        return f"BeginEpoch epoch={message.leader_epoch}"
    if isinstance(message, EpochEnded):
        return f"EndEpoch epoch={message.leader_epoch}"
    return f"Fetch offset={message.fetch_offset} epoch={message.leader_epoch}"


def named(node_id: int) -> str:
    return "-" if node_id == NO_NODE else str(node_id)


class RaftWords:
    """A quorum under the command of a script."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.nodes: dict[int, RaftNode] = {}
        self.ends: dict[int, LogEnd] = {}
        self.stored: dict[int, ElectionState] = {}
        self.under_way: list[tuple[int, int, Message]] = []
        self.cut: set[int] = set()

    def run(self, command: Command) -> Iterable[str]:
        act = getattr(self, f"do_{command.name}", None)
        if act is None:
            raise ScriptError(f"{command.name}: no such command")
        lines: list[str] = list(act(command))
        return lines

    def do_voters(self, command: Command) -> Iterator[str]:
        count = int(command.arguments[0])
        self.voters = VoterSet(Voter(ReplicaKey(number, UUID(int=number)), {}) for number in range(1, count + 1))
        for number in self.voters.node_ids:
            self.ends[number], self.stored[number] = LogEnd(0, 0), ElectionState()
            yield from self._start(number)

    def do_restart(self, command: Command) -> Iterator[str]:
        """Kill the process and start it again: it loses its memory, and keeps its persisted state and its log."""
        yield from self._start(int(command.arguments[0]))

    def do_tick(self, command: Command) -> Iterator[str]:
        self.now_ms += command.number("ms")
        for number in [int(text) for text in command.arguments] or list(self.nodes):
            yield from self._process(number, partial(self.nodes[number].tick, self.now_ms))

    def do_deliver(self, command: Command) -> Iterator[str]:
        """Hand over what is under way now, or only from one to another; not what that gives rise to."""
        chosen = [each for each in self.under_way if self._matches(each, command)]
        self.under_way = [each for each in self.under_way if each not in chosen]
        for sender, to, message in chosen:
            yield from self._hand_over(sender, to, message)

    def do_stabilize(self, command: Command) -> Iterator[str]:
        while self.under_way:
            yield from self._hand_over(*self.under_way.pop(0))

    def do_ask(self, command: Command) -> Iterator[str]:
        """A request for a vote that its sender never made, or made long ago, is under way."""
        sender, _, to = command.arguments[0].partition(">")
        last_epoch, _, end_offset = command.options["log"].partition(":")
        candidate = ReplicaKey(int(sender), UUID(int=int(sender)))
        log_end = LogEnd(int(last_epoch), int(end_offset))
        self.under_way.append((int(sender), int(to), VoteRequested(candidate, command.number("epoch"), log_end)))
        yield from ()

    def do_drop(self, command: Command) -> Iterator[str]:
        lost = [each for each in self.under_way if self._matches(each, command)]
        self.under_way = [each for each in self.under_way if each not in lost]
        yield f"{len(lost)} lost"

    def do_cut(self, command: Command) -> Iterator[str]:
        self.cut |= {int(text) for text in command.arguments}
        yield from ()

    def do_heal(self, command: Command) -> Iterator[str]:
        self.cut.clear()
        yield from ()

    def do_append(self, command: Command) -> Iterator[str]:
        number = int(command.arguments[0])
        epoch = command.number("epoch", self.nodes[number].leader_epoch)
        self.ends[number] = LogEnd(epoch, self.ends[number].end_offset + command.number("count"))
        yield f"{number} log={epoch}:{self.ends[number].end_offset}"

    def do_synced(self, command: Command) -> Iterator[str]:
        number = int(command.arguments[0])
        watermark = self.nodes[number].log_synced(self.ends[number].end_offset, self.now_ms)
        yield f"{number} high watermark {watermark}"

    def do_fetch(self, command: Command) -> Iterator[str]:
        """A follower fetches from its leader and gets all that the leader has."""
        number = int(command.arguments[0])
        node = self.nodes[number]
        leader = self.nodes[node.leader_id]
        if not {number, node.leader_id}.isdisjoint(self.cut):
            raise ScriptError("one of them is cut off")
        fetched = Fetched(node.me, node.leader_epoch, self.ends[number].end_offset)
        yield from self._process(node.leader_id, lambda: leader.step(fetched, self.now_ms))
        if leader.role is Role.LEADER and leader.leader_epoch == node.leader_epoch:
            node.leader_responded(self.now_ms)
            self.ends[number] = max(self.ends[number], self.ends[node.leader_id])
        end = self.ends[number]
        yield f"{number} log={end.last_epoch}:{end.end_offset}, leader's high watermark {leader.high_watermark}"

    def do_change(self, command: Command) -> Iterator[str]:
        """A node's log names other voters from here on, committed or not."""
        numbers = [int(text) for text in command.options["voters"].split(",")]
        voters = VoterSet(Voter(ReplicaKey(number, UUID(int=number)), {}) for number in numbers)
        for number in map(int, command.arguments):
            before = self._state(number)
            self.nodes[number].voters_changed(voters, self.now_ms)
            if self._state(number) != before:
                yield self._state(number)

    def do_refused(self, command: Command) -> Iterator[str]:
        """A node finds that a port refuses: its leader's, or that of a voter that it asked."""
        asking, _, asked = command.arguments[0].partition(">")
        node = self.nodes[int(asking)]
        if node.leader_id == int(asked):
            node.leader_unreachable(self.now_ms)
        else:
            node.voter_unreachable(int(asked), self.now_ms)
        yield f"{asking} is due in {node.wait_ms(self.now_ms)} ms"

    def do_resign(self, command: Command) -> Iterator[str]:
        number = int(command.arguments[0])

        def resign() -> Ready:
            ready = Ready()
            self.nodes[number].resign(self.now_ms, ready)
            return ready

        yield from self._process(number, resign)

    def do_retire(self, command: Command) -> Iterator[str]:
        """A node begins to stop."""
        number = int(command.arguments[0])

        def retire() -> Ready:
            ready = Ready()
            self.nodes[number].retire(self.now_ms, ready)
            return ready

        yield from self._process(number, retire)

    def do_full(self, command: Command) -> Iterator[str]:
        """A node's disk is full: it can append nothing."""
        number = int(command.arguments[0])

        def run_out() -> Ready:
            ready = Ready()
            self.nodes[number].out_of_space(self.now_ms, ready)
            return ready

        yield from self._process(number, run_out)

    def do_space(self, command: Command) -> Iterator[str]:
        """A node can write again."""
        self.nodes[int(command.arguments[0])].may_campaign = True
        yield from ()

    def do_status(self, command: Command) -> Iterator[str]:
        for number, node in self.nodes.items():
            end = self.ends[number]
            yield f"{self._state(number)} log={end.last_epoch}:{end.end_offset} hw={node.high_watermark}"

    # -- inside -----------------------------------------------------------------------------------------------------

    def _start(self, number: int) -> Iterator[str]:
        me = ReplicaKey(number, UUID(int=number))
        node = RaftNode(me, self.voters, self.stored[number], lambda: self.ends[number], NoChance())
        self.nodes[number] = node
        yield from self._process(number, lambda: node.start(self.now_ms))

    def _hand_over(self, sender: int, to: int, message: Message) -> Iterator[str]:
        if not {sender, to}.isdisjoint(self.cut):
            yield f"{sender}>{to} {describe(message)} (lost)"
            return
        yield f"{sender}>{to} {describe(message)}"
        for line in self._process(to, lambda: self.nodes[to].step(message, self.now_ms)):
            yield "  " + line

    def _process(self, number: int, act: Callable[[], Ready]) -> Iterator[str]:
        """Let a node act, and do what it says: persist, lead, send."""
        before = self._state(number)
        ready = act()
        if self._state(number) != before:
            yield self._state(number)
        if ready.persist is not None:
            self.stored[number] = ready.persist
            voted = "-" if ready.persist.voted is None else str(ready.persist.voted.node_id)
            leader = named(ready.persist.leader_id)
            yield f"{number} persists epoch={ready.persist.leader_epoch} leader={leader} voted={voted}"
        if ready.elected:
            yield f"{number} is elected"
        if ready.lost_leadership:
            yield f"{number} leads no more"
        for to, message in ready.messages:
            self.under_way.append((number, to, message))

    def _state(self, number: int) -> str:
        node = self.nodes[number]
        return f"{number} {node.role.value} epoch={node.leader_epoch} leader={named(node.leader_id)}"

    def _matches(self, each: tuple[int, int, Message], command: Command) -> bool:
        return not command.arguments or f"{each[0]}>{each[1]}" in command.arguments
