"""The controller, as every part of a node asks for it: here where this node is the active one, over the wire elsewhere.

It has the methods of `ControllerService`, one per API. Where this node leads, they are its own service's. Elsewhere a
client's request goes on in an Envelope with the client's name and address (KIP-590), and a request of the broker itself
as it is. NOT_CONTROLLER, a lost connection and a leader that is not elected yet are waited out, and the request is sent
again, until the time is up: an administrator does not notice that the controller moved.

A request that came in on the controller's own listener is never passed on: its sender looks for the active
controller itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.client.controller_channel import RETRY_S, ControllerChannel
from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Clock
from odradek.controller.service import ControllerService
from odradek.protocol.declare import Message
from odradek.protocol.messages import describe_quorum_request
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.alter_configs_response import AlterConfigsResponse
from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from odradek.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from odradek.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.server.envelope import unwrap_answer, wrap
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.server.context import RequestContext

M = TypeVar("M", bound=Message)
Method = Callable[[ControllerService], Awaitable[Any]]

# As long as Kafka's brokers try to forward a request before they give up.
FORWARDING_TIMEOUT_MS = 60_000
_RETRIED = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@config
class ChannelConfig:
    """How long a node waits for the controller's host."""

    connect_timeout_ms: int = option(
        "socket.connection.setup.timeout.ms",
        default=10_000,
        unit="ms",
        doc="Time-out of a connection attempt to the controller.",
    )
    answer_timeout_ms: int = option(
        "controller.socket.timeout.ms",
        default=30_000,
        unit="ms",
        doc="Time-out of requests to the controller.",
    )


