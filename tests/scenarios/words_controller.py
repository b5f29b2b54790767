"""Words for the controller: brokers, topics, and who leads what.

`settings KEY=VALUE…`, `brokers ID… [rack=…]`, `topic NAME REPLICAS…` (one list for each partition),
`place NAME partitions=… factor=…`, `spread NAME` (how the replicas of a topic lie), `isr NAME-N BROKERS`,
`fence ID…`, `stop ID` (asks to shut down), `back ID…` (registers again), `lost ID` (registers again after an unclean
stop), `unregister ID`, `elect preferred|unclean NAME-N…`, `show`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages import alter_partition_request as alter_messages
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from tests.scenarios.script import Command, ScriptError
from tests.support.controller_harness import Harness, wanted

ELECTIONS = {"preferred": 0, "unclean": 1}


def listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


class ControllerWords:
    """A controller without a log: what it decides is replayed at once."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.incarnation = 0

    def run(self, command: Command) -> Iterable[str]:
        act: Callable[[Command], Iterator[str] | None] | None = getattr(self, f"do_{command.name}", None)
        if act is None:
            raise ScriptError(f"{command.name}: no such command")
        before = self._partitions()
        try:
            lines = list(act(command) or ())
        except ApiError as error:
            return [f"{error.code.name}: {error.message}"]
        after = self._partitions()
        lines += [f"{name} {state}" for name, state in after.items() if before.get(name) != state]
        return lines

    def do_settings(self, command: Command) -> None:
        settings = {key.replace(".", "_"): value for key, value in command.options.items()}
        self.harness = Harness(
            **{key: value == "true" if value.isalpha() else int(value) for key, value in settings.items()}
        )

    def do_brokers(self, command: Command) -> None:
        rack = {"rack": command.options["rack"]} if "rack" in command.options else {}
        self.harness.brokers(*(int(text) for text in command.arguments), **rack)

    def do_topic(self, command: Command) -> None:
        lists = [[int(part) for part in text.split(",")] for text in command.arguments[1:]]
        self.harness.topic(command.arguments[0], *lists)

    def do_place(self, command: Command) -> Iterator[str]:
        answer = self.harness.create(
            wanted(command.arguments[0], command.number("partitions"), command.number("factor"))
        )[0]
        if answer.error_code:
            yield f"{ErrorCode(answer.error_code).name}: {answer.error_message}"

    def do_spread(self, command: Command) -> Iterator[str]:
        topic_id = self.harness.state.topic_ids[command.arguments[0]]
        found = [part for (key, _), part in self.harness.state.partitions.items() if key == topic_id]
        brokers = self.harness.state.brokers
        racks = {len({brokers[number].rack for number in part.replicas}) for part in found}
        yield f"leaders {self._counted(part.replicas[0] for part in found)}"
        yield f"replicas {self._counted(number for part in found for number in part.replicas)}"
        yield f"racks of a partition: {listed(sorted(racks))}"

    def do_isr(self, command: Command) -> Iterator[str]:
        name, _, number = command.arguments[0].rpartition("-")
        partition = self.harness.partition(name, int(number))
        wanted_isr = [
            alter_messages.BrokerState(broker_id=int(text), broker_epoch=-1) for text in command.arguments[1].split(",")
        ]
        data = alter_messages.PartitionData(
            partition_index=int(number),
            leader_epoch=command.number("leader-epoch", partition.leader_epoch),
            partition_epoch=command.number("partition-epoch", partition.partition_epoch),
            new_isr_with_epochs=wanted_isr,
        )
        sender = command.number("from", partition.leader)
        request = alter_messages.AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.harness.state.brokers[sender].broker_epoch,
            topics=[alter_messages.TopicData(topic_id=self.harness.state.topic_ids[name], partitions=[data])],
        )
        answer = self.harness.do(self.harness.machine.partitions.alter_partition(request))
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code:
            yield code.name

    def do_fence(self, command: Command) -> None:
        for text in command.arguments:
            self.harness.beat(int(text), want_fence=True)

    def do_stop(self, command: Command) -> Iterator[str]:
        answer = self.harness.beat(int(command.arguments[0]), want_shut_down=True)
        yield "it may stop" if answer.should_shut_down else "it must wait"

    def do_back(self, command: Command) -> None:
        for text in command.arguments:
            self._register(int(text), previous_broker_epoch=self.harness.state.brokers[int(text)].broker_epoch)

    def do_lost(self, command: Command) -> None:
        for text in command.arguments:
            self._register(int(text), previous_broker_epoch=-1)

    def do_unregister(self, command: Command) -> None:
        self.harness.do(self.harness.machine.brokers.unregister(int(command.arguments[0])))

    def do_elect(self, command: Command) -> Iterator[str]:
        asked = [text.rpartition("-") for text in command.arguments[1:]]
        request = ElectLeadersRequest(
            election_type=ELECTIONS[command.arguments[0]],
            topic_partitions=[TopicPartitions(topic=name, partitions=[int(number)]) for name, _, number in asked],
        )
        answer = self.harness.do(self.harness.machine.partitions.elect_leaders(request))
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                yield f"{topic.topic}-{result.partition_id}: {ErrorCode(result.error_code).name}"

    def do_show(self, command: Command) -> Iterator[str]:
        for number, broker in sorted(self.harness.state.brokers.items()):
            state = "fenced" if broker.fenced else "stopping" if broker.in_controlled_shutdown else "serves"
            yield f"broker {number} {state}"
        for name, state in self._partitions().items():
            yield f"{name} {state}"

    # -- inside -----------------------------------------------------------------------------------------------------

    def _register(self, number: int, **fields: Any) -> None:
        self.incarnation += 1
        self.harness.register(number, self.incarnation, **fields)
        self.harness.beat(number)

    def _partitions(self) -> dict[str, str]:
        names = {topic_id: name for name, topic_id in self.harness.state.topic_ids.items()}
        found = {}
        for (topic_id, number), part in self.harness.state.partitions.items():
            leader = "none" if part.leader < 0 else str(part.leader)
            text = f"leader={leader} epoch={part.leader_epoch} isr={listed(part.isr)} replicas={listed(part.replicas)}"
            text += f" elr={listed(part.elr)}" if part.elr else ""
            text += f" last-known={listed(part.last_known_elr)}" if part.last_known_elr else ""
            text += " recovering" if part.leader_recovery_state else ""
            found[f"{names[topic_id]}-{number}"] = text
        return dict(sorted(found.items()))

    def _counted(self, numbers: Iterable[int]) -> str:
        return " ".join(f"{number}:{count}" for number, count in sorted(Counter(numbers).items()))
