"""InitProducerId: key 22, versions 0-5, and 6 where two-phase commit is enabled.

Behaviour: an idempotent producer gets a fresh id with epoch 0, from the broker's block. A transactional one gets the id
of its transactional id with a new epoch: all earlier producers are fenced, and their open transaction is aborted first
(CONCURRENT_TRANSACTIONS: retry).

Versions: 2 flexible; 3 a producer may name its id and epoch to have the epoch bumped (KIP-360): an idempotent one gets
a new id instead, as Kafka does; 4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 5 TRANSACTION_ABORTABLE; 6
two-phase commit (KIP-939): transactions that do not time out, and a producer that keeps an open one to end it. Version
6 is unstable in Kafka 4.4, so it is served only with `transaction.two.phase.commit.enable`.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.transaction.machine import NO_IDENTITY, Identity, Kept
from odradek.coordinator.transaction.service import Client
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.server.authorization import check, check_cluster
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import fenced_code

FIRST_FENCED_VERSION = 4
TWO_PHASE_VERSION = 6


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A producer id and an epoch of its own."""
    try:
        client, writer = await _identity(context, request)
    except ApiError as error:
        code = fenced_code(error.code, context.api_version, FIRST_FENCED_VERSION)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    answer = InitProducerIdResponse(producer_id=client[0], producer_epoch=client[1])
    answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch = writer
    return answer


async def _identity(context: RequestContext, request: InitProducerIdRequest) -> Kept:
    transactional_id = request.transactional_id
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch go together")
    _check(context, transactional_id)
    if transactional_id is None:
        return Kept((await context.broker.producer_ids.next_id(), 0), NO_IDENTITY)
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    if request.enable2_pc:
        check(context, AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    coordinator, timeout_ms = context.broker.transactions, request.transaction_timeout_ms
    by = Client(context.client_id, f"/{context.client_address}")
    if request.keep_prepared_txn:
        kept: Kept = await coordinator.keep_prepared(
            transactional_id, timeout_ms, expected, two_phase=request.enable2_pc, by=by
        )
        return kept
    identity: Identity = await coordinator.init_producer_id(
        transactional_id, timeout_ms, expected, two_phase=request.enable2_pc, by=by
    )
    return Kept(identity, NO_IDENTITY)


def _check(context: RequestContext, transactional_id: str | None) -> None:
    """Whether the client may write at all: with its transactional id, or to some topic (KIP-679)."""
    authorizer = context.broker.authorizer
    if transactional_id is not None:
        check(context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    elif authorizer is not None and not context.is_allowed(
        AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME
    ):
        may = authorizer.authorize_by_type(
            context.principal, context.client_address, AclOperation.WRITE, AclResourceType.TOPIC
        )
        if not may:
            check_cluster(context, AclOperation.IDEMPOTENT_WRITE)
