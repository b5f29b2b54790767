"""Configuration of topics, brokers, groups and client metrics, kept as records.

AlterConfigs (KIP-133) replaces all settings of a resource, IncrementalAlterConfigs (KIP-339) changes single ones. A
`ConfigSchema` has the tables of settings; this module has only the rules of the operations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from odradek.common.errors import ApiError, ConfigError, ErrorCode
from odradek.common.turns import Turns
from odradek.controller.bounds import ENTRIES_PER_STEP, check_size
from odradek.controller.eligible import clear_eligible
from odradek.controller.mirrors import check_mirrors, ended_failbacks, promotions, raised_epochs
from odradek.controller.state import ControllerState
from odradek.controller.topic_names import check_topic_name
from odradek.metadata.model import ConfigResource, ResourceType
from odradek.protocol.messages import alter_configs_response, incremental_alter_configs_response
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.create_topics_response import CreatableTopicConfigs
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.settings.resources import BrokerLayers, EffectiveSetting, combined_list
from odradek.statemachine.machine import Result, Steps

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
# Strings in Kafka's older config records had a 16-bit length; Kafka still refuses more.
MAX_VALUE_BYTES = 32767
MIN_ISR = "min.insync.replicas"


class ConfigSchema(Protocol):
    """Kafka's tables of settings. Resource types are numbers of `ResourceType`."""

    def validate(self, resource_type: int, resource_name: str, settings: Mapping[str, str]) -> None:
        """Check all settings of a resource together.

        Raises:
            ConfigError: an unknown key of a topic or group, a value out of bounds, a read-only broker setting.
        """
        ...

    def stored(self, resource_type: int, resource_name: str, key: str, text: str, old: str | None) -> str:
        """The text to store for a value; `old` is the stored one. A secret is encrypted.

        Raises:
            ConfigError: a secret that cannot be encrypted.
        """
        ...

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether the setting is a list, as APPEND and SUBTRACT require."""
        ...

    def default(self, resource_type: int, key: str) -> str | None:
        """The value of an unset setting, from the static configuration or Kafka's default."""
        ...

    def effective_topic(self, overrides: Mapping[str, str], layers: BrokerLayers) -> Sequence[EffectiveSetting]:
        """Every setting of a topic with these overrides, under these dynamic settings of brokers."""
        ...


