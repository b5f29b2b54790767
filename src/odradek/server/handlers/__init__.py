"""THE table of handlers: every API that this node answers, in which versions, and on which listeners.

ApiVersions is computed from it. To add an API: one file beside this one, one row here, one row in docs/kips.md, one
test.
"""

from __future__ import annotations

from odradek.protocol.apis import ApiKey
from odradek.server.dispatch import Handler
from odradek.server.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    update_features,
)

_BROKER = frozenset({"broker"})
_BOTH = frozenset({"broker", "controller"})

HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.PRODUCE, produce.handle, 3, 13, _BROKER, advertised_min=0),
    Handler(ApiKey.FETCH, fetch.handle, 4, 18, _BROKER),
    Handler(ApiKey.LIST_OFFSETS, list_offsets.handle, 1, 11, _BROKER),
    Handler(ApiKey.METADATA, metadata.handle, 0, 13, _BROKER),
    Handler(ApiKey.OFFSET_COMMIT, offset_commit.handle, 2, 10, _BROKER),
    Handler(ApiKey.OFFSET_FETCH, offset_fetch.handle, 1, 10, _BROKER),
    Handler(ApiKey.FIND_COORDINATOR, find_coordinator.handle, 0, 6, _BROKER),
    Handler(ApiKey.JOIN_GROUP, join_group.handle, 0, 9, _BROKER),
    Handler(ApiKey.HEARTBEAT, heartbeat.handle, 0, 4, _BROKER),
    Handler(ApiKey.LEAVE_GROUP, leave_group.handle, 0, 5, _BROKER),
    Handler(ApiKey.SYNC_GROUP, sync_group.handle, 0, 5, _BROKER),
    Handler(ApiKey.DESCRIBE_GROUPS, describe_groups.handle, 0, 6, _BROKER),
    Handler(ApiKey.LIST_GROUPS, list_groups.handle, 0, 5, _BROKER),
    Handler(ApiKey.API_VERSIONS, api_versions.handle, 0, 5, _BOTH),
    Handler(ApiKey.CREATE_TOPICS, create_topics.handle, 2, 7, _BOTH),
    Handler(ApiKey.DELETE_TOPICS, delete_topics.handle, 1, 6, _BOTH),
    Handler(ApiKey.DELETE_RECORDS, delete_records.handle, 0, 2, _BROKER),
    Handler(ApiKey.INIT_PRODUCER_ID, init_producer_id.handle, 0, 5, _BROKER),
    Handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle, 2, 4, _BROKER),
    Handler(ApiKey.DESCRIBE_CONFIGS, describe_configs.handle, 1, 4, _BOTH),
    Handler(ApiKey.ALTER_CONFIGS, alter_configs.handle, 0, 2, _BOTH),
    Handler(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.handle, 1, 5, _BROKER),
    Handler(ApiKey.CREATE_PARTITIONS, create_partitions.handle, 0, 3, _BOTH),
    Handler(ApiKey.DELETE_GROUPS, delete_groups.handle, 0, 3, _BROKER),
    Handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle, 0, 1, _BOTH),
    Handler(ApiKey.OFFSET_DELETE, offset_delete.handle, 0, 0, _BROKER),
    Handler(ApiKey.DESCRIBE_QUORUM, describe_quorum.handle, 0, 2, _BOTH),
    Handler(ApiKey.UPDATE_FEATURES, update_features.handle, 0, 2, _BOTH),
    Handler(ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle, 0, 2, _BOTH),
    Handler(ApiKey.DESCRIBE_PRODUCERS, describe_producers.handle, 0, 0, _BROKER),
    Handler(ApiKey.LIST_CONFIG_RESOURCES, list_config_resources.handle, 0, 1, _BROKER),
    Handler(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle, 0, 0, _BROKER),
)
