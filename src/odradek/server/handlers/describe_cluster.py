"""DescribeCluster: key 60, versions 0-2. The nodes of the cluster, for admin clients (KIP-700).

Versions: 1 endpoint type, brokers (1) or controllers (2), which must be that of the listener (KIP-919); 2 fenced
brokers on request (KIP-1073).

Fields of our own (`protocol.extras`) return the machines of brokers and the state of links, on request.

The endpoints of controllers are those of their registrations; any controller can respond.

Permissions: Alter on the cluster for requests to a controller. The authorized operations need Describe on the cluster,
links need DescribeConfigs on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation
from odradek.protocol.extras import asks_for_hosts, asks_for_links, broker_host_fields, links_field
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from odradek.server.authorization import check_cluster, cluster_operations, may_on_cluster
from odradek.server.context import RequestContext
from odradek.server.handlers.metadata import advertised_controller
from odradek.server.handlers.shared import address_of

BROKERS, CONTROLLERS = 1, 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Brokers, or controllers, with the addresses of this listener."""
    on_controller = context.connection.listener.scope == "controller"
    if on_controller:
        check_cluster(context, AclOperation.ALTER)
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} does not exist"
        return DescribeClusterResponse(error_code=code, error_message=text)
    if (request.endpoint_type == CONTROLLERS) != on_controller:
        # Version 0 came before that error.
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if context.api_version else ErrorCode.INVALID_REQUEST
        text = "this listener is of the other kind: brokers or controllers"
        return DescribeClusterResponse(error_code=code, error_message=text)
    image = context.broker.image
    response = DescribeClusterResponse(endpoint_type=request.endpoint_type, cluster_id=context.broker.cluster_id)
    if on_controller:
        response.controller_id = image.controller_id
        response.brokers = list(_controllers(context))
    else:
        response.controller_id = advertised_controller(context, image)
        with_hosts = asks_for_hosts(request)
        response.brokers = list(_brokers(context, with_fenced=request.include_fenced_brokers, with_hosts=with_hosts))
        if asks_for_links(request) and may_on_cluster(context, AclOperation.DESCRIBE_CONFIGS):
            response.unknown_tagged_fields = (links_field([each.shown() for each in context.broker.link_measures()]),)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _controllers(context: RequestContext) -> Iterator[DescribeClusterBroker]:
    for controller_id, controller in sorted(context.broker.image.controllers.items()):
        for endpoint in controller.endpoints:
            if endpoint.name == context.listener_name:
                yield DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port)


def _brokers(context: RequestContext, *, with_fenced: bool, with_hosts: bool) -> Iterator[DescribeClusterBroker]:
    """The brokers that have an address on this listener."""
    for broker_id, broker in sorted(context.broker.image.brokers.items()):
        address = address_of(context, broker)
        if address is not None and (with_fenced or not broker.fenced):
            host, port = address
            yield DescribeClusterBroker(
                broker_id=broker_id,
                host=host,
                port=port,
                rack=broker.rack,
                is_fenced=broker.fenced,
                unknown_tagged_fields=broker_host_fields(broker.host) if with_hosts else (),
            )