class Configs:
    """Operations on configuration."""

    def __init__(self, state: ControllerState, schema: ConfigSchema) -> None:
        self._state = state
        self._schema = schema
        self._described_of: Sequence[EffectiveSetting] = ()
        self._described: list[CreatableTopicConfigs] = []

    def topic_settings(self, wanted: Sequence[tuple[str, str | None]], topic_name: str) -> dict[str, str]:
        """Settings for a new topic.

        Raises:
            ApiError: INVALID_CONFIG (null or wrong value, unknown key), INVALID_REQUEST (a key twice).
        """
        settings: dict[str, str] = {}
        for key, value in wanted:
            if key in settings:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} is given twice")
            if value is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}")
            settings[key] = value
        self._check(int(ResourceType.TOPIC), topic_name, settings)
        return settings

    def described_topic(self, settings: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """The effective settings of a new topic for the CreateTopics response (KIP-525)."""
        cluster = self._state.configs.get((int(ResourceType.BROKER), ""), {})
        effective = self._schema.effective_topic(settings, BrokerLayers({}, cluster))
        if effective is not self._described_of:  # thousands of topics without overrides share one list
            self._described_of = effective
            self._described = [
                CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
                for entry in effective
            ]
        return self._described

    def incremental_alter(
        self, request: IncrementalAlterConfigsRequest
    ) -> Steps[Any, incremental_alter_configs_response.IncrementalAlterConfigsResponse]:
        """Change single settings; the changes of one resource are made all or none.

        Raises:
            ApiError: POLICY_VIOLATION, as `check_size`.
        """
        check_size(request)
        turns = Turns(ENTRIES_PER_STEP)
        records: list[Any] = []
        responses = []
        seen: set[ConfigResource] = set()
        for resource in request.resources:
            if turns.fill(1 + len(resource.configs)):
                yield
            key = (int(resource.resource_type), resource.resource_name)
            response = incremental_alter_configs_response.AlterConfigsResourceResponse(
                error_message=None, resource_type=key[0], resource_name=key[1]
            )
            try:
                self._check_once(key, seen)
                changes = [(change.name, change.config_operation, change.value) for change in resource.configs]
                records.extend(self._incremental_one(key, changes))
            except ApiError as error:
                response.error_code, response.error_message = error.code, error.message
            responses.append(response)
        answer = incremental_alter_configs_response.IncrementalAlterConfigsResponse(responses=responses)
        return Result([] if request.validate_only else records, answer, atomic=False)

    def alter(self, request: AlterConfigsRequest) -> Steps[Any, alter_configs_response.AlterConfigsResponse]:
        """Replace all settings of each resource by those given.

        Raises:
            ApiError: POLICY_VIOLATION, as `check_size`.
        """
        check_size(request)
        turns = Turns(ENTRIES_PER_STEP)
        records: list[Any] = []
        responses = []
        seen: set[ConfigResource] = set()
        for resource in request.resources:
            if turns.fill(1 + len(resource.configs)):
                yield
            key = (int(resource.resource_type), resource.resource_name)
            response = alter_configs_response.AlterConfigsResourceResponse(
                error_message=None, resource_type=key[0], resource_name=key[1]
            )
            try:
                self._check_once(key, seen)
                self._check_name(key)
                wanted: dict[str, str] = {}
                for entry in resource.configs:
                    if entry.value is None:
                        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {entry.name}")
                    wanted[entry.name] = entry.value
                records.extend(self._write(key, wanted, wanted))
            except ApiError as error:
                response.error_code, response.error_message = error.code, error.message
            responses.append(response)
        answer = alter_configs_response.AlterConfigsResponse(responses=responses)
        return Result([] if request.validate_only else records, answer, atomic=False)

    def safety_records(self) -> list[Any]:
        """The configuration that eligible leader replicas require: one min.insync.replicas for the whole cluster.

        With different values on different brokers, nodes would not agree on the eligible replicas. Source: KIP-966.
        """
        records: list[Any] = []
        default = self._schema.default(int(ResourceType.BROKER), MIN_ISR) or "1"
        if MIN_ISR not in self._state.configs.get((int(ResourceType.BROKER), ""), {}):
            records.append(_record((int(ResourceType.BROKER), ""), MIN_ISR, default))
        for resource, settings in self._state.configs.items():
            if resource[0] == ResourceType.BROKER and resource[1] and MIN_ISR in settings:
                records.append(_record(resource, MIN_ISR, None))
        return records

    def _check_once(self, key: ConfigResource, seen: set[ConfigResource]) -> None:
        if key in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        seen.add(key)

    def _incremental_one(self, resource: ConfigResource, changes: Sequence[tuple[str, int, str | None]]) -> list[Any]:
        self._check_name(resource)
        wanted = dict(self._state.configs.get(resource, {}))
        seen: set[str] = set()
        for key, operation, value in changes:
            if key in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {key}")
            seen.add(key)
            if operation == DELETE:
                wanted.pop(key, None)
                continue
            if operation not in (SET, APPEND, SUBTRACT):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation}")
            if value is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {key}")
            wanted[key] = value if operation == SET else self._combined(resource, key, operation, value, wanted)
        return self._write(resource, wanted, seen & wanted.keys())

    def _combined(
        self, resource: ConfigResource, key: str, operation: int, value: str, settings: Mapping[str, str]
    ) -> str:
        verb = "APPEND" if operation == APPEND else "SUBTRACT"
        if not self._schema.is_list(resource[0], key):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {key} because its type is not LIST.")
        old = settings.get(key)
        if old is None:
            old = self._schema.default(resource[0], key) or ""
        return combined_list(old, value, append=operation == APPEND)

    def _write(self, resource: ConfigResource, wanted: Mapping[str, str], given: Collection[str]) -> list[Any]:
        """
        Args:
            wanted: all settings; unchanged ones in their stored form.
            given: the keys that the request has, in any order.
        """
        old = self._state.configs.get(resource, {})
        removed = [key for key in old if key not in wanted]
        for key, value in wanted.items():
            if old.get(key) != value and len(value.encode()) > MAX_VALUE_BYTES:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"The configuration value of {key} is longer than the limit of {MAX_VALUE_BYTES} bytes.",
                )
        self._check(*resource, wanted)
        self._check_exists(resource)
        changed = self._stored(resource, {key: value for key, value in wanted.items() if key in given}, old)
        if MIN_ISR in changed or MIN_ISR in removed:
            self._check_min_isr(resource, MIN_ISR in removed)
        records: list[Any] = [_record(resource, key, value) for key, value in changed.items()]
        records.extend(_record(resource, key, None) for key in removed)
        if resource == (ResourceType.BROKER, ""):
            check_mirrors(self._state, changed, removed)
            records.extend(raised_epochs(self._state, changed))
            records.extend(promotions(self._state, changed))
            records.extend(ended_failbacks(self._state, changed))
        if self._state.elr_enabled and (MIN_ISR in changed or MIN_ISR in removed):
            # Eligible replicas depend on the old value.
            topic_name = resource[1] if resource[0] == ResourceType.TOPIC else ""
            records.extend(clear_eligible(self._state, topic_name, tracked=True))
        return records

    def _stored(self, resource: ConfigResource, given: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
        """The text to store for each value that differs from the stored one."""
        try:
            texts = {key: self._schema.stored(*resource, key, text, old.get(key)) for key, text in given.items()}
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(error.problems)) from None
        return {key: text for key, text in texts.items() if old.get(key) != text}

    def _check_min_isr(self, resource: ConfigResource, removed: bool) -> None:
        if not self._state.elr_enabled or resource[0] != ResourceType.BROKER:
            return
        if resource[1]:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if removed:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")

    def _check(self, resource_type: int, resource_name: str, settings: Mapping[str, str]) -> None:
        try:
            self._schema.validate(resource_type, resource_name, settings)
        except ConfigError as error:
            code = ErrorCode.INVALID_CONFIG
            if resource_type == ResourceType.CLIENT_METRICS:
                code = ErrorCode.INVALID_REQUEST  # as Kafka
            raise ApiError(code, "; ".join(error.problems)) from None

    def _check_name(self, resource: ConfigResource) -> None:
        """Check the name of a resource; its settings are validated before its existence (as in Kafka)."""
        resource_type, name = resource
        if resource_type == ResourceType.TOPIC:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_topic_name(name)
        elif resource_type == ResourceType.BROKER:
            if name and not (name.isascii() and name.isdigit()):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unable to parse broker name as a base 10 number: {name}")
        elif resource_type not in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"No configuration is kept for resource type {resource_type}.")
        elif not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The resource's name is empty.")

    def _check_exists(self, resource: ConfigResource) -> None:
        resource_type, name = resource
        if resource_type == ResourceType.TOPIC:
            if name not in self._state.topic_ids:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        elif resource_type == ResourceType.BROKER and name and not self._is_node(int(name)):
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")

    def _is_node(self, node_id: int) -> bool:
        return node_id in self._state.brokers or node_id in self._state.controllers


def _record(resource: ConfigResource, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=key, value=value)
