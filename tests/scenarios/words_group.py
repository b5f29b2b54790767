"""Words for one classic group `g`, on virtual time. Members have short names; the ids they are given are not shown.

`settings KEY=VALUE…`, `join NAME [static=…] [protocols=range,roundrobin] [version=…] [session=…] [rebalance=…]`,
`rejoin NAME`, `sync NAME [for=NAME,…]`, `heartbeat NAME [generation=…]`, `leave NAME…`, `pass MS`,
`commit NAME OFFSET`, `restart` (another broker loads what was written), `show`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from tests.scenarios.script import Command, ScriptError
from tests.unit.coordinator.conftest import VirtualShard


class GroupWords:
    """A shard of the coordinator with one group."""

    def __init__(self) -> None:
        self.shard = VirtualShard()
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.waiting: dict[int, tuple[str, str]] = {}
        self.settings: dict[str, dict[str, Any]] = {}

    def run(self, command: Command) -> Iterable[str]:
        act = getattr(self, f"do_{command.name}", None)
        if act is None:
            raise ScriptError(f"{command.name}: no such command")
        before = self._state()
        try:
            lines = list(act(command) or ())
        except ApiError as error:
            lines = [error.code.name]
        lines += self._answers()
        if self._state() != before:
            lines.append(f"group: {self._state()}")
        return lines

    def do_settings(self, command: Command) -> None:
        self.shard = VirtualShard(**{key.replace(".", "_"): int(value) for key, value in command.options.items()})

    def do_join(self, command: Command) -> None:
        name = command.arguments[0]
        self.settings[name] = {
            "instance": command.options.get("static"),
            "protocols": [(each, b"meta") for each in command.options.get("protocols", "range").split(",")],
            "version": command.number("version", 9),
            "session_ms": command.number("session", 10_000),
            "rebalance_ms": command.number("rebalance", 60_000),
        }
        self._join(name, "")

    def do_rejoin(self, command: Command) -> None:
        name = command.arguments[0]
        if "protocols" in command.options:
            self.settings[name]["protocols"] = [(each, b"new") for each in command.options["protocols"].split(",")]
        self._join(name, self.ids[name])

    def do_sync(self, command: Command) -> None:
        name = command.arguments[0]
        members = [each for each in command.options.get("for", "").split(",") if each]
        assignments = {self.ids[each]: f"part-{each}".encode() for each in members}
        generation = command.number("generation", self.generations[name])
        instance = self.settings[name]["instance"]
        self.waiting[self.shard.begin_sync(self.ids[name], generation, assignments, instance=instance)] = ("sync", name)

    def do_heartbeat(self, command: Command) -> Iterator[str]:
        name = command.arguments[0]
        generation = command.number("generation", self.generations.get(name, -1))
        instance = self.settings[name]["instance"]
        yield self.shard.heartbeat(self.ids[name], generation, instance=instance).name

    def do_leave(self, command: Command) -> Iterator[str]:
        members = [(self.ids[name], None) for name in command.arguments]
        for name, answer in zip(command.arguments, self.shard.leave(*members).members, strict=True):
            yield f"{name}: {ErrorCode(answer.error_code).name}"

    def do_pass(self, command: Command) -> None:
        self.shard.advance(int(command.arguments[0]))

    def do_commit(self, command: Command) -> Iterator[str]:
        name, offset = command.arguments[0], int(command.arguments[1])
        member_id = "" if name == "-" else self.ids[name]
        generation = command.number("generation", self.generations.get(name, -1))
        code = self.shard.commit(offset, member_id=member_id, generation_id=generation)
        yield f"{code.name}, committed {self.shard.committed()}"

    def do_restart(self, command: Command) -> None:
        self.shard = self.shard.restarted()
        self.waiting.clear()

    def do_show(self, command: Command) -> Iterator[str]:
        yield f"group: {self._state()}"

    # -- inside -----------------------------------------------------------------------------------------------------

    def _join(self, name: str, member_id: str) -> None:
        ticket = self.shard.begin_join(member_id, **self.settings[name])
        answer = self.shard.answers.get(ticket)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.ids[name] = answer.member_id
            ticket = self.shard.begin_join(answer.member_id, **self.settings[name])
        elif not member_id and answer is None:
            group = self.shard.machine.groups.find("g")
            known = set(self.ids.values())
            self.ids[name] = next((each for each in (group.members if group else ()) if each not in known), "")
        self.waiting[ticket] = ("join", name)

    def _answers(self) -> Iterator[str]:
        for ticket, (what, name) in list(self.waiting.items()):
            answer = self.shard.answers.get(ticket)
            if answer is None:
                continue
            del self.waiting[ticket]
            code = ErrorCode(answer.error_code)
            if code:
                yield f"{name} {what}: {code.name}"
            elif what == "join":
                self.ids[name], self.generations[name] = answer.member_id, answer.generation_id
                members = ",".join(sorted(self._named(each.member_id) for each in answer.members))
                leads = f" leads {members}" if answer.leader == answer.member_id else ""
                skip = " skip-assignment" if answer.skip_assignment else ""
                yield f"{name} joined: generation {answer.generation_id} {answer.protocol_name}{leads}{skip}"
            else:
                yield f"{name} assigned: {answer.assignment.decode() or 'nothing'}"

    def _named(self, member_id: str) -> str:
        return next((name for name, known in self.ids.items() if known == member_id), "?")

    def _state(self) -> str:
        group = self.shard.machine.groups.find("g")
        if group is None:
            return "none"
        members = ",".join(sorted(self._named(each) for each in group.members)) or "none"
        return f"{group.state.name.lower()} generation {group.generation_id}, {members}"
