"""Metadata: key 3, versions 0-13.

Behaviour: brokers, topics and leaders as of one image. Null topics means all, an empty list none (version 0: empty
means all). An unknown topic that is requested by name is created with num.partitions and default.replication.factor
if auto.create.topics.enable and the request allow it, and the response waits until this broker's image has it: after a
retriable error clients would wait longer. Only brokers that are unfenced, or were until recently, are returned. If a
leader may have failed, the response waits for a short time (see `server.lifecycle.suspected_brokers`).

A broker that is isolated from the quorum and from its followers returns no metadata of former leaders.

Versions: 1 controller, rack; 2 cluster id; 4 allow_auto_topic_creation; 5 offline replicas; 7 leader epochs; 8-10
authorized operations of the cluster; 9 flexible; 10 topic ids; 12 topics may be requested by id, all or none of
them; 13 a top-level error.

Permissions: Describe on a topic; a list of all topics omits those without it. Automatic creation of a topic
needs Create on it or on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger
from odradek.common.steps import all_steps
from odradek.common.topic_names import INTERNAL_TOPICS, METADATA_TOPIC, is_legal_topic_name
from odradek.common.turns import Turns, in_turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.model import NO_LEADER, PartitionImage, TopicImage
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.server.authorization import (
    TOPIC_OPERATIONS,
    allowed_operations,
    cluster_operations,
    is_listed,
    may_describe,
    may_here_or_everywhere,
)
from odradek.server.handlers.shared import NO_OPERATIONS, address_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable, Iterator
    from typing import Any

    from odradek.metadata.image import MetadataImage
    from odradek.server.context import RequestContext

_FIRST_BY_ID = 12
TOPICS_PER_TURN = 500
NAMES_PER_STEP = 5000
_log = get_logger("server.metadata")


class _RequestedTopics(NamedTuple):
    """The topics of a request without duplicates.

    Attributes:
        misplaced: it has a null name or an id, in a version that has the field but does not support it.
    """

    ids: dict[UUID, None]
    names: dict[str, None]
    misplaced: bool


def handle(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Respond from the image; a coroutine if topics must be created, or are many."""
    image = context.broker.image
    _check_not_isolated(context, request)
    if len(image.topics_by_name if request.topics is None else request.topics) > TOPICS_PER_TURN:
        return _respond_in_turns(context, request)
    requested = all_steps(_requested_topics(request, context.api_version))
    missing = (
        [name for name in requested.names if _is_missing(image, name)] if _creates(context, request, requested) else []
    )
    if missing:
        return _create_first(context, request, requested, missing)
    if context.broker.suspected_brokers.any_suspected:
        suspected = context.broker.suspected_brokers.suspected() & _leaders(image, request, requested)
        if suspected:
            return _respond_when_resolved(context, request, requested, suspected)
    return _respond(context, request, requested, {})


def _check_not_isolated(context: RequestContext, request: MetadataRequest) -> None:
    """Raise REBOOTSTRAP_REQUIRED on an isolated leader: its metadata names former leaders, and clients would return.
    Before version 13 the connection is closed, so that the client tries another broker."""
    names = context.broker.replicas.isolation.topics
    if not names:
        return
    by_id = context.broker.image.topics_by_id
    requested = [
        by_id[topic.topic_id].name if topic.topic_id in by_id else topic.name for topic in request.topics or ()
    ]
    is_isolated = names if request.topics is None else names.intersection(requested)
    if any(is_listed(context, name) for name in is_isolated):
        raise ApiError(ErrorCode.REBOOTSTRAP_REQUIRED, "this broker is isolated: its metadata is outdated")


def _requested_topics(request: MetadataRequest, version: int) -> Generator[None, None, _RequestedTopics]:
    ids: dict[UUID, None] = {}
    names: dict[str, None] = {}
    misplaced = False
    for number, topic in enumerate(request.topics or (), 1):
        if topic.topic_id.int:
            ids[topic.topic_id] = None
        if topic.name is not None:
            names[topic.name] = None
        misplaced = misplaced or topic.name is None or bool(topic.topic_id.int)
        if number % NAMES_PER_STEP == 0:
            yield
    return _RequestedTopics(ids, names, misplaced and version < _FIRST_BY_ID)


