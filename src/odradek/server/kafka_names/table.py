"""The table: each metric of Kafka by the name that the usual rules of the JMX exporter give it, and what it is here.

A name is made of an MBean's: `kafka.server:type=ReplicaManager,name=LeaderCount` is
`kafka_server_replicamanager_leadercount`; `PerSec` at the end becomes `_total`, `Percent` `_percent`, and what is left
of an object name becomes labels. Metrics of groups and topics are named as kafka_exporter has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.server.kafka_names import readings
from odradek.server.kafka_names.readings import (
    Reading,
    all_and_by_topic,
    computed,
    constant,
    disk_bytes,
    of_roles,
    offset_of_led,
    per_commit,
    per_topic_of_group,
    quantiles_of,
    same,
)

COUNTER, GAUGE, UNTYPED = "counter", "gauge", "untyped"
EXPORTER = "kafka_exporter"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric.

    Attributes:
        name: as a scrape has it.
        bean: Kafka's MBean, with its attribute where that is not Value or Count.
        note: how it differs from Kafka's, where it does.
    """

    name: str
    kind: str
    bean: str
    reading: Reading
    note: str = ""

    @property
    def family_name(self) -> str:
        """Without the `_total` that counters get."""
        return self.name.removesuffix("_total") if self.kind == COUNTER else self.name


def _controller(reading: Reading) -> Reading:
    return of_roles(reading, "controller")


def _broker(reading: Reading) -> Reading:
    return of_roles(reading, "broker")


_PARTITION = {"topic": "topic", "partition": "partition"}
_PROCESSOR = {"networkProcessor": "0"}
_ALL_FETCHES = "Fetches of consumers and of followers together, as Fetch: there is no FetchConsumer, FetchFollower."
_LOOP = "All requests share one event loop: both are the part of the last minute in which it was idle."

_REPLICAS = (
    Row(
        "kafka_server_replicamanager_leadercount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=LeaderCount",
        _broker(same("odradek_partitions_led")),
    ),
    Row(
        "kafka_server_replicamanager_partitioncount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=PartitionCount",
        _broker(same("odradek_partitions")),
    ),
    Row(
        "kafka_server_replicamanager_underreplicatedpartitions",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
        _broker(same("odradek_partitions_under_replicated")),
    ),
    Row(
        "kafka_server_replicamanager_underminisrpartitioncount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
        _broker(same("odradek_partitions_under_min_isr")),
    ),
    Row(
        "kafka_server_replicamanager_atminisrpartitioncount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
        _broker(same("odradek_partitions_at_min_isr")),
    ),
    Row(
        "kafka_server_replicamanager_offlinereplicacount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
        _broker(same("odradek_partitions_offline")),
    ),
    Row(
        "kafka_server_replicamanager_reassigningpartitions",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=ReassigningPartitions",
        _broker(computed(readings.reassigning)),
    ),
    Row(
        "kafka_server_replicamanager_isrshrinks_total",
        COUNTER,
        "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
        _broker(same("odradek_isr_shrinks")),
    ),
    Row(
        "kafka_server_replicamanager_isrexpands_total",
        COUNTER,
        "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
        _broker(same("odradek_isr_expansions")),
    ),
    Row(
        "kafka_server_replicamanager_produceridcount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        _broker(same("odradek_producer_ids")),
        "Of partitions led here.",
    ),
    Row(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        GAUGE,
        "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
        _broker(same("odradek_partitions_with_late_transactions")),
    ),
    Row(
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        _broker(computed(readings.max_lag, "odradek_replica_max_lag_records", "clientId")),
    ),
    Row(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Produce",
        _broker(
            computed(readings.waiting, "odradek_produces_waiting + odradek_fetches_waiting", "delayedOperation"),
        ),
        "Produce and Fetch.",
    ),
    Row(
        "kafka_cluster_partition_replicascount",
        GAUGE,
        "kafka.cluster:type=Partition,name=ReplicasCount,topic=…,partition=…",
        readings.REPLICA_COUNT,
    ),
    Row(
        "kafka_cluster_partition_insyncreplicascount",
        GAUGE,
        "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=…,partition=…",
        readings.IN_SYNC_COUNT,
    ),
    Row(
        "kafka_cluster_partition_underreplicated",
        GAUGE,
        "kafka.cluster:type=Partition,name=UnderReplicated,topic=…,partition=…",
        readings.UNDER_REPLICATED,
    ),
    Row(
        "kafka_cluster_partition_underminisr",
        GAUGE,
        "kafka.cluster:type=Partition,name=UnderMinIsr,topic=…,partition=…",
        readings.UNDER_MIN_ISR,
    ),
    Row(
        "kafka_cluster_partition_atminisr",
        GAUGE,
        "kafka.cluster:type=Partition,name=AtMinIsr,topic=…,partition=…",
        readings.AT_MIN_ISR,
    ),
    Row(
        "kafka_cluster_partition_laststableoffsetlag",
        GAUGE,
        "kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=…,partition=…",
        readings.OPEN_RECORDS,
    ),
)

