"""Metrics by the names that Kafka's have in Prometheus, for dashboards and alerts that people have already."""