def _creates(context: RequestContext, request: MetadataRequest, requested: _RequestedTopics) -> bool:
    if not requested.names or requested.ids or not context.broker.topic_creator.on_first_use:
        return False
    return context.api_version < 4 or request.allow_auto_topic_creation


def _may_create(context: RequestContext, name: str) -> bool:
    return may_here_or_everywhere(context, AclOperation.CREATE, AclResourceType.TOPIC, name)


def _is_missing(image: MetadataImage, name: str) -> bool:
    """Whether the topic does not exist, and its name is valid."""
    return name not in image.topics_by_name and name != METADATA_TOPIC and is_legal_topic_name(name)


def _leaders(image: MetadataImage, request: MetadataRequest, requested: _RequestedTopics) -> set[int]:
    """The leaders of the requested topics."""
    if request.topics is None:
        topics = list(image.topics_by_name.values())
    else:
        known = [image.topics_by_name.get(name) for name in requested.names]
        known += [image.topics_by_id.get(topic_id) for topic_id in requested.ids]
        topics = [topic for topic in known if topic is not None]
    return {partition.leader for topic in topics for partition in topic.partitions.values()}


async def _respond_when_resolved(
    context: RequestContext, request: MetadataRequest, requested: _RequestedTopics, suspected: set[int]
) -> MetadataResponse:
    await context.broker.suspected_brokers.wait_resolved(suspected)
    return _respond(context, request, requested, {})


async def _create_first(
    context: RequestContext, request: MetadataRequest, requested: _RequestedTopics, names: list[str]
) -> MetadataResponse:
    errors = await _create(context, names)
    return _respond(context, request, requested, errors)


