"""A controller's machine without a log: operations are replayed as they come."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek.common.errors import ConfigError
from odradek.common.steps import all_steps
from odradek.controller.config import ControllerConfig
from odradek.controller.machine import ControllerMachine
from odradek.metadata.features import supported_features
from odradek.metadata.model import PartitionImage
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.settings.broker import DRAIN_KEY
from odradek.settings.links import LINK_PREFIX
from odradek.settings.resources import BrokerLayers, ConfigSource, EffectiveSetting
from odradek.statemachine.machine import Result, Steps
from odradek.statemachine.timeline import Timeline

CLUSTER = "test-cluster"
# Not 0, for which a sum and a difference of times are the same.
START_MS = 10_000


class Schema:
    """Knows a few settings."""

    def __init__(self, min_insync_replicas: int = 1) -> None:
        self._defaults = {"cleanup.policy": "delete", "min.insync.replicas": str(min_insync_replicas)}

    def validate(self, resource_type: int, resource_name: str, settings: Mapping[str, str]) -> None:
        problems = []
        for key, value in settings.items():
            if not key.startswith(LINK_PREFIX) and key not in (
                "retention.ms",
                "cleanup.policy",
                "min.insync.replicas",
                "unclean.leader.election.enable",
                DRAIN_KEY,
                "x",
            ):
                problems.append(f"Unknown topic config name: {key}")
            elif key == "retention.ms" and not value.lstrip("-").isdigit():
                problems.append(f"Invalid value {value} for configuration retention.ms")
        if problems:
            raise ConfigError(problems)

    def stored(self, resource_type: int, resource_name: str, key: str, text: str, old: str | None) -> str:
        return text

    def is_list(self, resource_type: int, key: str) -> bool:
        return key == "cleanup.policy"

    def default(self, resource_type: int, key: str) -> str | None:
        return self._defaults.get(key)

    def effective_topic(self, overrides: Mapping[str, str], layers: BrokerLayers) -> list[EffectiveSetting]:
        return [EffectiveSetting(key, value, ConfigSource.DYNAMIC_TOPIC_CONFIG) for key, value in overrides.items()]


class Harness:
    """Runs operations at once and keeps what they wrote."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.timeline = Timeline()
        settings = replace(ControllerConfig(), **config)
        self.machine = ControllerMachine(
            self.timeline,
            settings,
            Schema(settings.min_insync_replicas),
            random.Random(seed),
            cluster_id=CLUSTER,
        )
        self.log: list[Any] = []
        self.now_ms = START_MS
        self.do(self.machine.activate(0))

    @property
    def state(self) -> Any:
        return self.machine.state

    def do(self, decided: Result[Any, Any] | Steps[Any, Any]) -> Any:
        result = decided if isinstance(decided, Result) else all_steps(decided)
        for record in result.records:
            self.machine.replay(record, len(self.log))
            self.log.append(record)
        return result.response

    def registration(self, broker_id: int, incarnation: int = 0, **fields: Any) -> BrokerRegistrationRequest:
        defaults: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER,
            "incarnation_id": UUID(int=(broker_id + 1) * 100 + incarnation + 1),
            "listeners": [Listener(name="PLAINTEXT", host="h", port=9092)],
            "features": [
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in supported_features().items()
            ],
            "log_dirs": [UUID(int=1000 + broker_id)],
        }
        return BrokerRegistrationRequest(**{**defaults, **fields})

    def register(self, broker_id: int, incarnation: int = 0, **fields: Any) -> int:
        request = self.registration(broker_id, incarnation, **fields)
        epoch = self.do(self.machine.brokers.register(request, len(self.log), self.now_ms)).broker_epoch
        self.machine.brokers.registered(broker_id, epoch, self.now_ms)
        return int(epoch)

    def beat(self, broker_id: int, *, offset: int | None = None, **fields: Any) -> Any:
        epoch = self.state.brokers[broker_id].broker_epoch
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=len(self.log) if offset is None else offset,
            **fields,
        )
        return self.do(self.machine.brokers.heartbeat(request, len(self.log), self.now_ms))

    def brokers(self, *broker_ids: int, **fields: Any) -> None:
        for broker_id in broker_ids:
            self.register(broker_id, **fields)
            self.beat(broker_id)

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[Any]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        return list(self.do(self.machine.topics.create(request)).topics)

    def topic(self, name: str, *assignments: list[int]) -> None:
        """Create a topic with given replicas per partition."""
        answer = self.create_as(name, assignments)
        assert answer.error_code == 0, answer

    def create_as(self, name: str, assignments: Sequence[list[int]]) -> Any:
        """Ask for a topic with given replicas per partition; returns the answer."""
        manual = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(assignments)]
        return self.create(CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=manual))[0]

    def partition(self, name: str, partition_id: int = 0) -> PartitionImage:
        found: PartitionImage = self.state.partitions[(self.state.topic_ids[name], partition_id)]
        return found


def wanted(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)
