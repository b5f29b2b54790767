"""Registration, heartbeats, controlled shutdown and fencing of brokers.

    (none) --register--> FENCED --beat, caught up--> UNFENCED --wants to stop--> CONTROLLED_SHUTDOWN --no leaders--> out
                            ^---- silent for a session timeout, or asks for it ----'

Registration and its epoch are records (KIP-631, 841, 858, 966); the time of a broker's last heartbeat is soft state of
the active controller. After an election each broker has a whole session to send a heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.config import ControllerConfig
from odradek.controller.partitions import Partitions
from odradek.controller.state import ControllerState
from odradek.metadata.features import CORDONED_LOG_DIRS, DIRECTORY_ASSIGNMENT, METADATA_VERSION, supported_features
from odradek.metadata.model import BrokerImage, ResourceType
from odradek.protocol.extras import broker_host_fields, read_broker_host, read_full_log_dirs
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.settings.broker import DRAIN_KEY, DRAIN_STOP_KEY
from odradek.statemachine.machine import Result

PRODUCER_ID_BLOCK = 1000
MAX_PRODUCER_ID = (1 << 63) - 1


@dataclass(slots=True)
class BrokerSession:
    """The time of the last heartbeat of a broker epoch (monotonic ms), and its content.

    Attributes:
        metadata_offset: the last offset of the metadata log that it has applied, inclusive.
        shutdown_offset: of the last record that moved a leader away for its shutdown; -1 if it is not stopping.
    """

    broker_epoch: int
    at_ms: int
    metadata_offset: int = -1
    shutdown_offset: int = -1


class Brokers:
    """Operations on brokers, and their sessions."""

    def __init__(
        self, state: ControllerState, partitions: Partitions, config: ControllerConfig, cluster_id: str
    ) -> None:
        self._state = state
        self._partitions = partitions
        self.config = config
        self._cluster_id = cluster_id
        self.sessions: dict[int, BrokerSession] = {}

    def begin_sessions(self, now_ms: int) -> None:
        """This controller becomes active: every unfenced broker has a whole session before it is fenced."""
        self.sessions = {
            broker.broker_id: BrokerSession(broker.broker_epoch, now_ms)
            for broker in self._state.brokers.values()
            if not broker.fenced
        }

    def without_rack(self) -> list[int]:
        """The brokers without a rack if others have one; empty if all or none have."""
        missing = sorted(each.broker_id for each in self._state.brokers.values() if each.rack is None)
        return missing if len(missing) < len(self._state.brokers) else []

    def _has_session(self, broker: BrokerImage, now_ms: int) -> bool:
        session = self.sessions.get(broker.broker_id)
        return (
            session is not None
            and session.broker_epoch == broker.broker_epoch
            and now_ms - session.at_ms < self.config.broker_session_timeout_ms
        )

    def register(
        self, request: BrokerRegistrationRequest, next_offset: int, now_ms: int
    ) -> Result[Any, BrokerRegistrationResponse]:
        """Register a broker, fenced.

        Args:
            next_offset: of the record that this writes: the broker epoch.
        Raises:
            ApiError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
        """
        self._check_registration(request)
        old = self._state.brokers.get(request.broker_id)
        same = old if old is not None and old.incarnation_id == request.incarnation_id else None
        if old is not None and same is None:
            self._check_takeover(old, request, now_ms)
        record = self._registration(request, same, next_offset)
        assert old is None or record.broker_epoch >= old.broker_epoch, f"{record} after {old}"
        records: list[Any] = [record]
        self._state.full_directories.pop(request.broker_id, None)
        if same is not None:
            lost = set(same.directories) - set(request.log_dirs) if record.log_dirs else set()
            records.extend(self._partitions.handle_directories_lost(request.broker_id, lost) if lost else ())
        elif old is not None:
            # It may have lost records that were not flushed, unless the previous process stopped cleanly (KIP-966).
            unclean = self._state.elr_enabled and request.previous_broker_epoch != old.broker_epoch
            records.extend(self._partitions.handle_broker_fenced(request.broker_id, unclean_shutdown=unclean))
            records.extend(self._end_of_drain(request.broker_id))
        return Result(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch))

    def _check_takeover(self, old: BrokerImage, request: BrokerRegistrationRequest, now_ms: int) -> None:
        """Check that another process may take the id: a later start of the same broker, or the session has expired."""
        if self._has_session(old, now_ms) and not _same_disks(old, request):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with that broker id. If the broker was recently restarted this should "
                f"self-resolve once the heartbeat manager expires the broker's session ({request.broker_id}).",
            )

    def _registration(
        self, request: BrokerRegistrationRequest, same: BrokerImage | None, next_offset: int
    ) -> RegisterBrokerRecord:
        """The registration record; a process that registers again keeps its epoch and its state."""
        level = self._state.metadata_version
        cordoned = set(same.cordoned_directories) if same is not None and level >= CORDONED_LOG_DIRS else set()
        return RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=next_offset if same is None else same.broker_epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
            rack=request.rack,
            fenced=same is None or same.fenced,
            in_controlled_shutdown=same is not None and same.in_controlled_shutdown,
            log_dirs=sorted(request.log_dirs) if level >= DIRECTORY_ASSIGNMENT else [],
            cordoned_log_dirs=sorted(cordoned & set(request.log_dirs)) or None,
            unknown_tagged_fields=broker_host_fields(read_broker_host(request)),
        )

    def _end_of_drain(self, broker_id: int) -> list[ConfigRecord]:
        """The records that end a broker's drain: it has stopped, and is back."""
        kind, name = int(ResourceType.BROKER), str(broker_id)
        present = self._state.configs.get((kind, name), {})
        return [
            ConfigRecord(resource_type=kind, resource_name=name, name=key, value=None)
            for key in (DRAIN_KEY, DRAIN_STOP_KEY)
            if key in present
        ]

    def _check_registration(self, request: BrokerRegistrationRequest) -> None:
        if request.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        if request.broker_id < 0:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"a broker id is not negative: {request.broker_id}")
        if not request.listeners:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "No listeners specified for broker")
        if len(set(request.log_dirs)) < len(request.log_dirs):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
        self._check_directories_are_free(request)
        self._check_features(request)

    def _check_directories_are_free(self, request: BrokerRegistrationRequest) -> None:
        taken = {
            directory: broker.broker_id
            for broker in self._state.brokers.values()
            if broker.broker_id != request.broker_id
            for directory in broker.directories
        }
        for directory in request.log_dirs:
            if directory in taken:
                raise ApiError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {request.broker_id} names a log directory that belongs to broker {taken[directory]}",
                )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Check that a broker supports the finalized features."""
        ranges = {feature.name: feature for feature in request.features}
        for name, level in self._state.features.items():
            supported = ranges.get(name)
            low, high = (supported.min_supported_version, supported.max_supported_version) if supported else (0, 0)
            if not low <= level <= high:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {low} and {high}, inclusive.",
                )
        assert METADATA_VERSION in supported_features()

    def registered(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A registration is committed: its session begins, or goes on. The service calls this, not `replay`."""
        session = self.sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.at_ms = now_ms
        else:
            self.sessions[broker_id] = BrokerSession(broker_epoch, now_ms)

    def heartbeat(
        self, request: BrokerHeartbeatRequest, next_offset: int, now_ms: int
    ) -> Result[Any, BrokerHeartbeatResponse]:
        """Handle a heartbeat: unfence a broker that has caught up; move leaders off one that wants to stop.

        A broker may stop when it leads nothing and every unfenced broker has applied that change, so that no client is
        sent to it any more.

        Args:
            next_offset: of the first record that this writes.
        Raises:
            ApiError: STALE_BROKER_EPOCH; INVALID_REQUEST: cordoned directories that are not its own.
        """
        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        session = self.sessions.get(broker.broker_id)
        if session is None or session.broker_epoch != broker.broker_epoch:
            session = BrokerSession(broker.broker_epoch, now_ms)
        caught_up = request.current_metadata_offset >= broker.broker_epoch
        records: list[Any] = self._directory_changes(broker, request)
        fenced, stop = broker.fenced, False
        if broker.fenced:
            stop = request.want_shut_down
            # The loss of a directory comes first: its replicas must not be elected by the same heartbeat.
            if not stop and not request.want_fence and caught_up and not records:
                records.append(_registration_change(broker, fenced=-1))
                records.extend(self._partitions.handle_broker_unfenced(broker.broker_id))
                fenced = False
        elif broker.in_controlled_shutdown:
            stop = not self._partitions.leads_any(broker.broker_id) and self._all_have_applied(session.shutdown_offset)
            fenced = stop
        elif request.want_fence or (request.want_shut_down and not self._partitions.leads_any(broker.broker_id)):
            fenced, stop = True, request.want_shut_down
        elif request.want_shut_down:
            records = [_registration_change(broker, in_controlled_shutdown=1)]
            records.extend(self._partitions.handle_broker_fenced(broker.broker_id))
            session.shutdown_offset = next_offset + len(records) - 1
        if fenced and not broker.fenced:
            records = self.fence(broker)
        records.extend(self._store_full_directories(broker, request, skip=fenced or bool(records)))
        session.at_ms = now_ms
        session.metadata_offset = max(session.metadata_offset, request.current_metadata_offset)
        if stop:
            # The broker exits when it reads the answer; another process of this id need not wait for a session.
            self.sessions.pop(broker.broker_id, None)
        else:
            self.sessions[broker.broker_id] = session
        answer = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=stop)
        return Result(records, answer, atomic=False)

    def _store_full_directories(self, broker: BrokerImage, request: BrokerHeartbeatRequest, *, skip: bool) -> list[Any]:
        """Store the full directories of a heartbeat; repeated with each, because in-sync sets change meanwhile."""
        full = read_full_log_dirs(request)
        self._state.full_directories[broker.broker_id] = full
        return self._partitions.handle_directories_full(broker.broker_id) if full and not skip else []

    def _all_have_applied(self, offset: int) -> bool:
        """Whether every unfenced broker has reported that it has applied the metadata log up to here, inclusive."""
        serving = (broker for broker in self._state.brokers.values() if broker.active)
        heartbeats = (self.sessions.get(broker.broker_id) for broker in serving)
        return all(session is not None and session.metadata_offset >= offset for session in heartbeats)

    def _directory_changes(self, broker: BrokerImage, request: BrokerHeartbeatRequest) -> list[Any]:
        level = self._state.metadata_version
        records: list[Any] = []
        lost = set(broker.directories) & set(request.offline_log_dirs)
        if level >= DIRECTORY_ASSIGNMENT and lost:
            records.extend(self._partitions.handle_directories_lost(broker.broker_id, lost))
            online = [directory for directory in broker.directories if directory not in lost]
            if online:  # a broker without an online directory stops by itself
                records.append(_registration_change(broker, log_dirs=online))
        cordoned = request.cordoned_log_dirs
        if level >= CORDONED_LOG_DIRS and cordoned is not None:
            if not set(cordoned) <= set(broker.directories):
                raise ApiError(ErrorCode.INVALID_REQUEST, "a cordoned directory is none of the broker's own")
            if set(cordoned) != set(broker.cordoned_directories):
                records.append(_registration_change(broker, cordoned_log_dirs=sorted(cordoned)))
        return records

    def check_epoch(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """The registration of a broker in this epoch.

        Raises:
            ApiError: STALE_BROKER_EPOCH if it is not registered, or in another epoch (as in Kafka).
        """
        broker = self._state.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.broker_epoch != broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.broker_epoch} for broker {broker_id}, but got {broker_epoch}",
            )
        return broker

    def fence(self, broker: BrokerImage) -> list[Any]:
        """The records that fence a broker: clients no longer see it, it leads nothing and leaves the in-sync sets.

        If no other replica has all records, it stays in the set, or eligible; it leads nothing in any case.
        """
        records: list[Any] = [_registration_change(broker, fenced=1)]
        records.extend(self._partitions.handle_broker_fenced(broker.broker_id))
        return records

    def fence_dead(self, broker_id: int, broker_epoch: int) -> Result[Any, None]:
        """Fence a broker whose process has died, before its session expires.

        Raises:
            ApiError: STALE_BROKER_EPOCH: it has registered again.
        """
        broker = self.check_epoch(broker_id, broker_epoch)
        return Result([] if broker.fenced else self.fence(broker), None, atomic=False)

    def brokers_without_heartbeat(self) -> list[tuple[int, int]]:
        """Unfenced brokers that have sent no heartbeat to this controller: (id, epoch)."""
        return [
            (broker.broker_id, broker.broker_epoch)
            for broker in self._state.brokers.values()
            if not broker.fenced
            and ((session := self.sessions.get(broker.broker_id)) is None or session.metadata_offset < 0)
        ]

    def fence_expired(self, now_ms: int) -> Result[Any, int | None]:
        """Fence the broker with the oldest heartbeat, if its session has expired; returns its id."""
        silent = [
            broker
            for broker in self._state.brokers.values()
            if not broker.fenced and not self._has_session(broker, now_ms)
        ]
        if not silent:
            return Result([], None)
        longest = min(silent, key=lambda broker: self._last_heartbeat_ms(broker))
        return Result(self.fence(longest), longest.broker_id, atomic=False)

    def _last_heartbeat_ms(self, broker: BrokerImage) -> int:
        session = self.sessions.get(broker.broker_id)
        return session.at_ms if session is not None else -1

    def unregister(self, broker_id: int) -> Result[Any, UnregisterBrokerResponse]:
        """Remove the registration of a broker that will not return.

        Raises:
            ApiError: BROKER_ID_NOT_REGISTERED.
        """
        broker = self._state.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered.")
        self._state.full_directories.pop(broker_id, None)
        records: list[Any] = list(self._partitions.handle_broker_fenced(broker_id))
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch))
        return Result(records, UnregisterBrokerResponse(error_message=None))

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Result[Any, AllocateProducerIdsResponse]:
        """Allocate a block of producer ids to a broker (KIP-730).

        Raises:
            ApiError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when ids run out.
        """
        self.check_epoch(request.broker_id, request.broker_epoch)
        start = self._state.next_producer_id.value
        if start > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer ids")
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=start + PRODUCER_ID_BLOCK,
        )
        answer = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK)
        return Result([record], answer)


def _same_disks(old: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    """Whether a new process has the old one's log directories: it holds their lock, so the old one is dead.

    Without this a killed broker that starts at once waits for its own session to expire, 9 s by default.
    """
    return bool(old.directories) and set(old.directories) <= set(request.log_dirs)


def _registration_change(broker: BrokerImage, **fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, **fields)