_TRAFFIC = (
    Row(
        "kafka_server_brokertopicmetrics_messagesin_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec[,topic=…]",
        all_and_by_topic(["odradek_produced_records"], ["odradek_topic_produced_records"]),
    ),
    Row(
        "kafka_server_brokertopicmetrics_bytesin_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec[,topic=…]",
        all_and_by_topic(["odradek_produced_bytes"], ["odradek_topic_produced_bytes"]),
    ),
    Row(
        "kafka_server_brokertopicmetrics_bytesout_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec[,topic=…]",
        all_and_by_topic(["odradek_fetched_bytes"], ["odradek_topic_fetched_bytes"], ["odradek_replicated_bytes"]),
    ),
    Row(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
        same("odradek_replica_fetched_bytes"),
    ),
    Row(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
        same("odradek_replicated_bytes"),
    ),
    Row(
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec[,topic=…]",
        all_and_by_topic(
            ["odradek_produced_batches", "odradek_produce_failures"],
            ["odradek_topic_produced_batches", "odradek_topic_produce_failures"],
        ),
        "Batches, as Kafka's.",
    ),
    Row(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec[,topic=…]",
        all_and_by_topic(["odradek_produce_failures"], ["odradek_topic_produce_failures"]),
        "All that are refused; Kafka leaves some errors out.",
    ),
    Row(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec[,topic=…]",
        all_and_by_topic(["odradek_fetches"], ["odradek_topic_fetches"]),
        "Of all topics: requests. By topic: answers that gave a consumer records; Kafka counts empty ones, too.",
    ),
    Row(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec[,topic=…]",
        all_and_by_topic(["odradek_fetch_failures"], ["odradek_topic_fetch_failures"]),
        "All that fail on their leader; Kafka leaves some errors out.",
    ),
    Row(
        "kafka_server_brokertopicmetrics_producemessageconversions_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec",
        constant(0, "always 0: nothing is converted"),
    ),
    Row(
        "kafka_server_brokertopicmetrics_fetchmessageconversions_total",
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics,name=FetchMessageConversionsPerSec",
        constant(0, "always 0: nothing is converted"),
    ),
)


def _request_time(name: str, phase: str, note: str = "") -> Row:
    bean = f"kafka.network:type=RequestMetrics,name={name},request=… <>99thPercentile and others"
    source = quantiles_of("odradek_request_seconds", phase, 1000)
    return Row(f"kafka_network_requestmetrics_{name.lower()}", GAUGE, bean, source, note)


_REQUESTS = (
    Row(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=…,version=…",
        computed(readings.request_counts, "odradek_requests", "request"),
        f"All versions together. {_ALL_FETCHES}",
    ),
    _request_time("RequestQueueTimeMs", "queue"),
    _request_time("LocalTimeMs", "local"),
    _request_time("RemoteTimeMs", "remote"),
    _request_time("ThrottleTimeMs", "throttle"),
    _request_time("ResponseSendTimeMs", "send", "With the time in which the answer waits for others before it."),
    _request_time("TotalTimeMs", "total"),
    Row(
        "kafka_network_requestmetrics_totaltimems_count",
        UNTYPED,
        "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=…",
        computed(readings.request_counts, "odradek_requests", "request"),
        _ALL_FETCHES,
    ),
    Row(
        "kafka_network_requestmetrics_requestbytes",
        GAUGE,
        "kafka.network:type=RequestMetrics,name=RequestBytes,request=… <>99thPercentile and others",
        quantiles_of("odradek_request_size_bytes"),
    ),
    Row(
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        GAUGE,
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
        computed(readings.idle, "odradek_loop_cpu_seconds"),
        _LOOP,
    ),
    Row(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        GAUGE,
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent <>MeanRate",
        computed(readings.idle, "odradek_loop_cpu_seconds"),
        _LOOP,
    ),
    Row(
        "kafka_network_socketserver_memorypoolused",
        GAUGE,
        "kafka.network:type=SocketServer,name=MemoryPoolUsed",
        same("odradek_request_memory_bytes"),
    ),
    Row(
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        "kafka.server:type=socket-server-metrics,listener=…,networkProcessor=… <>connection-count",
        same("odradek_listener_connections", {"listener": "listener"}, always=_PROCESSOR),
    ),
    Row(
        "kafka_server_socket_server_metrics_successful_authentication_total",
        COUNTER,
        "kafka.server:type=socket-server-metrics,listener=…,networkProcessor=… <>successful-authentication-total",
        same("odradek_logins", {"listener": "listener"}, always=_PROCESSOR),
    ),
    Row(
        "kafka_server_socket_server_metrics_failed_authentication_total",
        COUNTER,
        "kafka.server:type=socket-server-metrics,listener=…,networkProcessor=… <>failed-authentication-total",
        same("odradek_logins_failed", {"listener": "listener"}, always=_PROCESSOR),
    ),
    Row(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        GAUGE,
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
        same("odradek_fetch_sessions"),
    ),
)

