"""Replay of metadata records: the method for each record type, and the common parts of all states.

Two states replay the log: the active controller's collections, which can be reverted (`controller/state.py`), and the
image of each node (`delta.py`). If one of them lacks the method for a record type, its class is abstract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from odradek.metadata.model import BrokerImage, ConfigResource, broker_of, changed_broker, check_broker, controller_of

if TYPE_CHECKING:
    from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
    from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
    from odradek.protocol.messages.clear_elr_record import ClearElrRecord
    from odradek.protocol.messages.client_quota_record import ClientQuotaRecord
    from odradek.protocol.messages.config_record import ConfigRecord
    from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
    from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
    from odradek.protocol.messages.fence_broker_record import FenceBrokerRecord
    from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
    from odradek.protocol.messages.partition_record import PartitionRecord
    from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
    from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
    from odradek.protocol.messages.register_controller_record import RegisterControllerRecord
    from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from odradek.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
    from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from odradek.protocol.messages.topic_record import TopicRecord
    from odradek.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
    from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
    from odradek.protocol.messages.unregister_controller_record import UnregisterControllerRecord
    from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

SharedTable = Literal["brokers", "controllers", "configs", "features"]


class MetadataReplayer(ABC):
    """A state that metadata records change, one at a time and in order."""

    def apply_record(self, record: Any) -> None:
        """Change the state by one record. Transaction markers, NoOp and ZooKeeper's leftovers change nothing.

        Raises:
            ValueError: the record names a topic or broker that does not exist, or is of an unknown kind: the log is not
                one that a controller wrote.
        """
        kind = type(record).__name__
        method = _METHODS.get(kind)
        if method is not None:
            getattr(self, method)(record)
        elif kind not in _WITHOUT_CHANGE:
            raise ValueError(f"a {kind} is not a metadata record")

    @abstractmethod
    def _changed(self, table: SharedTable, key: Any) -> dict[Any, Any]:
        """A table in which the record at hand changes the entry of `key`."""

    # -- brokers, controllers, settings and features: alike in both ----------------------------------------------------

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        brokers, broker = self._changed("brokers", record.broker_id), broker_of(record)
        check_broker(brokers.get(record.broker_id), broker)
        brokers[record.broker_id] = broker

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        if self._changed("brokers", record.broker_id).pop(record.broker_id, None) is None:
            raise ValueError(f"a record unregisters broker {record.broker_id}, which is not registered")

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        brokers, broker = self._registered(record.broker_id, record.broker_epoch)
        brokers[record.broker_id] = changed_broker(broker, record)

    def _fence(self, record: FenceBrokerRecord) -> None:
        brokers, broker = self._registered(record.id, record.epoch)
        brokers[record.id] = replace(broker, fenced=True)

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        brokers, broker = self._registered(record.id, record.epoch)
        brokers[record.id] = replace(broker, fenced=False)

    def _registered(self, broker_id: int, broker_epoch: int) -> tuple[dict[Any, Any], BrokerImage]:
        """The table of brokers, and the one that a record changes."""
        brokers = self._changed("brokers", broker_id)
        broker: BrokerImage | None = brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            raise ValueError(f"a record changes broker {broker_id} of epoch {broker_epoch}, which is not registered")
        return brokers, broker

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self._changed("controllers", record.controller_id)[record.controller_id] = controller_of(record)

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        if self._changed("controllers", record.controller_id).pop(record.controller_id, None) is None:
            raise ValueError(f"a record unregisters controller {record.controller_id}, which is not registered")

    def _config(self, record: ConfigRecord) -> None:
        resource = (int(record.resource_type), record.resource_name)
        configs = self._changed("configs", resource)
        settings = self._settings_to_change(configs, resource)
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            configs[resource] = settings
        else:
            configs.pop(resource, None)

    def _settings_to_change(self, configs: dict[Any, Any], resource: ConfigResource) -> dict[str, str]:
        """A copy of a resource's settings: what reads the present ones must not see the change."""
        return dict(configs.get(resource, {}))

    def _feature(self, record: FeatureLevelRecord) -> None:
        features = self._changed("features", record.name)
        if record.feature_level:
            features[record.name] = record.feature_level
        else:
            features.pop(record.name, None)

    # -- implemented by each state -------------------------------------------------------------------------------------

    @abstractmethod
    def _topic(self, record: TopicRecord) -> None: ...
    @abstractmethod
    def _remove_topic(self, record: RemoveTopicRecord) -> None: ...
    @abstractmethod
    def _partition(self, record: PartitionRecord) -> None: ...
    @abstractmethod
    def _partition_change(self, record: PartitionChangeRecord) -> None: ...
    @abstractmethod
    def _clear_elr(self, record: ClearElrRecord) -> None: ...
    @abstractmethod
    def _producer_ids(self, record: ProducerIdsRecord) -> None: ...
    @abstractmethod
    def _quota(self, record: ClientQuotaRecord) -> None: ...
    @abstractmethod
    def _acl(self, record: AccessControlEntryRecord) -> None: ...
    @abstractmethod
    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None: ...
    @abstractmethod
    def _scram(self, record: UserScramCredentialRecord) -> None: ...
    @abstractmethod
    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None: ...
    @abstractmethod
    def _token(self, record: DelegationTokenRecord) -> None: ...
    @abstractmethod
    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None: ...


_METHODS: Mapping[str, str] = {
    "TopicRecord": "_topic",
    "RemoveTopicRecord": "_remove_topic",
    "PartitionRecord": "_partition",
    "PartitionChangeRecord": "_partition_change",
    "ClearElrRecord": "_clear_elr",
    "RegisterBrokerRecord": "_register_broker",
    "UnregisterBrokerRecord": "_unregister_broker",
    "BrokerRegistrationChangeRecord": "_broker_change",
    "FenceBrokerRecord": "_fence",
    "UnfenceBrokerRecord": "_unfence",
    "RegisterControllerRecord": "_register_controller",
    "UnregisterControllerRecord": "_unregister_controller",
    "ConfigRecord": "_config",
    "FeatureLevelRecord": "_feature",
    "ProducerIdsRecord": "_producer_ids",
    "ClientQuotaRecord": "_quota",
    "AccessControlEntryRecord": "_acl",
    "RemoveAccessControlEntryRecord": "_remove_acl",
    "UserScramCredentialRecord": "_scram",
    "RemoveUserScramCredentialRecord": "_remove_scram",
    "DelegationTokenRecord": "_token",
    "RemoveDelegationTokenRecord": "_remove_token",
}
# Markers of transactions count where records are read from the log (`publisher.TransactionBuffer`).
_WITHOUT_CHANGE = frozenset(
    {
        "BeginTransactionRecord",
        "EndTransactionRecord",
        "AbortTransactionRecord",
        "NoOpRecord",
        "ZkMigrationStateRecord",
    }
)
