"""Words for the controller: brokers, topics, and leaders.

`settings KEY=VALUE…`, `brokers ID… [rack=…]`, `topic NAME REPLICAS…` (one list for each partition),
`place NAME partitions=… factor=…`, `spread NAME` (how the replicas of a topic lie), `isr NAME-N BROKERS` (`twice=…`:
two reports in one), `fence ID…`, `beat ID…` (a heartbeat that knows all), `stop ID` (asks to shut down), `back ID…`
(registers again), `lost ID` (registers again after an unclean stop), `other ID` (another machine with this id),
`wait MS`, `unregister ID`, `elect preferred|unclean NAME-N…`, `balance`, `config topic|broker NAME KEY=VALUE…` (`KEY=`
takes it away; `broker -` is all of them), `level FEATURE LEVEL`, `disks ID NUMBERS [lost=…] [cordoned=…] [full=…]`
(starts after a clean stop, or reports its disks), `assign ID DISK NAME-N…` (the directory of replicas),
`move NAME-N:REPLICAS… [factor=kept]` (`:cancel` ends a move), `moves [NAME-N…]`, `show`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.extras import full_log_dirs_field
from odradek.protocol.messages import alter_partition_reassignments_request as move_messages
from odradek.protocol.messages import alter_partition_request as alter_messages
from odradek.protocol.messages import assign_replicas_to_dirs_request as assign_messages
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenarios.script import Command, ScriptError
from tests.support.models.controller_harness import Harness, wanted

RESOURCES = {"topic": 2, "broker": 4}
ELECTIONS = {"preferred": 0, "unclean": 1}


def _broker_states(text: str) -> list[alter_messages.BrokerState]:
    """`1,2@7`: 2 with broker epoch 7, the others with none."""
    states = []
    for part in text.split(",") if text != "-" else ():
        number, _, epoch = part.partition("@")
        states.append(alter_messages.BrokerState(broker_id=int(number), broker_epoch=int(epoch or -1)))
    return states


def _disks(text: str) -> list[UUID]:
    return [UUID(int=int(part)) for part in text.split(",") if part != "-"]


def listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


class ControllerWords:
    """A controller without a log: its records are replayed at once."""

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

    def do_topic(self, command: Command) -> Iterator[str]:
        lists = [[int(part) for part in text.split(",")] for text in command.arguments[1:]]
        answer = self.harness.create_as(command.arguments[0], lists)
        if answer.error_code:
            yield f"{ErrorCode(answer.error_code).name}: {answer.error_message}"

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
        datas = [
            alter_messages.PartitionData(
                partition_index=int(number),
                leader_epoch=command.number("leader-epoch", partition.leader_epoch),
                partition_epoch=command.number("partition-epoch", partition.partition_epoch),
                new_isr_with_epochs=_broker_states(text),
            )
            for text in (command.arguments[1], *([command.options["twice"]] if "twice" in command.options else []))
        ]
        sender = command.number("from", partition.leader)
        request = alter_messages.AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=command.number("from-epoch", self.harness.state.brokers[sender].broker_epoch),
            topics=[alter_messages.TopicData(topic_id=self.harness.state.topic_ids[name], partitions=datas)],
        )
        answer = self.harness.do(self.harness.machine.partitions.alter_partition(request))
        for result in answer.topics[0].partitions:
            if result.error_code:
                yield ErrorCode(result.error_code).name

    def do_fence(self, command: Command) -> None:
        for text in command.arguments:
            self.harness.beat(int(text), want_fence=True)

    def do_other(self, command: Command) -> None:
        number = int(command.arguments[0])
        incarnation = command.number("incarnation", 500)
        self.harness.register(number, incarnation, log_dirs=[UUID(int=2000 + incarnation)])
        self.harness.beat(number)

    def do_wait(self, command: Command) -> Iterator[str]:
        self.harness.now_ms += int(command.arguments[0])
        fenced: int | None = -1
        while fenced is not None:
            fenced = self.harness.do(self.harness.machine.brokers.fence_expired(self.harness.now_ms))
            if fenced is not None:
                yield f"broker {fenced} fenced"

    def do_beat(self, command: Command) -> None:
        for text in command.arguments:
            self.harness.beat(int(text))

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
        answer = self.harness.do(self.harness.machine.leaders.elect_leaders(request))
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                yield f"{topic.topic}-{result.partition_id}: {ErrorCode(result.error_code).name}"

    def do_move(self, command: Command) -> Iterator[str]:
        topics = []
        for text in command.arguments:
            where, _, wanted_replicas = text.partition(":")
            name, _, number = where.rpartition("-")
            replicas = None if wanted_replicas == "cancel" else [int(p) for p in wanted_replicas.split(",") if p]
            partition = move_messages.ReassignablePartition(partition_index=int(number), replicas=replicas)
            topics.append(move_messages.ReassignableTopic(name=name, partitions=[partition]))
        request = move_messages.AlterPartitionReassignmentsRequest(
            topics=topics, allow_replication_factor_change=command.options.get("factor") != "kept"
        )
        answer = self.harness.do(self.harness.machine.reassignments.alter(request))
        for topic in answer.responses:
            for result in topic.partitions:
                if result.error_code:
                    name = f"{topic.name}-{result.partition_index}"
                    yield f"{name}: {ErrorCode(result.error_code).name}: {result.error_message}"

    def do_moves(self, command: Command) -> Iterator[str]:
        asked = [text.rpartition("-") for text in command.arguments]
        request = ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsTopics(name=name, partition_indexes=[int(number)])
                for name, _, number in asked
            ]
            or None
        )
        answer = self.harness.do(self.harness.machine.reassignments.list_moves(request))
        for topic in answer.topics:
            for move in topic.partitions:
                yield (
                    f"{topic.name}-{move.partition_index} replicas={listed(move.replicas)} "
                    f"adding={listed(move.adding_replicas)} removing={listed(move.removing_replicas)}"
                )

    def do_assign(self, command: Command) -> Iterator[str]:
        broker, disk = (int(text) for text in command.arguments[:2])
        topics = []
        for text in command.arguments[2:]:
            name, _, number = text.rpartition("-")
            topic_id = self.harness.state.topic_ids.get(name, UUID(int=99))
            topics.append(
                assign_messages.TopicData(
                    topic_id=topic_id, partitions=[assign_messages.PartitionData(partition_index=int(number))]
                )
            )
        request = assign_messages.AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=command.number("broker-epoch", self.harness.state.brokers[broker].broker_epoch),
            directories=[assign_messages.DirectoryData(id=UUID(int=disk), topics=topics)],
        )
        answer = self.harness.do(self.harness.machine.directories.assign(request))
        for topic in answer.directories[0].topics:
            yield ErrorCode(topic.partitions[0].error_code).name

    def do_balance(self, command: Command) -> None:
        self.harness.do(self.harness.machine.leaders.balance())

    def do_config(self, command: Command) -> Iterator[str]:
        kind, name = command.arguments
        changes = [
            AlterableConfig(name=key, config_operation=0 if value else 1, value=value or None)
            for key, value in command.options.items()
        ]
        resource = AlterConfigsResource(
            resource_type=RESOURCES[kind], resource_name="" if name == "-" else name, configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = self.harness.do(self.harness.machine.configs.incremental_alter(request)).responses
        if answer.error_code:
            yield f"{ErrorCode(answer.error_code).name}: {answer.error_message}"
        self.harness.do(self.harness.machine.partitions.elect_offline_partitions())
        self.harness.do(self.harness.machine.leaders.move_leaders_off_draining())

    def do_level(self, command: Command) -> Iterator[str]:
        feature, level = command.arguments
        rises = int(level) > self.harness.state.features.get(feature, 0)
        key = FeatureUpdateKey(feature=feature, max_version_level=int(level), upgrade_type=1 if rises else 2)
        answer = self.harness.do(
            self.harness.machine.features.update(UpdateFeaturesRequest(feature_updates=[key]), version=2)
        )
        if answer.error_code:
            yield f"{ErrorCode(answer.error_code).name}: {answer.error_message}"

    def do_disks(self, command: Command) -> None:
        number = int(command.arguments[0])
        if len(command.arguments) > 1:
            self.incarnation += 1
            known = self.harness.state.brokers.get(number)
            self.harness.register(
                number,
                self.incarnation,
                log_dirs=_disks(command.arguments[1]),
                previous_broker_epoch=-1 if known is None else known.broker_epoch,
            )
        reported: dict[str, Any] = {"offline_log_dirs": _disks(command.options.get("lost", "-"))}
        if "cordoned" in command.options:
            reported["cordoned_log_dirs"] = _disks(command.options["cordoned"])
        full = _disks(command.options.get("full", "-"))
        self.harness.beat(number, **reported, unknown_tagged_fields=[full_log_dirs_field(full)])
        if not full:
            self.harness.beat(number)

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
            disks = [str(each.int) if each.int < 1000 else "" for each in part.directories]
            text += f" disks={','.join(disks)}" if any(each not in ("", "0") for each in disks) else ""
            text += f" adding={listed(part.adding_replicas)}" if part.adding_replicas else ""
            text += f" removing={listed(part.removing_replicas)}" if part.removing_replicas else ""
            text += f" elr={listed(part.elr)}" if part.elr else ""
            text += f" last-known={listed(part.last_known_elr)}" if part.last_known_elr else ""
            text += " recovering" if part.leader_recovery_state else ""
            found[f"{names[topic_id]}-{number}"] = text
        return dict(sorted(found.items()))

    def _counted(self, numbers: Iterable[int]) -> str:
        return " ".join(f"{number}:{count}" for number, count in sorted(Counter(numbers).items()))