_NODE = (
    Row(
        "kafka_server_kafkaserver_brokerstate",
        GAUGE,
        "kafka.server:type=KafkaServer,name=BrokerState",
        _broker(computed(readings.broker_state)),
        "1: starts or is fenced; 3: runs; 6: hands over its work.",
    ),
    Row(
        "kafka_server_kafkaserver_linux_disk_read_bytes",
        GAUGE,
        "kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
        disk_bytes("read"),
    ),
    Row(
        "kafka_server_kafkaserver_linux_disk_write_bytes",
        GAUGE,
        "kafka.server:type=KafkaServer,name=linux-disk-write-bytes",
        disk_bytes("write"),
    ),
    Row(
        "kafka_log_log_size",
        GAUGE,
        "kafka.log:type=Log,name=Size,topic=…,partition=…",
        same("odradek_log_size_bytes", _PARTITION),
    ),
    Row(
        "kafka_log_log_logstartoffset",
        GAUGE,
        "kafka.log:type=Log,name=LogStartOffset,topic=…,partition=…",
        same("odradek_log_start_offset", _PARTITION),
    ),
    Row(
        "kafka_log_log_logendoffset",
        GAUGE,
        "kafka.log:type=Log,name=LogEndOffset,topic=…,partition=…",
        same("odradek_log_end_offset", _PARTITION),
    ),
    Row(
        "kafka_log_log_numlogsegments",
        GAUGE,
        "kafka.log:type=Log,name=NumLogSegments,topic=…,partition=…",
        readings.SEGMENT_COUNT,
    ),
    Row(
        "kafka_log_logmanager_offlinelogdirectorycount",
        GAUGE,
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        same("odradek_log_directories_offline"),
    ),
    Row(
        "kafka_log_logcleaner_max_clean_time_secs",
        GAUGE,
        "kafka.log:type=LogCleaner,name=max-clean-time-secs",
        same("odradek_cleaner_last_seconds"),
    ),
    Row(
        "kafka_log_logcleaner_max_compaction_delay_secs",
        GAUGE,
        "kafka.log:type=LogCleaner,name=max-compaction-delay-secs",
        same("odradek_cleaner_overdue_seconds"),
    ),
)

_CONTROLLER = (
    Row(
        "kafka_controller_kafkacontroller_activecontrollercount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=ActiveControllerCount",
        _controller(same("odradek_controller_active")),
    ),
    Row(
        "kafka_controller_kafkacontroller_activebrokercount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
        _controller(computed(readings.active_brokers, "odradek_cluster_brokers - odradek_cluster_brokers_fenced")),
    ),
    Row(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=FencedBrokerCount",
        _controller(same("odradek_cluster_brokers_fenced")),
    ),
    Row(
        "kafka_controller_kafkacontroller_globaltopiccount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=GlobalTopicCount",
        _controller(same("odradek_cluster_topics")),
    ),
    Row(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
        _controller(same("odradek_cluster_partitions")),
    ),
    Row(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
        _controller(same("odradek_cluster_partitions_without_leader")),
        "Each controller says what it knows, as Kafka's: take the largest, not the sum.",
    ),
    Row(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        GAUGE,
        "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
        _controller(same("odradek_cluster_partitions_not_preferred")),
    ),
    Row(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        _controller(same("odradek_cluster_unclean_elections")),
    ),
    Row(
        "kafka_server_raftmetrics_current_leader",
        GAUGE,
        "kafka.server:type=raft-metrics <>current-leader",
        same("odradek_quorum_leader"),
    ),
    Row(
        "kafka_server_raftmetrics_current_epoch",
        GAUGE,
        "kafka.server:type=raft-metrics <>current-epoch",
        same("odradek_quorum_epoch"),
    ),
    Row(
        "kafka_server_raftmetrics_current_vote",
        GAUGE,
        "kafka.server:type=raft-metrics <>current-vote",
        computed(readings.vote),
    ),
    Row(
        "kafka_server_raftmetrics_current_state",
        UNTYPED,
        "kafka.server:type=raft-metrics <>current-state",
        computed(readings.role, "", "current_state"),
    ),
    Row(
        "kafka_server_raftmetrics_high_watermark",
        GAUGE,
        "kafka.server:type=raft-metrics <>high-watermark",
        same("odradek_quorum_high_watermark"),
    ),
    Row(
        "kafka_server_raftmetrics_log_end_offset",
        GAUGE,
        "kafka.server:type=raft-metrics <>log-end-offset",
        same("odradek_quorum_end_offset"),
    ),
    Row(
        "kafka_server_raftmetrics_append_records_rate",
        GAUGE,
        "kafka.server:type=raft-metrics <>append-records-rate",
        computed(readings.appended, "odradek_quorum_end_offset"),
        "Over the last minute.",
    ),
    Row(
        "kafka_server_raftmetrics_fetch_records_rate",
        GAUGE,
        "kafka.server:type=raft-metrics <>fetch-records-rate",
        computed(readings.fetched, "odradek_quorum_end_offset"),
        "Over the last minute.",
    ),
    Row(
        "kafka_server_raftchannelmetrics_outgoing_byte_total",
        COUNTER,
        "kafka.server:type=raft-channel-metrics <>outgoing-byte-total",
        same("odradek_quorum_sent_bytes"),
    ),
    Row(
        "kafka_server_raftchannelmetrics_incoming_byte_total",
        COUNTER,
        "kafka.server:type=raft-channel-metrics <>incoming-byte-total",
        same("odradek_quorum_received_bytes"),
    ),
    Row(
        "kafka_server_raftchannelmetrics_request_total",
        COUNTER,
        "kafka.server:type=raft-channel-metrics <>request-total",
        same("odradek_quorum_requests"),
    ),
    Row(
        "kafka_server_raftchannelmetrics_response_total",
        COUNTER,
        "kafka.server:type=raft-channel-metrics <>response-total",
        same("odradek_quorum_responses"),
    ),
    Row(
        "kafka_server_brokermetadatametrics_last_applied_record_offset",
        GAUGE,
        "kafka.server:type=broker-metadata-metrics <>last-applied-record-offset",
        _broker(same("odradek_metadata_offset")),
    ),
)

_SUMS = "Over all partitions of a topic of which one is shown (`odradek.group.lag.max.partitions`)."
_CLUSTER = (
    Row("kafka_brokers", GAUGE, EXPORTER, computed(readings.brokers, "odradek_cluster_brokers")),
    Row("kafka_broker_info", GAUGE, EXPORTER, computed(readings.broker_info, "", "id", "address")),
    Row("kafka_topic_partitions", GAUGE, EXPORTER, computed(readings.topic_partitions, "", "topic")),
    Row(
        "kafka_topic_partition_current_offset",
        GAUGE,
        EXPORTER,
        offset_of_led("high_watermark"),
        "The high watermark.",
    ),
    Row("kafka_topic_partition_oldest_offset", GAUGE, EXPORTER, offset_of_led("log_start_offset")),
    Row("kafka_topic_partition_leader", GAUGE, EXPORTER, readings.LEADER),
    Row("kafka_topic_partition_leader_is_preferred", GAUGE, EXPORTER, readings.IS_PREFERRED),
    Row("kafka_topic_partition_replicas", GAUGE, EXPORTER, readings.REPLICAS),
    Row("kafka_topic_partition_in_sync_replica", GAUGE, EXPORTER, readings.IN_SYNC),
    Row("kafka_topic_partition_under_replicated_partition", GAUGE, EXPORTER, readings.IS_UNDER_REPLICATED),
    Row("kafka_consumergroup_current_offset", GAUGE, EXPORTER, per_commit("offset")),
    Row("kafka_consumergroup_current_offset_sum", GAUGE, EXPORTER, per_topic_of_group("offsets"), _SUMS),
    Row("kafka_consumergroup_lag", GAUGE, EXPORTER, per_commit("records")),
    Row("kafka_consumergroup_lag_sum", GAUGE, EXPORTER, per_topic_of_group("records"), _SUMS),
    Row(
        "kafka_consumer_lag_millis",
        GAUGE,
        "Grafana's kafka_exporter",
        same(
            "odradek_group_lag_seconds",
            {"group": "consumergroup", "topic": "topic", "partition": "partition"},
            factor=1000,
        ),
    ),
    Row("kafka_consumergroup_members", GAUGE, EXPORTER, computed(readings.members, "", "consumergroup")),
)

TABLE = (*_REPLICAS, *_TRAFFIC, *_REQUESTS, *_NODE, *_CONTROLLER, *_CLUSTER)