class ControllerGateway:
    """The way to the active controller."""

    def __init__(
        self,
        service: ControllerService | None,
        own: ControllerChannel,
        forwarding: ControllerChannel,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        """
        Args:
            service: of this node, where it is a controller.
            own, forwarding: for what this node asks, and for what its clients asked.
            leads: whether this node leads the quorum, ready to serve or not.
        """
        self._service = service
        self._own = own
        self._forwarding = forwarding
        self._clock = clock
        self._leads = leads

    @property
    def service(self) -> ControllerService | None:
        """This node's own controller, active or not; None on a node that is only a broker."""
        return self._service

    def leader_changed(self) -> None:
        """The quorum has another leader."""
        self._own.leader_changed()
        self._forwarding.leader_changed()

    async def close(self) -> None:
        """Send nothing any more; waiting requests get that there is no controller."""
        await self._own.close()
        await self._forwarding.close()

    async def _ask(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None,
        own: Method,
        *,
        timeout_ms: int = FORWARDING_TIMEOUT_MS,
    ) -> M:
        """
        Args:
            context: of the client whose request it is; None for what this node itself asks.
            own: the same request to the service of this node.
        Raises:
            ApiError: as the service refuses it, or REQUEST_TIMED_OUT where no active controller was found in time.
        """
        if context is not None and context.on_controller_listener:
            return cast(M, await own(self._own_service()))
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            await buggify("server: before the controller is asked")
            try:
                if self._leads():
                    return cast(M, await own(self._own_service()))
                left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
                if context is None:
                    return _refusals_raised(await self._own.ask(request, response, timeout_ms=left_ms))
                return await self._forward(request, response, context, left_ms)
            except ApiError as error:
                if error.code not in _RETRIED:
                    raise
                if self._own.closed or self._clock.monotonic_ms() >= deadline_ms:
                    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, error.message) from None
            await self._pause()

    async def _pause(self) -> None:
        """Until something may have changed: the leader, or that we who lead are ready to serve; at most a moment."""
        if self._service is None or not self._leads():
            await self._own.pause()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await self._service.wait_active()

    async def _forward(self, request: Message, response: type[M], context: RequestContext, timeout_ms: int) -> M:
        sealed = wrap(request, context)
        answer = await self._forwarding.ask(sealed, EnvelopeResponse, timeout_ms=timeout_ms)
        return unwrap_answer(answer, response, context)

    def _own_service(self) -> ControllerService:
        if self._service is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node is no controller")
        return self._service

    # What a node says of itself

    async def broker_registration(
        self, request: BrokerRegistrationRequest, context: RequestContext | None = None
    ) -> BrokerRegistrationResponse:
        """See `ControllerService.broker_registration`."""
        return await self._ask(
            request, BrokerRegistrationResponse, context, lambda service: service.broker_registration(request, context)
        )

    async def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, context: RequestContext | None = None
    ) -> BrokerHeartbeatResponse:
        """See `ControllerService.broker_heartbeat`."""
        return await self._ask(
            request, BrokerHeartbeatResponse, context, lambda service: service.broker_heartbeat(request, context)
        )

    async def controller_registration(
        self, request: ControllerRegistrationRequest, context: RequestContext | None = None
    ) -> ControllerRegistrationResponse:
        """See `ControllerService.controller_registration`."""
        return await self._ask(
            request,
            ControllerRegistrationResponse,
            context,
            lambda service: service.controller_registration(request, context),
        )

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, context: RequestContext | None = None
    ) -> AllocateProducerIdsResponse:
        """See `ControllerService.allocate_producer_ids`."""
        return await self._ask(
            request,
            AllocateProducerIdsResponse,
            context,
            lambda service: service.allocate_producer_ids(request, context),
        )

    async def alter_partition(
        self, request: AlterPartitionRequest, context: RequestContext | None = None
    ) -> AlterPartitionResponse:
        """See `ControllerService.alter_partition`."""
        return await self._ask(
            request, AlterPartitionResponse, context, lambda service: service.alter_partition(request, context)
        )

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, context: RequestContext | None = None
    ) -> AssignReplicasToDirsResponse:
        """See `ControllerService.assign_replicas_to_dirs`."""
        return await self._ask(
            request,
            AssignReplicasToDirsResponse,
            context,
            lambda service: service.assign_replicas_to_dirs(request, context),
        )

    # What administrators ask

    async def create_topics(
        self, request: CreateTopicsRequest, context: RequestContext | None = None
    ) -> CreateTopicsResponse:
        """See `ControllerService.create_topics`."""
        return await self._ask(
            request, CreateTopicsResponse, context, lambda service: service.create_topics(request, context)
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, context: RequestContext | None = None
    ) -> CreatePartitionsResponse:
        """See `ControllerService.create_partitions`."""
        return await self._ask(
            request, CreatePartitionsResponse, context, lambda service: service.create_partitions(request, context)
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, context: RequestContext | None = None
    ) -> DeleteTopicsResponse:
        """See `ControllerService.delete_topics`."""
        return await self._ask(
            request, DeleteTopicsResponse, context, lambda service: service.delete_topics(request, context)
        )

    async def alter_configs(
        self, request: AlterConfigsRequest, context: RequestContext | None = None
    ) -> AlterConfigsResponse:
        """See `ControllerService.alter_configs`."""
        return await self._ask(
            request, AlterConfigsResponse, context, lambda service: service.alter_configs(request, context)
        )

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext | None = None
    ) -> IncrementalAlterConfigsResponse:
        """See `ControllerService.incremental_alter_configs`."""
        return await self._ask(
            request,
            IncrementalAlterConfigsResponse,
            context,
            lambda service: service.incremental_alter_configs(request, context),
        )

    async def update_features(
        self, request: UpdateFeaturesRequest, context: RequestContext | None = None
    ) -> UpdateFeaturesResponse:
        """See `ControllerService.update_features`."""
        return await self._ask(
            request, UpdateFeaturesResponse, context, lambda service: service.update_features(request, context)
        )

    async def add_raft_voter(
        self, request: AddRaftVoterRequest, context: RequestContext | None = None
    ) -> AddRaftVoterResponse:
        """See `VoterChanges.add`."""
        timeout_ms = max(FORWARDING_TIMEOUT_MS, request.timeout_ms)
        return await self._ask(
            request,
            AddRaftVoterResponse,
            context,
            lambda service: service.add_raft_voter(request, context),
            timeout_ms=timeout_ms,
        )

    async def remove_raft_voter(
        self, request: RemoveRaftVoterRequest, context: RequestContext | None = None
    ) -> RemoveRaftVoterResponse:
        """See `VoterChanges.remove`."""
        return await self._ask(
            request, RemoveRaftVoterResponse, context, lambda service: service.remove_raft_voter(request, context)
        )

    async def unregister_broker(
        self, request: UnregisterBrokerRequest, context: RequestContext | None = None
    ) -> UnregisterBrokerResponse:
        """See `ControllerService.unregister_broker`."""
        return await self._ask(
            request, UnregisterBrokerResponse, context, lambda service: service.unregister_broker(request, context)
        )

    async def elect_leaders(
        self, request: ElectLeadersRequest, context: RequestContext | None = None
    ) -> ElectLeadersResponse:
        """See `ControllerService.elect_leaders`."""
        return await self._ask(
            request, ElectLeadersResponse, context, lambda service: service.elect_leaders(request, context)
        )

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext | None = None
    ) -> AlterPartitionReassignmentsResponse:
        """See `ControllerService.alter_partition_reassignments`."""
        return await self._ask(
            request,
            AlterPartitionReassignmentsResponse,
            context,
            lambda service: service.alter_partition_reassignments(request, context),
        )

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext | None = None
    ) -> ListPartitionReassignmentsResponse:
        """See `ControllerService.list_partition_reassignments`."""
        return await self._ask(
            request,
            ListPartitionReassignmentsResponse,
            context,
            lambda service: service.list_partition_reassignments(request, context),
        )

    async def describe_quorum(self, context: RequestContext | None = None) -> DescribeQuorumResponse:
        """See `ControllerService.describe_quorum`."""
        topic = describe_quorum_request.TopicData(
            topic_name="__cluster_metadata", partitions=[describe_quorum_request.PartitionData(partition_index=0)]
        )
        return await self._ask(
            describe_quorum_request.DescribeQuorumRequest(topics=[topic]),
            DescribeQuorumResponse,
            context,
            lambda service: service.describe_quorum(context),
        )


def _refusals_raised(answer: M) -> M:
    """An answer over the wire as the service itself gives it: what is refused as a whole is raised."""
    code = getattr(answer, "error_code", 0)
    if code:
        raise ApiError(_code(code), getattr(answer, "error_message", None) or "")
    return answer


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
