"""The active controller at run time: one method per API, each an operation of the machine through the runtime.

This is the only module of the controller that waits and has a clock. It creates a machine and a runtime for each
leadership: when this node is elected, the log is replayed and the first operation of the leadership runs; then requests
are served. Before that they get NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.common.tasks import gather_cancelling
from odradek.controller.client_quotas import alter_client_quotas
from odradek.controller.config import ControllerConfig
from odradek.controller.configs import ConfigSchema
from odradek.controller.controllers import register_controller
from odradek.controller.machine import ControllerMachine
from odradek.controller.scram import alter_scram_credentials
from odradek.controller.tokens import NO_TOKENS, DelegationTokenConfig, DelegationTokens
from odradek.controller.topics import Charge, Topics, charged, free
from odradek.metadata.features import KRAFT_VERSION
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.alter_configs_response import AlterConfigsResponse
from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from odradek.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from odradek.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.raft.driver import RaftDriver
from odradek.settings.broker import DRAIN_KEY
from odradek.statemachine.machine import Result, Steps
from odradek.statemachine.runtime import Runtime
from odradek.statemachine.timeline import Timeline

if TYPE_CHECKING:
    from random import Random

ResponseT = TypeVar("ResponseT")
M = TypeVar("M", bound=Message)

_log = get_logger("controller.service")
_SETTINGS_OF_ELECTIONS = {"unclean.leader.election.enable", "min.insync.replicas", DRAIN_KEY}


class ControllerService:
    """The controller of this node: active while the node leads the quorum."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        config: ControllerConfig,
        schema: ConfigSchema,
        *,
        cluster_id: str,
        bootstrap: Sequence[Any] = (),
        token_config: DelegationTokenConfig = NO_TOKENS,
        on_active: Callable[[], None] = lambda: None,
        on_failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """
        Args:
            bootstrap: records of `bootstrap.checkpoint`, see `raft.snapshot.read_bootstrap`.
            on_active: called when this node serves as the active controller.
            on_failed: called when the metadata log failed or is inconsistent: the node must stop.
        """
        self._clock = clock
        self._random = random
        self._config = config
        self._schema = schema
        self._cluster_id = cluster_id
        self._bootstrap = bootstrap
        self._token_config = token_config
        self._on_active = on_active
        self._on_failed = on_failed
        self._driver: RaftDriver | None = None
        self._machine: ControllerMachine | None = None
        self._runtime: Runtime[Any] | None = None
        self._active_task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def attach(self, driver: RaftDriver) -> None:
        """Set the log; pass `elected` as the driver's `on_elected`."""
        self._driver = driver

    def elected(self, leader_epoch: int) -> None:
        """This node leads the quorum: start the active controller."""
        self._active_task = asyncio.get_running_loop().create_task(
            self._run_as_active(self._active_task, self._runtime)
        )

    def resigned(self) -> None:
        """This node no longer leads: waiting requests get NOT_CONTROLLER. Pass it as the driver's `on_resigned`."""
        self._ready.clear()
        if self._active_task is not None:
            self._active_task.cancel()
        if self._runtime is not None:
            self._runtime.unload()

    @property
    def is_ready(self) -> bool:
        """Whether the log is replayed and requests are served; the machine may have failed since."""
        return self._ready.is_set()

    async def wait_active(self) -> None:
        """Return once it is ready."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Stop the active controller; waiting requests get NOT_CONTROLLER."""
        if self._active_task is not None:
            self._active_task.cancel()
            await asyncio.gather(self._active_task, return_exceptions=True)
        if self._runtime is not None:
            await self._runtime.close()

    @property
    def active(self) -> bool:
        return self._ready.is_set() and self._runtime is not None and self._runtime.active

    def update_config(self, config: ControllerConfig) -> None:
        """Use other settings from the next operation on."""
        self._config = config
        if self._machine is not None:
            self._machine.topics.config = config
            self._machine.brokers.config = config
            self._machine.partitions.config = config

    async def _run_as_active(self, former: asyncio.Task[None] | None, former_runtime: Runtime[Any] | None) -> None:
        assert self._driver is not None, "attach() comes first"
        if former is not None:
            await asyncio.gather(former, return_exceptions=True)
        if former_runtime is not None:
            await former_runtime.close()
        timeline = Timeline()
        machine = ControllerMachine(
            timeline,
            self._config,
            self._schema,
            self._random,
            cluster_id=self._cluster_id,
            bootstrap=self._bootstrap,
        )
        runtime: Runtime[Any] = Runtime(
            machine,
            self._driver,
            timeline,
            not_leader=ErrorCode.NOT_CONTROLLER,
            loading=ErrorCode.NOT_CONTROLLER,
            on_failed=self._on_failed,
        )
        self._machine, self._runtime = machine, runtime
        try:
            await runtime.load()
            await runtime.run(lambda: machine.activate(self._clock.monotonic_ms()))
        except (OdradekError, ValueError, KeyError, AssertionError) as error:
            self._on_failed(error)
            return
        self._ready.set()
        self._on_active()
        await gather_cancelling(
            self._fence_expired(machine, runtime),
            self._balance_leaders(machine, runtime),
            self._remove_old_tokens(machine, runtime),
        )

    async def _fence_expired(self, machine: ControllerMachine, runtime: Runtime[Any]) -> None:
        """Check for expired broker sessions a few times per session timeout."""
        while runtime.active:
            await asyncio.sleep(machine.brokers.config.broker_session_timeout_ms / 8000)
            # Refused where the leadership is over, or while the disk of a controller that votes alone is full.
            with contextlib.suppress(ApiError):
                while await runtime.run(lambda: machine.brokers.fence_expired(self._clock.monotonic_ms())) is not None:
                    pass

    async def _balance_leaders(self, machine: ControllerMachine, runtime: Runtime[Any]) -> None:
        """Move leadership to preferred leaders, every `leader.imbalance.check.interval.seconds`."""
        while runtime.active:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)
            more = self._config.auto_leader_rebalance_enable
            with contextlib.suppress(ApiError):  # as in `_fence_expired`
                await runtime.run(machine.partitions.elect_offline_partitions)
                while more:
                    more = await runtime.run(machine.leaders.balance)

    async def _watch_settings(self, keys: set[str]) -> None:
        """Hold the elections that changed settings allow (KAFKA-12670), before the change is answered."""
        if not keys.isdisjoint(_SETTINGS_OF_ELECTIONS):
            # After a failure the leadership is over, and the next one begins with these elections; the settings are
            # committed.
            with contextlib.suppress(ApiError):
                await self._run(lambda machine: machine.partitions.elect_offline_partitions())
                await self._run(lambda machine: machine.leaders.move_leaders_off_draining())

    def _serving(self) -> tuple[ControllerMachine, Runtime[Any]]:
        if self._machine is None or self._runtime is None or not self._ready.is_set():
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        return self._machine, self._runtime

    async def _run(
        self,
        operation: Callable[[ControllerMachine], Result[Any, ResponseT] | Steps[Any, ResponseT]],
        timeout_ms: int | None = None,
    ) -> ResponseT:
        machine, runtime = self._serving()
        return await runtime.run(lambda: operation(machine), timeout_ms=timeout_ms)

    async def _mutate(
        self, operation: Callable[[Topics], Steps[Any, ResponseT]], charge: Charge, timeout_ms: int
    ) -> ResponseT:
        """Create or delete partitions that `charge` counts, unless the request fails."""
        try:
            return await self._run(lambda machine: charged(operation(machine.topics), charge), timeout_ms)
        except ApiError as error:
            # After a timeout the operation may yet take effect.
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                charge.undo()
            raise

    async def request(
        self,
        request: Message,
        response: type[M],
        api_version: int | None = None,
        principal: str = "",
        charge: Charge = free,
    ) -> M:
        """Handle a request with the method of its API; `response` is the class of that API's answer.

        Args:
            api_version: of the request, None for the newest. Only UpdateFeatures depends on it.
            principal: the client's, for delegation tokens.
            charge: counts the partitions that are created and deleted.
        Raises:
            ApiError: as the method.
        """
        if isinstance(request, UpdateFeaturesRequest) and api_version is not None:
            answer: Message = await self.update_features(request, api_version)
        elif request.KEY in TOKEN_METHODS:
            answer = await TOKEN_METHODS[request.KEY](self, request, principal)
        elif request.KEY in MUTATION_METHODS:
            answer = await MUTATION_METHODS[request.KEY](self, request, charge)
        else:
            assert request.KEY is not None, f"{type(request).__name__} is not a request"
            answer = await METHODS[request.KEY](self, request)
        assert isinstance(answer, response), f"{type(answer).__name__} answers {type(request).__name__}"
        return answer

    # One method per API. All raise ApiError NOT_CONTROLLER if this node is not the active controller, and
    # REQUEST_TIMED_OUT if a request has a timeout; further codes are in the operation's docstring.

    async def create_topics(self, request: CreateTopicsRequest, charge: Charge = free) -> CreateTopicsResponse:
        """See `Topics.create`."""
        return await self._mutate(lambda topics: topics.create(request, charge), charge, request.timeout_ms)

    async def create_partitions(
        self, request: CreatePartitionsRequest, charge: Charge = free
    ) -> CreatePartitionsResponse:
        """See `Topics.add_partitions`."""
        return await self._mutate(lambda topics: topics.add_partitions(request, charge), charge, request.timeout_ms)

    async def delete_topics(self, request: DeleteTopicsRequest, charge: Charge = free) -> DeleteTopicsResponse:
        """See `Topics.delete`."""
        return await self._mutate(lambda topics: topics.delete(request, charge), charge, request.timeout_ms)

    async def alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        """See `Configs.alter`."""
        answer = await self._run(lambda machine: machine.configs.alter(request))
        # The request also resets settings that it does not name.
        await self._watch_settings(_SETTINGS_OF_ELECTIONS)
        return answer

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """See `Configs.incremental_alter`."""
        answer = await self._run(lambda machine: machine.configs.incremental_alter(request))
        await self._watch_settings({entry.name for resource in request.resources for entry in resource.configs})
        return answer

    async def update_features(
        self, request: UpdateFeaturesRequest, api_version: int = UpdateFeaturesRequest.VERSIONS.last
    ) -> UpdateFeaturesResponse:
        """See `Features.update`.

        The quorum changes kraft.version, before everything else: if that fails nothing of the request has been done.
        """
        self._serving()  # before the node's first leadership its quorum has no kraft.version to change
        quorum = self._quorum()

        async def update(asked: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
            level = quorum.changes.kraft_version
            return await self._run(lambda machine: machine.features.update(asked, api_version, kraft_version=level))

        wanted = [each for each in request.feature_updates if each.feature == KRAFT_VERSION]
        if wanted:
            checked = await update(replace(request, validate_only=True))
            if checked.error_code:
                return checked
            await quorum.changes.upgrade(wanted[0].max_version_level, validate_only=request.validate_only)
        return await update(request)

    async def broker_registration(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """See `Brokers.register`; the broker's session begins when the registration is committed."""
        machine, runtime = self._serving()
        answer = await runtime.run(
            lambda: machine.brokers.register(request, runtime.next_offset, self._clock.monotonic_ms())
        )
        machine.brokers.registered(request.broker_id, answer.broker_epoch, self._clock.monotonic_ms())
        without_rack = machine.brokers.without_rack()
        if without_rack:
            _log.warning("racks are set for some brokers only: the others count as one rack", brokers=without_rack)
        return answer

    async def controller_registration(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        """See `register_controller`."""
        return await self._run(lambda machine: register_controller(machine.state, request))

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """See `Brokers.heartbeat`."""
        machine, runtime = self._serving()
        return await runtime.run(
            lambda: machine.brokers.heartbeat(request, runtime.next_offset, self._clock.monotonic_ms())
        )

    async def fence_dead(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose process has died. Raises as `Brokers.fence_dead`, and NOT_CONTROLLER."""
        await self._run(lambda machine: machine.brokers.fence_dead(broker_id, broker_epoch))

    def brokers_without_heartbeat(self) -> list[tuple[int, int]]:
        """Unfenced brokers that have sent no heartbeat to this controller: (id, epoch)."""
        return [] if self._machine is None else self._machine.brokers.brokers_without_heartbeat()

    async def add_raft_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        """See `VoterChanges.add`."""
        return await self._quorum().changes.add(request)

    async def remove_raft_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        """See `VoterChanges.remove`."""
        return await self._quorum().changes.remove(request)

    def _quorum(self) -> RaftDriver:
        if self._driver is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return self._driver

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """See `Brokers.unregister`."""
        return await self._run(lambda machine: machine.brokers.unregister(request.broker_id))

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """See `Brokers.allocate_producer_ids`."""
        return await self._run(lambda machine: machine.brokers.allocate_producer_ids(request))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """See `Partitions.alter_partition`."""
        return await self._run(lambda machine: machine.partitions.alter_partition(request))

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """See `Directories.assign`."""
        return await self._run(lambda machine: machine.directories.assign(request))

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """See `alter_scram_credentials`."""
        return await self._run(lambda machine: alter_scram_credentials(machine.state, request))

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """See `alter_client_quotas`."""
        return await self._run(lambda machine: alter_client_quotas(machine.state, request))

    async def create_acls(self, request: CreateAclsRequest) -> CreateAclsResponse:
        """See `Acls.create`."""
        return await self._run(lambda machine: machine.acls.create(request))

    async def delete_acls(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """See `Acls.delete`."""
        return await self._run(lambda machine: machine.acls.delete(request))

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """See `Leaders.elect_leaders`."""
        return await self._run(lambda machine: machine.leaders.elect_leaders(request), request.timeout_ms)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """See `Reassignments.alter`."""
        return await self._run(lambda machine: machine.reassignments.alter(request), request.timeout_ms)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """See `Reassignments.list_moves`."""
        return await self._run(lambda machine: machine.reassignments.list_moves(request), request.timeout_ms)

    async def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """See `RaftDriver.describe`: always the one partition of the metadata log, whatever the request names."""
        if self._driver is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return self._driver.describe()

    async def create_delegation_token(
        self, request: CreateDelegationTokenRequest, principal: str
    ) -> CreateDelegationTokenResponse:
        """See `DelegationTokens.create`."""
        token_id = str(UUID(int=self._random.getrandbits(128), version=4))
        return await self._run(lambda machine: self._tokens(machine).create(request, principal, token_id, self._now()))

    async def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, principal: str
    ) -> RenewDelegationTokenResponse:
        """See `DelegationTokens.renew`."""
        return await self._run(lambda machine: self._tokens(machine).renew(request, principal, self._now()))

    async def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, principal: str
    ) -> ExpireDelegationTokenResponse:
        """See `DelegationTokens.expire`."""
        return await self._run(lambda machine: self._tokens(machine).expire(request, principal, self._now()))

    def _tokens(self, machine: ControllerMachine) -> DelegationTokens:
        return DelegationTokens(machine.state, self._token_config)

    def _now(self) -> int:
        return self._clock.now_ms()

    async def _remove_old_tokens(self, machine: ControllerMachine, runtime: Runtime[Any]) -> None:
        """Periodically remove expired delegation tokens."""
        while runtime.active and self._token_config.secret_key:
            await asyncio.sleep(self._token_config.check_interval_ms / 1000)
            with contextlib.suppress(ApiError):  # as in `_fence_expired`
                await runtime.run(lambda: self._tokens(machine).remove_expired(self._now()))


# The method of each API.
METHODS: dict[int, Callable[[ControllerService, Any], Awaitable[Message]]] = {
    ApiKey.CREATE_ACLS: ControllerService.create_acls,
    ApiKey.DELETE_ACLS: ControllerService.delete_acls,
    ApiKey.ALTER_CONFIGS: ControllerService.alter_configs,
    ApiKey.ELECT_LEADERS: ControllerService.elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ControllerService.incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ControllerService.alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ControllerService.list_partition_reassignments,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ControllerService.alter_user_scram_credentials,
    ApiKey.ALTER_CLIENT_QUOTAS: ControllerService.alter_client_quotas,
    ApiKey.DESCRIBE_QUORUM: ControllerService.describe_quorum,
    ApiKey.ALTER_PARTITION: ControllerService.alter_partition,
    ApiKey.UPDATE_FEATURES: ControllerService.update_features,
    ApiKey.BROKER_REGISTRATION: ControllerService.broker_registration,
    ApiKey.BROKER_HEARTBEAT: ControllerService.broker_heartbeat,
    ApiKey.UNREGISTER_BROKER: ControllerService.unregister_broker,
    ApiKey.ALLOCATE_PRODUCER_IDS: ControllerService.allocate_producer_ids,
    ApiKey.CONTROLLER_REGISTRATION: ControllerService.controller_registration,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ControllerService.assign_replicas_to_dirs,
    ApiKey.ADD_RAFT_VOTER: ControllerService.add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: ControllerService.remove_raft_voter,
}
# The methods that a mutation quota counts.
MUTATION_METHODS: dict[int | None, Callable[[ControllerService, Any, Charge], Awaitable[Message]]] = {
    ApiKey.CREATE_TOPICS: ControllerService.create_topics,
    ApiKey.DELETE_TOPICS: ControllerService.delete_topics,
    ApiKey.CREATE_PARTITIONS: ControllerService.create_partitions,
}
# The methods that need the client's principal.
TOKEN_METHODS: dict[int | None, Callable[[ControllerService, Any, str], Awaitable[Message]]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: ControllerService.create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: ControllerService.renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: ControllerService.expire_delegation_token,
}