async def _create(context: RequestContext, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create topics; returns the errors."""
    errors: dict[str, ErrorCode] = {}
    for name in names:
        if not is_listed(context, name):
            continue
        if not _may_create(context, name):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        try:
            await context.broker.topic_creator.create(name, context)
        except ApiError as error:
            if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # until the quota allows it; the client retries
            elif error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                errors[name] = error.code
                _log.warning("auto-creation refused", alike=error.code.name, topic=name, error=error)
    return errors


async def _respond_in_turns(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """As `handle`, for thousands of topics: other requests are handled in between."""
    requested = await in_turns(_requested_topics(request, context.api_version))
    turns = Turns(TOPICS_PER_TURN)
    missing: list[str] = []
    if _creates(context, request, requested):
        for name in requested.names:
            if _is_missing(context.broker.image, name):
                missing.append(name)
            await turns.spend()
    errors = await _create(context, missing)
    if not missing and context.broker.suspected_brokers.any_suspected:
        await context.broker.suspected_brokers.wait_resolved(_leaders(context.broker.image, request, requested))
    response, topics = _begin_response(context, request, requested, errors)
    for answer in topics:
        response.topics.append(answer)
        await turns.spend(1 + len(answer.partitions))
    return response


def _respond(
    context: RequestContext, request: MetadataRequest, requested: _RequestedTopics, errors: dict[str, ErrorCode]
) -> MetadataResponse:
    response, topics = _begin_response(context, request, requested, errors)
    response.topics.extend(topics)
    return response


def _begin_response(
    context: RequestContext, request: MetadataRequest, requested: _RequestedTopics, errors: dict[str, ErrorCode]
) -> tuple[MetadataResponse, Iterator[MetadataResponseTopic]]:
    """The response without topics, and an iterator of its topics; both from one image."""
    image = context.broker.image
    response = MetadataResponse(
        cluster_id=context.broker.cluster_id, controller_id=advertised_controller(context, image)
    )
    for _, broker in sorted(image.brokers.items()):
        is_advertised = not broker.fenced or context.broker.suspected_brokers.is_advertised(broker.broker_id)
        address = address_of(context, broker) if is_advertised else None
        if address is not None:
            response.brokers.append(
                MetadataResponseBroker(node_id=broker.broker_id, host=address[0], port=address[1], rack=broker.rack)
            )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response, _topics(context, request, requested, image, errors)


def _topics(
    context: RequestContext,
    request: MetadataRequest,
    requested: _RequestedTopics,
    image: MetadataImage,
    errors: dict[str, ErrorCode],
) -> Iterator[MetadataResponseTopic]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = (topic for topic in image.topics_by_name.values() if is_listed(context, topic.name))
        return (_topic(image, topic, operations, context) for topic in topics)
    if requested.misplaced:
        code = ErrorCode.INVALID_REQUEST
        return (
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics
        )
    if requested.ids:
        return (_by_id(image, topic_id, operations, context) for topic_id in requested.ids)
    return (_by_name(image, name, operations, context, errors) for name in requested.names)


def advertised_controller(context: RequestContext, image: MetadataImage) -> int:
    """A broker that forwards to the controller: clients never talk to the controller itself (KIP-590).

    Kafka names a live broker at random; ourselves is one.
    """
    own = image.brokers.get(context.broker.node_id)
    if own is not None and not own.fenced:
        return own.broker_id
    return next((broker.broker_id for broker in image.brokers.values() if not broker.fenced), -1)


def _by_id(image: MetadataImage, topic_id: UUID, operations: int, context: RequestContext) -> MetadataResponseTopic:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=topic_id, name=None)
    if not may_describe(context, topic.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id=topic_id, name=None)
    return _topic(image, topic, operations, context)


def _by_name(
    image: MetadataImage, name: str, operations: int, context: RequestContext, errors: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    if not may_describe(context, name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    topic = image.topics_by_name.get(name)
    if topic is not None:
        return _topic(image, topic, operations, context)
    if not is_legal_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code is ErrorCode.REQUEST_TIMED_OUT:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
    if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        answer.topic_authorized_operations = _operations(context, name, operations)
    return answer


def _operations(context: RequestContext, name: str, operations: int) -> int:
    """The authorized operations of the client on a topic, if it requested them."""
    if operations == NO_OPERATIONS:
        return operations
    return allowed_operations(context, AclResourceType.TOPIC, name, operations)


def _topic(image: MetadataImage, topic: TopicImage, operations: int, context: RequestContext) -> MetadataResponseTopic:
    # Thousands of partitions share a few brokers and directories: cache the state of these.
    leaders: dict[int, ErrorCode] = {}
    online: dict[tuple[int, UUID], bool] = {}
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=_operations(context, topic.name, operations),
        partitions=[
            _partition(image, partition_id, partition, context.listener_name, leaders, online)
            for partition_id, partition in sorted(topic.partitions.items())
        ],
    )


def _partition(
    image: MetadataImage,
    partition_id: int,
    partition: PartitionImage,
    listener_name: str,
    leaders: dict[int, ErrorCode],
    online: dict[tuple[int, UUID], bool],
) -> MetadataResponsePartition:
    """`leaders` and `online` are caches of the state of brokers and directories."""
    code = leaders.get(partition.leader)
    if code is None:
        code = leaders[partition.leader] = _leader_error(image, partition.leader, listener_name)
    offline = []
    for replica in partition.replicas:
        place = replica, partition.directory(replica)
        is_online = online.get(place)
        if is_online is None:
            is_online = online[place] = holds_online(image, partition, replica)
        if not is_online:
            offline.append(replica)
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition_id,
        leader_id=NO_LEADER if code else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline,
    )


def _leader_error(image: MetadataImage, leader: int, listener_name: str) -> ErrorCode:
    broker = image.brokers.get(leader)
    if leader == NO_LEADER or broker is None or broker.fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if broker.endpoint(listener_name) is not None else ErrorCode.LISTENER_NOT_FOUND


def holds_online(image: MetadataImage, partition: PartitionImage, broker_id: int) -> bool:
    """Whether a replica's broker is not fenced, and its directory is online (KIP-112, KIP-858)."""
    return is_online(image, broker_id) and image.brokers[broker_id].has_online(partition.directory(broker_id))


def is_online(image: MetadataImage, broker_id: int) -> bool:
    """Whether a broker is registered and not fenced."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced
