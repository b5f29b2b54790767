"""Metrics that dashboards for Kafka read and this broker does not have, with the reason: for docs/metrics-kafka.md."""

from __future__ import annotations

_NO_QUEUE = "there is no queue between connections and handlers"
_NO_ZOOKEEPER = "there is no ZooKeeper"
_NO_JVM = "there is no JVM; process_* are there"

# By name, the reason why there is no sample.
NOT_GIVEN = {
    "kafka_network_requestmetrics_responsequeuetimems": "a part of responsesendtimems: answers have no queue",
    "kafka_network_requestmetrics_errors_total": "counted without the code of the error: odradek_request_errors_total",
    "kafka_network_requestchannel_requestqueuesize": _NO_QUEUE,
    "kafka_network_requestchannel_responsequeuesize": _NO_QUEUE,
    "kafka_server_raftmetrics_commit_latency_avg": "not measured",
    "kafka_server_raftmetrics_election_latency_avg": "not measured",
    "kafka_server_socket_server_metrics_connection_creation_rate": "of the node: odradek_connections_accepted_total",
    "kafka_server_socket_server_metrics_connections_software": "names that clients give would be labels without end",
    "kafka_server_replicafetchermanager_minfetchrate": "not measured",
    "kafka_log_logflushstats_*": "the time of fsyncs is not measured",
    "kafka_server_zookeeperclientmetrics_*": _NO_ZOOKEEPER,
    "kafka_server_sessionexpirelistener_*": _NO_ZOOKEEPER,
    "zookeeper_*": _NO_ZOOKEEPER,
    "jvm_*": _NO_JVM,
    "java_lang_*": _NO_JVM,
    "leader_uptime": _NO_ZOOKEEPER,
    "container_*": "come from Kubernetes, not from a broker",
    "kubelet_*": "come from Kubernetes, not from a broker; its own view is odradek_log_directory_free_bytes",
}
